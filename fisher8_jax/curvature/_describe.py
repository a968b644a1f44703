"""What a curvature will cost, as a table."""

from collections.abc import Sequence

from fisher8_jax.curvature._plan import LeafPlan


def describe(solver: str, unknowns: int, leaves: Sequence[LeafPlan]) -> str:
    """One line about the solver, one for each leaf.

    Args:
        solver: how the system is solved.
        unknowns: whitened outputs of the local batch.
        leaves: how each leaf enters.
    """
    header = ("leaf", "shape", "form", "uses", "numbers", "operations")
    rows = [header, *(_row(leaf) for leaf in leaves)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    total = sum(leaf.operations for leaf in leaves)
    first = f"{solver}; {unknowns:,} unknowns, {total:,} operations for their Gram matrix"
    return "\n".join([first, *(_line(row, widths) for row in rows)])


def _row(leaf: LeafPlan) -> tuple[str, ...]:
    counted = [
        name if leaf.uses.count(name) == 1 else f"{leaf.uses.count(name)} {name}"
        for name in dict.fromkeys(leaf.uses)
    ]
    uses = ", ".join(counted)
    if leaf.positions > 1:
        uses += f", {leaf.positions} positions"
    return (
        leaf.name,
        str(leaf.shape),
        leaf.form,
        uses,
        f"{leaf.floats:,}",
        f"{leaf.operations:,}",
    )


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell.rjust(width) if column >= 4 else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()
