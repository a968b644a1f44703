"""The study of leave-one-out: two small tables."""

from benchmarks.experiments.leave_one_out.plan import CHOOSING, DAMPING, SETS
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
        f"targets, with its constant; damped: by {DAMPING}, chosen on {', '.join(CHOOSING)}."
    )
    blocks: list[Block] = [Paragraph(words)]
    refits = [[name, *_refit(found["refits", name])] for name in SETS if ("refits", name) in found]
    if refits:
        header = ["set", "rows", "correlation, mean", "log-variance", "slope, mean", "log-variance"]
        blocks.append(Table("Shift of a row's outputs: refits over closed form", header, refits))
    for score, caption, header in (
        ("", "Mean NLL of rows left out", _HEADER),
        ("median_", "Median NLL", _HEADER[:6]),
    ):
        rows = [(name, found["folds", name]) for name in SETS if ("folds", name) in found]
        folds = [[name, *_folds(result, score)] for name, result in rows]
        if folds:
            blocks.append(Table(caption, header, folds))
    return Section("Leave one out", blocks)


def _refit(result: dict) -> list[str]:
    values = [result[name][output] for name in ("correlation", "slope") for output in OUTPUTS]
    return [str(result["rows"]), *(f"{value:.3f}" for value in values)]


def _folds(result: dict, score: str) -> list[str]:
    closed, damped, folds, training = (
        result[score + what] for what in ("closed", "damped", "folds", "training")
    )
    values = [closed, damped, folds, damped - folds, training]
    if not score:
        values += [result["error"], result["damped_in_folds"]]
    return [f"{value:.2f}" for value in values]


_HEADER = ["set", "closed form", "damped", "ten folds", "damped less folds", "training rows"]
_HEADER += ["error of the difference", "damped, on nine tenths"]
OUTPUTS = ("mean", "log_variance")
