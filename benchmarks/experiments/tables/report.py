"""The comparison on tables: ranks, wins, scores, times, and published figures beside it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.experiments.tables.figure import draw
from benchmarks.experiments.tables.plan import (
    BASELINES,
    CHOSEN_ON,
    MODELS,
    OURS,
    SPLITS,
    VARIANTS,
)
from benchmarks.experiments.tables.ranks import (
    RANKED,
    Cells,
    Comparison,
    all_of,
    as_far_as,
    compare,
    load,
)
from benchmarks.experiments.tables.strongest import TITLES, strongest_blocks
from benchmarks.experiments.uci.data import DATASETS as UCI
from benchmarks.machinery.document import Block, Figure, Paragraph, Section, Table
from benchmarks.machinery.store import Store

# NLL with its constant as printed for TabPFN and, by its authors (arXiv 2508.17056, as quoted in a
# public replication of it), for TabResFlow; 20 folds of the same sets, perhaps others than ours.
# Wine is left out: its targets are whole numbers, on which a flexible density can spike.
PUBLISHED = {
    "concrete": (2.21, 2.90),
    "energy": (0.15, 0.77),
    "kin8nm": (-1.27, -1.29),
    "naval": (-7.33, -5.30),
    "power": (2.28, 2.60),
    "yacht": (-0.73, 0.67),
}

_NAMES = {"rmse": "RMSE", "nll": "NLL", "crps": "CRPS", "ece": "ECE"}


def section(store: Store) -> Section | None:
    """Everything that is stored; None without results."""
    cells = load(store)
    found, every = compare(cells, as_far_as(cells, OURS)), all_of(cells, OURS)
    if not every.datasets:
        return None
    blocks: list[Block] = [
        Paragraph(_what_is_compared(every)),
        *rank_tables(found),
        *(rank_tables(compare(cells)) if len(every.models) > len(found.models) else []),
        pair_table(cells),
        *(score_table(every, score) for score in ("nll", "crps", "rmse")),
        calibration_table(found),
        *variant_tables(cells),
        *times_tables(store),
        *published_tables(every),
        *strongest_blocks(cells, rank_tables, pair_table),
        Figure("tables", lambda: draw(every), "NLL of the baselines above that of the estimator"),
    ]
    return Section("Tables", blocks)


def rank_tables(found: Comparison) -> list[Block]:
    """Over all sets, and over those that no setting was chosen on."""
    unseen = found.only([name for name in SPLITS if name not in CHOSEN_ON])
    return [rank_table(found, "all"), rank_table(unseen, "no setting was chosen on them")]


def rank_table(found: Comparison, which: str) -> Table:
    """Mean ranks, and on how many sets the estimator is better."""
    number = len(found.datasets)
    ranks = {score: found.ranks(score) for score in RANKED} if number else {}
    rows = []
    for index, model in enumerate(found.models):
        cells = [
            _bold(ranks[s][index], np.nanmin(ranks[s]), ".2f") if number else "" for s in RANKED
        ]
        wins = [_wins(found, score, model) for score in ("nll", "crps", "rmse")]
        rows.append([TITLES[model], *cells, *wins])
    header = ["model", *(f"{_NAMES[s]} rank" for s in RANKED)]
    header += [f"worse in {_NAMES[s]} than the estimator" for s in ("nll", "crps", "rmse")]
    return Table(f"Mean ranks over {number} of {len(SPLITS)} tables: {which}", header, rows)


def pair_table(cells: Cells, baselines: Sequence[str] = BASELINES) -> Table:
    """The estimator beside each baseline alone, on all splits that both have."""
    rows = []
    for baseline in baselines:
        found = compare(cells, (OURS, baseline))
        if baseline not in found.models:
            continue
        number = sum(found.splits)
        wins = [_wins(found, score, baseline) for score in ("nll", "crps", "rmse")]
        lower = (found.means["nll"] @ np.array([-1, 1])).mean()
        lower_text = "" if np.isnan(lower) else f"{lower:.3f}"
        rows.append([TITLES[baseline], str(number), *wins, lower_text])
    header = ["baseline", "splits of all sets", "worse in NLL", "worse in CRPS", "worse in RMSE"]
    caption = (
        "Each baseline beside the estimator, on all splits that both have: on how many sets it is"
    )
    return Table(caption, [*header, "its NLL above the estimator's, mean over the sets"], rows)


def score_table(found: Comparison, score: str) -> Table:
    """Means over the splits, the best of each row in bold."""
    rows = []
    for name, splits, means in zip(found.datasets, found.splits, found.means[score], strict=True):
        digits = _digits(means)
        cells = ["" if np.isnan(m) else _bold(m, np.nanmin(means), digits) for m in means]
        rows.append([_marked(name), str(splits), *cells])
    names = [MODELS[model] for model in found.models]
    caption = f"{_NAMES[score]}, means over the splits (* no setting was chosen on this set)"
    return Table(caption, ["set", "splits", *names], rows)


def calibration_table(found: Comparison) -> Table:
    """How honest the intervals are, over all sets."""
    rows = []
    for index, model in enumerate(found.models):
        coverage, ece = (found.means[s][:, index] for s in ("coverage", "ece"))
        width = found.means["width"][:, index] / found.means["width"][:, _ours(found)]
        off = np.abs(coverage - 0.9)
        values = (coverage.mean(), off.mean(), np.median(width), ece.mean())
        rows.append([MODELS[model], *(f"{value:.3f}" for value in values)])
    header = ["model", "coverage of 90 % intervals", "mean distance from 90 %"]
    header += ["width beside the estimator's, median", "ECE"]
    return Table("Intervals, means over the sets", header, rows)


def variant_tables(cells: Cells) -> list[Block]:
    """Variants beside the estimator: what its parts are good for."""
    rows = []
    for variant, title in VARIANTS.items():
        found = compare(cells, (OURS, variant))
        if variant not in found.models:
            continue
        wins = [_wins(found, score, variant) for score in ("nll", "crps")]
        beside = [
            "{1:.3f} ({0:.3f})".format(*found.means[score].mean(axis=0))
            for score in ("nll", "coverage", "ece")
        ]
        rows.append([title, str(sum(found.splits)), *wins, *beside])
    header = ["variant", "splits", "worse in NLL", "worse in CRPS", "NLL", "coverage", "ECE"]
    caption = "Variants beside the estimator, whose means are in brackets"
    return [Table(caption, header, rows)] if rows else []


def times_tables(store: Store) -> list[Block]:
    """Processor seconds of a first and a second fit, where they were measured."""
    cells = load(store, "tables-times")
    names = [name for name in SPLITS if any(key[0] == name for key in cells)]
    if not names:
        return []
    rows = [[name, *(_seconds(cells.get((name, model))) for model in MODELS)] for name in names]
    caption = "Processor seconds of a second fit (of a first one, with compilation)"
    return [Table(caption, ["set", *MODELS.values()], rows)]


def published_tables(found: Comparison) -> list[Block]:
    """Printed NLLs beside ours."""
    ours = _ours(found)
    rows = [
        [name, str(splits), *(f"{value:.2f}" for value in (means[ours], *PUBLISHED[name]))]
        for name, splits, means in zip(
            found.datasets, found.splits, found.means["nll"], strict=True
        )
        if name in PUBLISHED and name in UCI
    ]
    caption = "NLL beside figures printed for TabPFN and TabResFlow, whose splits may be others"
    header = ["set", "splits", "Fisher8Regressor", "TabPFN", "TabResFlow"]
    return [Table(caption, header, rows)] if rows else []


def _what_is_compared(found: Comparison) -> str:
    least, most = min(found.splits), max(found.splits)
    return (
        f"{len(found.datasets)} of {len(SPLITS)} sets, {least} to {most} splits each; every figure "
        "is a mean over the splits that all its models have. NLL has its constant. Architecture, "
        "methods, steps, batch size, patience, held-out part and calibration were chosen by "
        f"scores on the first three splits of {', '.join(CHOSEN_ON)}; the other sets were only "
        "reported. The first damping and radius had been found on all eight UCI sets before."
    )


def _ours(found: Comparison) -> int:
    return found.models.index(OURS)


def _wins(found: Comparison, score: str, baseline: str) -> str:
    column = found.means[score][:, found.models.index(baseline)]
    if baseline == OURS or np.isnan(column).any():
        return ""
    number = len(found.datasets)
    better, worse = (found.wins(score, *pair) for pair in ((OURS, baseline), (baseline, OURS)))
    equal = number - better - worse
    return f"{better} of {number}" + (f", {equal} equal" if equal else "")


def _marked(name: str) -> str:
    return name if name in CHOSEN_ON else f"{name} *"


def _digits(means: np.ndarray) -> str:
    """Enough digits to tell the models apart."""
    return ".2f" if np.nanmin(np.abs(means)) >= 1 else ".3g"


def _bold(value: float, best: float, digits: str) -> str:
    if np.isnan(value):
        return ""
    text = format(value, digits)
    return f"**{text}**" if text == format(best, digits) else text


def _seconds(result: Mapping[str, Any] | None) -> str:
    return "" if result is None else f"{result['warm']:.1f} ({result['cold']:.1f})"
