"""The study of leave-one-out: two small tables."""

from benchmarks.experiments.leave_one_out.plan import RADII, SETS
from benchmarks.machinery.document import Block, Paragraph, Section, Table
from benchmarks.machinery.store import Store


def section(store: Store) -> Section | None:
    """Everything that is stored; None without results."""
    cells = list(store.cells("leave_one_out"))
    found = {(b["spec"]["kind"], b["spec"]["dataset"]): b["result"] for b in cells}
    if not found:
        return None
    words = (
        "A network of two layers of 50 trained by evidence. Refits go on from there, after steps "
        "on all rows, without one row; folds train ten networks anew. NLL in units of standardised "
        "targets, with its constant; moved: outputs first move towards the optimum by 0.1 nats."
    )
    blocks: list[Block] = [Paragraph(words)]
    refits = [[name, *_refit(found["refits", name])] for name in SETS if ("refits", name) in found]
    if refits:
        header = ["set", "rows", "correlation, mean", "log-variance", "slope, mean", "log-variance"]
        blocks.append(Table("Shift of a row's outputs: refits over closed form", header, refits))
    for score, caption in (("", "Mean NLL of rows left out"), ("median_", "Median NLL")):
        folds = [
            [name, *_folds(found["folds", name], score)]
            for name in SETS
            if ("folds", name) in found
        ]
        if folds:
            blocks.append(Table(caption, _HEADER if score else [*_HEADER, "training rows"], folds))
    return Section("Leave one out", blocks)


def _refit(result: dict) -> list[str]:
    values = [result[name][output] for name in ("correlation", "slope") for output in OUTPUTS]
    return [str(result["rows"]), *(f"{value:.3f}" for value in values)]


def _folds(result: dict, score: str) -> list[str]:
    values = []
    for moved in RADII:
        closed, folds = (result[f"{score}{what}{moved}"] for what in ("closed", "folds"))
        values += [closed, folds, closed - folds]
    return [f"{value:.2f}" for value in (values if score else [*values, result["training"]])]


_HEADER = ["set", "closed form", "ten folds", "difference"]
_HEADER += [f"{title}, moved" for title in _HEADER[1:]]
OUTPUTS = ("mean", "log_variance")
