"""The study of gaps: medians and single sets."""

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from benchmarks.experiments.gaps.plan import GAPS, GROUPS, KINDS, MODELS, UNSEEN
from benchmarks.machinery.document import Block, Figure, Paragraph, Section, Table
from benchmarks.machinery.figures import to_png
from benchmarks.machinery.store import Store

Scores = dict[tuple[str, str, str], list[Mapping[str, Any]]]

# What the costs of these groups are called.
COSTS = {"networks": "", "last_layer": "last layer: "}
_COST_COLUMNS = ("training", "posterior", "posterior over training")

# Without settings of their own for a set.
COMPLETE = ("estimator", "deep_ensemble", "gp", "hgb", "ngboost")

_NAMES = {"rmse": "RMSE", "nll": "NLL", "crps": "CRPS", "coverage": "coverage of 90 % intervals"}


def section(store: Store) -> Section | None:
    """Everything that is stored; None without results."""
    scores = load(store)
    if not scores:
        return None
    blocks: list[Block] = [
        Paragraph(
            "Rows sorted by one feature, the middle third held out (gap) or the last sixth "
            "(edge), and the first published splits (random). Networks of two layers of 50; "
            "those that stop early hold out a fifth of the rows. Means over the splits that all "
            "models of a set have."
        )
    ]
    for kind in KINDS:
        if any(key[0] == kind for key in scores):
            blocks += [summary(scores, kind), summary(scores, kind, UNSEEN)]
            blocks += [summary(_without(scores, "gp"), kind)] if kind == "gap" else []
            blocks += [table(scores, kind, score) for score in _NAMES]
    last = (estimator_table(scores), against_one(scores), costs_table(store))
    blocks += [found for found in last if found.rows]
    if common_splits(scores, "gap")[1]:
        caption = "How far behind the best model each is, gap splits in order"
        blocks.insert(1, Figure("gaps", functools.partial(draw, scores), caption))
    return Section("Gaps", blocks)


def load(store: Store) -> Scores:
    """The scores of every split by kind, set and model."""
    found: Scores = {}
    for body in store.cells("gaps"):
        spec = body["spec"]
        for model in GROUPS[spec["group"]]:
            rows = [split["scores"][model] for split in body["result"]["splits"]]
            found[spec["kind"], spec["dataset"], model] = rows
    return found


def values(scores: Scores, kind: str, model: str, score: str) -> dict[tuple[str, int], float]:
    """One score of one model on every split; infinite where it was not finite."""
    return {
        (name, number): float("inf") if row[score] is None else row[score]
        for name in GAPS
        for number, row in enumerate(scores.get((kind, name, model), []))
    }


def common_splits(scores: Scores, kind: str) -> tuple[dict[str, dict], list[tuple[str, int]]]:
    """The NLL of every model on every split, and the splits that all models have."""
    nll = {model: values(scores, kind, model, "nll") for model in MODELS}
    present = {model: found for model, found in nll.items() if found}
    shared = [set(found) for found in present.values()]
    return present, sorted(set.intersection(*shared)) if shared else []


def draw(scores: Scores) -> bytes:
    """Distances to the best model in nats, sorted, one line for each model."""
    import matplotlib.pyplot as plt

    present, common = common_splits(scores, "gap")
    best = np.min([[found[split] for split in common] for found in present.values()], 0)
    figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
    for index, (model, found) in enumerate(present.items()):
        behind = np.sort([found[split] for split in common] - best)
        solid = "posterior" in model or model == "estimator"
        style = "-" if solid else "--" if model in GROUPS["networks"] else ":"
        ax.plot(
            np.arange(1, len(behind) + 1), behind, style, color=f"C{index}", label=MODELS[model]
        )
    ax.set_yscale("symlog", linthresh=1)
    ax.set(xlabel="splits, the best first", ylabel="nats behind the best model")
    ax.legend(fontsize="small")
    return to_png(figure)


