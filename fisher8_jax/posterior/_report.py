"""What a posterior says about itself: which rows and parameters it is of, and how exact."""

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fisher8_jax.posterior._posterior import Posterior

FORMS = {
    "dual": "exact, in the space of outputs",
    "primal": "exact, in the space of parameters",
    "last_layer": "the last layer's parameters only, all others fixed",
    "subset": "a random part of the rows, which makes it wider than that of all rows",
}


@dataclasses.dataclass(frozen=True)
class Report:
    """How a posterior was computed.

    Attributes:
        groups: the names of the prior's groups.
        sizes: how many parameters each has.
        form: 'dual', 'primal', 'last_layer' or 'subset'.
        unknowns: the size of the matrix that was factorised.
        rows: how many rows it was computed from.
        given_rows: how many rows were given.
        chunk: how many rows are worked on at a time.
        dtype: the arithmetic.
        notes: stated approximations.
    """

    groups: tuple[str, ...]
    sizes: tuple[int, ...]
    form: str
    unknowns: int
    rows: int
    given_rows: int
    chunk: int
    dtype: str
    notes: tuple[str, ...] = ()

    def headline(self) -> str:
        """One line."""
        rows = f"{self.rows:,}"
        if self.rows != self.given_rows:
            rows = f"{self.rows:,} of {self.given_rows:,}"
        return f"{self.form}, {rows} rows, {sum(self.sizes):,} parameters, {self.dtype}"

    def describe(self, posterior: "Posterior") -> str:
        """Some lines, and a table of the groups."""
        lines = [
            f"{self.headline()}: {FORMS[self.form]}; {self.unknowns:,} unknowns",
            *self.notes,
            f"log evidence {posterior.log_evidence:.2f}",
        ]
        if not posterior.is_converged:
            lines.append(
                f"the parameters have not converged: a Newton step would move the predictions by "
                f"{posterior.step_kl:.2g} nats a row; see `step_kl`"
            )
        table = [["group", "parameters", "effective", "precision"]]
        table += [
            [name, f"{size:,}", f"{posterior.effective_parameters[name]:.1f}", f"{value:.3g}"]
            for (name, value), size in zip(posterior.precision.items(), self.sizes, strict=True)
        ]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for first, *rest in table:
            cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
            lines.append("  ".join([first.ljust(widths[0]), *cells]))
        return "\n".join(lines)
