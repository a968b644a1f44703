"""The section on the ratio of the two norms."""

import numpy as np

from benchmarks.experiments.norm_ratio.plan import (
    CHOOSING,
    PROCESS,
    RATES,
    RATIOS,
    REPORTING,
    VARIANTS,
)
from benchmarks.machinery.document import Block, Paragraph, Section, Table
from benchmarks.machinery.store import Store

_WORDS = {"nll": "plain NLL", "fisher8": "Fisher8", "shared": "shared", "apart": "of their own"}


def section(store: Store) -> Section | None:
    """Everything that is stored; None without results."""
    blocks: list[Block] = []
    for title, problems in (("on which it is chosen", CHOOSING), ("for the report", REPORTING)):
        found = {name: store.read(f"norm_ratio/{name}") for name in problems}
        present = {name: result for name, result in found.items() if result is not None}
        if present:
            blocks.append(sets_table(present, title))
    process = store.read(f"norm_ratio/{PROCESS}")
    if process is not None:
        blocks.append(process_table(process))
    words = (
        "Fisher8 gives the mean's and the log-variance's part of the gradient equal norms. Here "
        "the latter is multiplied. Test NLL, mean over seeds, at the learning rate with the best "
        "validation NLL; the ratio 'of the batch' is that of the two lengths in nats."
    )
    return Section("The ratio of the two norms", [Paragraph(words), *blocks]) if blocks else None


def best_rate(result: dict) -> tuple[np.ndarray, np.ndarray]:
    """Test NLL and RMSE, mean over seeds, of every ratio at the rate chosen on held-out rows."""
    validation = np.array(result["validation_nll"], float)
    validation = np.where(np.isnan(validation), np.inf, validation).mean(axis=-1)
    rates = validation.argmin(axis=1)
    rows = np.arange(len(rates))
    nll, rmse = (np.array(result[key], float) for key in ("test_nll", "test_rmse"))
    return nll[rows, rates].mean(axis=-1), rmse[rows, rates].mean(axis=-1)


def sets_table(found: dict[str, dict], title: str) -> Table:
    """A row for each ratio; the best of each set emphasised, and the mean difference from 1."""
    scores = {name: best_rate(result) for name, result in found.items()}
    equal = RATIOS.index(1.0)
    rows = []
    for index, ratio in enumerate(RATIOS):
        cells = [_text(nll, rmse, index) for nll, rmse in scores.values()]
        behind = np.mean([nll[index] - nll[equal] for nll, _ in scores.values()])
        name = "of the batch" if ratio is None else f"{ratio:g}"
        rows.append([name, *cells, f"{behind:+.3f}"])
    caption = f"Test NLL / RMSE by the ratio, sets {title}"
    return Table(caption, ["ratio", *found, "NLL beside 1, mean"], rows)


def _text(nll: np.ndarray, rmse: np.ndarray, index: int) -> str:
    text = f"{nll[index]:.3f} / {rmse[index]:.3f}"
    return f"**{text}**" if index == int(np.argmin(nll)) else text


def process_table(result: dict) -> Table:
    """A row for each variant of the neural process, the learning rates side by side."""
    rows = []
    for (loss, ratio, trunk), values in zip(VARIANTS, result["test_nll"], strict=True):
        means = np.array(values, float).mean(axis=-1)
        texts = [f"{mean:.3f}" for mean in means]
        best = int(np.argmin(means))
        texts[best] = f"**{texts[best]}**"
        rows.append([_WORDS[loss], f"{ratio:g}", _WORDS[trunk], *texts])
    header = ["loss", "log-variance times", "layers", *(f"rate {rate:g}" for rate in RATES)]
    caption = "Neural process of `examples/`: NLL of new curves, layers shared or not"
    return Table(caption, header, rows)