def summary(scores: Scores, kind: str, sets: Iterable[str] = tuple(GAPS)) -> Table:
    """Medians over the splits that all models have, and how far behind the best of them."""
    present, everywhere = common_splits(scores, kind)
    common = [split for split in everywhere if split[0] in sets]
    best = {split: min(found[split] for found in present.values()) for split in common}
    rows = []
    for model, found in present.items():
        if not common:
            continue
        behind = [found[split] - best[split] for split in common]
        coverage = values(scores, kind, model, "coverage")
        cells = [np.median([found[split] for split in common]), np.median(behind), np.max(behind)]
        covered = np.mean([coverage[split] for split in common])
        wins = str(sum(b == 0 for b in behind))
        rows.append([MODELS[model], *(f"{c:.2f}" for c in cells), wins, f"{covered:.2f}"])
    header = ["model", "median NLL", "behind the best, median", "at most", "best on"]
    names = ", ".join(name for name in GAPS if any(name == split[0] for split in common))
    unseen = ", on which no default was chosen" if sets is UNSEEN else ""
    caption = (
        f"The {len(common)} {kind} splits that all these models have{unseen}: {names or 'none'}"
    )
    return Table(caption, [*header, "coverage of 90 % intervals"], rows)


def estimator_table(scores: Scores) -> Table:
    """The estimator beside models that need no setting either: medians over a set's gap splits."""
    rows = []
    for name in GAPS:
        found = {m: scores["gap", name, m] for m in COMPLETE if ("gap", name, m) in scores}
        if "estimator" not in found or len(found) < 2:
            continue
        number = min(map(len, found.values()))
        nll = {m: _median(splits[:number], "nll") for m, splits in found.items()}
        behind = nll["estimator"] - min(nll[m] for m in nll if m != "estimator")
        covered = _median(found["estimator"][:number], "coverage")
        cells = [f"{nll[m]:.2f}" if m in nll else "" for m in COMPLETE]
        rows.append([name, str(number), *cells, f"{behind:.2f}", f"{covered:.2f}"])
    header = ["set", "splits", *(MODELS[m] for m in COMPLETE)]
    header += ["estimator behind the best other", "its coverage of 90 % intervals"]
    return Table("Medians over the gap splits of a set: NLL, and coverage", header, rows)


def _median(splits: Iterable[Mapping[str, Any]], score: str) -> float:
    return float(np.median([np.inf if row[score] is None else row[score] for row in splits]))


def against_one(scores: Scores) -> Table:
    """On how many sets a posterior is not worse than the network that stopped early."""
    rows = []
    for model in ("one_posterior", "moved", "last_layer", "evidence"):
        pairs = [
            [np.mean([row["nll"] for row in scores["random", name, m]]) for m in (model, "one")]
            for name in GAPS
            if {("random", name, model), ("random", name, "one")} <= {*scores}
        ]
        if pairs:
            not_above = f"{sum(own <= one for own, one in pairs)} of {len(pairs)}"
            rows.append([MODELS[model], not_above])
    caption = "Sets on which the mean NLL of random splits is not above that of one network"
    return Table(caption, ["model", "sets"], rows)


def costs_table(store: Store) -> Table:
    """Medians over the random splits of a set, of two groups of models."""
    rows = []
    for name in GAPS:
        cells = []
        for group in COSTS:
            splits = (store.read(f"gaps/random-{name}-{group}") or {"splits": []})["splits"]
            cells += _shares([split["costs"] for split in splits if "costs" in split])
        if any(cells):
            rows.append([name, *cells])
    header = [f"{title}{what}" for title in COSTS.values() for what in _COST_COLUMNS]
    return Table("Processor seconds of a training and its posterior", ["set", *header], rows)


def _shares(found: list[Mapping[str, float]]) -> list[str]:
    if not found:
        return [""] * len(_COST_COLUMNS)
    training, posterior = (
        np.median([c[part] for c in found]) for part in ("training", "posterior")
    )
    share = np.median([c["posterior"] / c["training"] for c in found])
    return [f"{training:.3f}", f"{posterior:.3f}", f"{100 * share:.0f} %"]


def _without(scores: Scores, model: str) -> Scores:
    """The Gaussian process has no large sets, so that they are not among the common splits."""
    return {key: rows for key, rows in scores.items() if key[2] != model}


def table(scores: Scores, kind: str, score: str) -> Table:
    """Means over the splits of every set that all of its models have."""
    rows = []
    for name in GAPS:
        present = {m: scores[kind, name, m] for m in MODELS if (kind, name, m) in scores}
        if not present:
            continue
        number = min(map(len, present.values()))
        cells = []
        for model in MODELS:
            found = [row[score] for row in present.get(model, [])[:number]]
            is_bad = any(value is None for value in found)
            cells.append("" if not found else "inf" if is_bad else f"{np.mean(found):.3g}")
        rows.append([name, str(number), *cells])
    caption = f"{_NAMES[score]}, {kind} splits"
    return Table(caption, ["set", "splits", *MODELS.values()], rows)
