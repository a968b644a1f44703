"""The section on the forecaster: a table for each network and kind of noise, and one picture."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.experiments.forecaster.plan import (
    DRAWN,
    LOOKS,
    METHODS,
    NETWORKS,
    NOISES,
    SEEDS,
    STEPS,
)
from benchmarks.machinery.document import Block, Figure, Paragraph, Section, Table
from benchmarks.machinery.learning_curves import Curve, draw
from benchmarks.machinery.store import Store

_WORDS = (
    f"Series with gaps and padding, a Gaussian for every next value, {STEPS} steps, {SEEDS} seeds. "
    "Adam with a cosine to 0, at the learning rate with the best NLL of held-out series, or the KL "
    "radius. Scores of new series after the last step, mean over seeds (smallest to largest)."
)


class Chosen(NamedTuple):
    """A method at the rate that held-out series choose."""

    rate: float | None
    scores: dict[str, np.ndarray]
    """One value a seed."""
    curve: np.ndarray
    """Test NLL, (seeds, evaluations)."""
    seconds: float


def section(store: Store) -> Section | None:
    """Everything that is stored; None without results."""
    results = {
        (network, noise): store.read(f"forecaster/{network}-{noise}")
        for network in NETWORKS
        for noise in NOISES
    }
    found = {
        key: {name: choose(runs, _rates(key[0], name)) for name, runs in result["runs"].items()}
        for key, result in results.items()
        if result is not None
    }
    if not found:
        return None
    blocks: list[Block] = [Paragraph(_WORDS), *(table(*key, one) for key, one in found.items())]
    caption = (
        "Forecaster: NLL of new series over training, at the rate chosen, median over seeds; on "
        "the right the scores of the table, mean and range"
    )
    blocks.append(Figure("forecaster", functools.partial(picture, found), caption))
    return Section("Forecasts", blocks)


def _rates(network: str, method: str) -> tuple[float | None, ...]:
    return NETWORKS[network].rates if METHODS[method].has_rate else (None,)


def choose(runs: dict[str, Any], rates: Sequence[float | None]) -> Chosen:
    """The rate with the best validation NLL after the last step, mean over seeds."""
    final = _finite(runs["validation_nll"])[:, :, -1].mean(axis=0)
    best = int(final.argmin())
    scores = {name: _finite(runs[f"test_{name}"])[:, best, -1] for name in ("nll", "crps", "rmse")}
    curve = _finite(runs["test_nll"])[:, best]
    return Chosen(rates[best], scores, curve, runs["seconds"])


def _finite(values: Any) -> np.ndarray:
    """A score that was not finite is the worst there is."""
    array = np.array(values, float)
    return np.where(np.isfinite(array), array, np.inf)


def table(network: str, noise: str, found: dict[str, Chosen]) -> Table:
    """A row for each method; the best of each score in bold."""
    best = {
        name: min(one.scores[name].mean() for one in found.values())
        for name in ("nll", "crps", "rmse")
    }
    rows = [
        [
            METHODS[name].label,
            "none" if one.rate is None else f"{one.rate:g}",
            f"{one.seconds:.1f}",
            *(_text(one.scores[score], best[score]) for score in best),
        ]
        for name, one in found.items()
    ]
    minutes = sum(one.seconds for one in found.values()) / 60
    caption = f"{NETWORKS[network].label}, {noise} noise: {minutes:.1f} minutes of one core"
    return Table(caption, ["method", "rate", "seconds", "NLL", "CRPS", "RMSE"], rows)


def _text(values: np.ndarray, best: float) -> str:
    text = f"{values.mean():.3f} ({values.min():.3f} to {values.max():.3f})"
    return f"**{text}**" if values.mean() == best else text


def picture(found: dict[tuple[str, str], dict[str, Chosen]]) -> bytes:
    """A panel for each table."""
    share = np.arange(1, LOOKS + 1) / LOOKS
    panels = {
        f"{NETWORKS[network].label}, {noise} noise": {
            METHODS[name].label: Curve(share, one.curve, one.scores["nll"])
            for name, one in by_method.items()
            if name in DRAWN
        }
        for (network, noise), by_method in found.items()
    }
    labels = [METHODS[name].label for name in DRAWN]
    return draw(panels, labels, "NLL of new series", {labels[0], labels[2]})
