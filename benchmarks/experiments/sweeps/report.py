"""The sweeps: every method at the setting that its held-out rows choose, and all settings."""

import numpy as np

from benchmarks.experiments.sweeps.plan import BATCH, METHODS, RATES, SETS, STEPS
from benchmarks.machinery.document import Block, Paragraph, Section, Table
from benchmarks.machinery.store import Store

SCORES = {"nll": 2, "rmse": 2, "ece": 3}


def section(store: Store) -> Section | None:
    """Everything that is stored; None without results."""
    found = {
        (method, name): result
        for method in METHODS
        for name in SETS
        if (result := store.read(f"sweeps/{name}-{method}")) is not None
    }
    if not found:
        return None
    words = (
        f"Two layers of 50 ELU units, {STEPS} steps of Adam on batches of {BATCH}, a rate that "
        f"falls along a cosine from {' or '.join(f'{rate:g}' for rate in RATES)}, twenty splits. A "
        "fifth of the training rows is held out; in every split they choose setting and rate. The "
        "post-hoc variance is also fitted to them. Mean and deviation over the splits, NLL without "
        "its constant."
    )
    blocks: list[Block] = [Paragraph(words)]
    blocks += [chosen_table(found, score) for score in SCORES]
    blocks += [settings_table(found, method) for method, row in METHODS.items() if len(row[1]) > 1]
    return Section("Sweeps of published methods", blocks)


def choose(result: dict[str, list], setting: int | None = None) -> dict[str, np.ndarray]:
    """The scores of every split where its held-out NLL is lowest, in one setting or in all."""
    arrays = {key: np.array(value, float) for key, value in result.items()}  # setting, split, rate
    if setting is not None:
        arrays = {key: values[setting : setting + 1] for key, values in arrays.items()}
    by_split = {
        key: np.moveaxis(values, 1, 0).reshape(values.shape[1], -1)
        for key, values in arrays.items()
    }
    held_out = by_split["held_out_nll"]
    places = np.where(np.isnan(held_out), np.inf, held_out).argmin(1)
    return {key: values[np.arange(len(values)), places] for key, values in by_split.items()}


def chosen_table(found: dict[tuple[str, str], dict], score: str) -> Table:
    """A row for each method, a column for each set; the lowest mean in bold."""
    means = {
        key: (np.mean(values := choose(result)[score]), np.std(values))
        for key, result in found.items()
    }
    rows = []
    for method, (title, settings) in METHODS.items():
        cells = []
        for name in SETS:
            if (method, name) not in means:
                cells.append("not run")
                continue
            lowest = np.nanmin([mean for (_, other), (mean, _) in means.items() if other == name])
            text = _text(*means[method, name], SCORES[score])
            cells.append(f"**{text}**" if means[method, name][0] == lowest else text)
        rows.append([title, str(len(settings)), *cells])
    caption = f"{score.upper()} on test rows at the setting chosen on held-out rows"
    return Table(caption, ["method", "settings", *SETS], rows)


def settings_table(found: dict[tuple[str, str], dict], method: str) -> Table:
    """NLL / RMSE of every setting at its best rate on held-out rows; how often it is chosen."""
    title, settings = METHODS[method]
    rows = []
    for index, setting in enumerate(settings):
        cells = []
        for name in SETS:
            if (method, name) not in found:
                cells.append("not run")
                continue
            scores = choose(found[method, name], index)
            times = np.sum(choose(found[method, name])["held_out_nll"] == scores["held_out_nll"])
            nll, rmse = (_text(np.mean(scores[key]), None, 2) for key in ("nll", "rmse"))
            cells.append(f"{nll} / {rmse} ({times})")
        rows.append([setting, *cells])
    caption = f"{title}: NLL / RMSE of each setting, and in how many splits it is chosen"
    return Table(caption, ["setting", *SETS], rows)


def _text(mean: float, std: float | None, digits: int) -> str:
    if not np.isfinite(mean):
        return "diverged"
    if abs(mean) > 1e4:
        return f"{mean:.1e}"
    return f"{mean:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")
