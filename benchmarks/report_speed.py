"""The speed section of the report."""

from benchmarks.document import Paragraph, Section
from benchmarks.speed import words
from benchmarks.store import Store


def section(store: Store) -> Section | None:
    """The measured ratios, or None without results."""
    result = store.read("speed/uci-sgd")
    if result is None:
        return None
    machine, summary = result["machine"], result["summary"]
    versions = f"PyTorch {result['rounds'][0]['torch']['torch']}"
    where = f"{machine['cores']} cores of {machine['processor']}, {versions}, medians of rounds"
    return Section("Speed", [Paragraph(f"On {where}: {words(summary)}")])
