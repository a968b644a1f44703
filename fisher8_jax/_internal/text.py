"""Tables as plain text."""

from collections.abc import Iterator, Sequence


def aligned(rows: Sequence[Sequence[str]], *, left: int = 1) -> Iterator[str]:
    r"""The lines of a table: the first `left` columns begin, all others end at the same place."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
