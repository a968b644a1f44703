"""The speed section of the report."""

from benchmarks.costs.speed import words
from benchmarks.machinery.document import Paragraph, Section
from benchmarks.machinery.store import Store


def section(store: Store) -> Section | None:
    """The measured ratios, or None without results."""
    result = store.read("speed/uci-sgd")
    if result is None:
        return None
    machine, summary = result["machine"], result["summary"]
    torch = result["rounds"][0]["torch"]
    versions = f"PyTorch {torch['torch']} with {torch['threads']} threads"
    where = (
        f"{machine['cores']} cores of {machine['processor']} (load average {machine['load']} at "
        f"the end), {versions}, best of {len(result['rounds'])} rounds"
    )
    return Section("Speed", [Paragraph(f"On {where}: {words(summary)}")])
