"""The table of the stereo pair from the stored result."""

from typing import Any

from benchmarks.machinery.document import Paragraph, Section, Table
from benchmarks.machinery.store import Store


def section(store: Store) -> Section | None:
    """The test scores of every method at its best setting; None without results."""
    cells = list(store.cells("dense"))
    if not cells:
        return None
    blocks = [_table(cell["spec"], cell["result"]["rows"]) for cell in cells]
    words = (
        "Every method at the setting that validation picks: a learning rate of Adam, or a radius "
        "of the recipe. Test blocks alone; NLL in nats per pixel with its constant."
    )
    return Section("Stereo pair", [*blocks, Paragraph(words)])


def _table(spec: dict[str, Any], rows: list[dict[str, Any]]) -> Table:
    header = ["method", "RMSE in pixels", "NLL", "ECE"]
    lines = [
        [row["method"], f"{row['rmse']:.2f}", f"{row['nll']:.2f}", f"{row['ece']:.3f}"]
        for row in rows
    ]
    return Table(f"Disparity of every pixel, {spec['steps']} steps", header, lines)
