"""The weak-lensing table from stored results, in the form of the published one.

`table_rows(store)` gives one record per method and set of maps, `section(store)` what the report
shows. Simulated maps never share a table with the challenge's, and only the latter stand beside
published values.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.experiments.weak_lensing.data import noise_std
from benchmarks.experiments.weak_lensing.plan import LABELS, PRESETS
from benchmarks.experiments.weak_lensing.simulator import draw_map, draw_mask
from benchmarks.machinery.document import Block, Figure, Paragraph, Section, Table
from benchmarks.machinery.figures import to_png
from benchmarks.machinery.seed_tables import Cell, group_by_seed, number, published, score_texts
from benchmarks.machinery.seeds import generator
from benchmarks.machinery.store import Store

METRICS = (
    "score",
    "rmse_omega_m",
    "rmse_s8",
    "nll_omega_m",
    "nll_s8",
    "coverage68_omega_m",
    "coverage68_s8",
)
HEADINGS = ("score", "RMSE Ωm", "RMSE S8", "NLL Ωm", "NLL S8", "68 % Ωm", "68 % S8")
DIGITS = (3, 4, 4, 3, 3, 3, 3)


# Of the picture of maps: Omega_m and S8.
_SHOWN = ((0.15, 0.7), (0.3, 0.8), (0.45, 0.93))
_MAPS = (
    "Simulated convergence maps of three cosmologies from the same random numbers, and below what "
    "a network sees: pixels of the survey with the noise of 1000 galaxies per square arcminute."
)


class Row(NamedTuple):
    """A method on one set of maps: seeds, means and standard deviations."""

    method: str
    label: str
    maps: str
    size: str
    galaxies: float
    epochs: int
    learning_rate: float
    seeds: tuple[int, ...]
    mean: tuple[float, ...]  # in the order of `METRICS`
    std: tuple[float, ...]
    paper: tuple[float, ...] | None


def table_rows(store: Store) -> list[Row]:
    """Rows from all stored trainings, grouped by maps, in the order of the published table."""
    return collect((cell["spec"], cell["result"]) for cell in store.cells("weak_lensing"))


def collect(results: Iterable[Cell]) -> list[Row]:
    """Groups (spec, result) pairs that differ in nothing but the seed."""
    paper = _published()
    rows = [_row(members, paper) for members in group_by_seed(results)]
    order = list(LABELS)
    return sorted(rows, key=lambda r: (r.maps, r.size, r.galaxies, order.index(r.method), str(r)))


def _row(members: Sequence[Cell], paper) -> Row:
    spec = members[0][0]
    values = np.array([[number(result[m]) for m in METRICS] for _, result in members])
    return Row(
        spec["method"],
        LABELS[spec["method"]],
        spec["maps"],
        spec["size"],
        spec["galaxies"],
        spec["epochs"],
        spec["learning_rate"],
        tuple(member["seed"] for member, _ in members),
        tuple(values.mean(axis=0)),
        tuple(values.std(axis=0)),
        paper.get(spec["method"]) if spec["maps"] == "challenge" else None,
    )


def _published() -> dict[str, tuple[float, ...]]:
    return {
        row["method"]: tuple(row[metric]["mean"] for metric in METRICS)
        for row in published("weak_lensing")
    }


def _cells(row: Row) -> list[str]:
    std = row.std if len(row.seeds) > 1 else None
    return score_texts(row.mean, std, row.paper, DIGITS)


def _title(row: Row) -> str:
    kind = "Simulated maps" if row.maps == "simulated" else "The challenge's maps"
    return (
        f"{kind}, {row.size} (height, width, cosmologies, realisations), {row.galaxies:g} galaxies "
        f"per square arcminute, at most {row.epochs} epochs from rate {row.learning_rate:g}"
    )


def section(store: Store) -> Section | None:
    """One table per set of maps and budget, or None without results."""
    rows = table_rows(store)
    if not rows:
        return None
    blocks: list[Block] = [Paragraph(_how_to_read())]
    blocks += tables(rows)
    caption = "Validation score over training, one line per seed."
    blocks.append(Figure("weak-lensing", lambda: to_png(figure(store)), caption))
    blocks.append(Figure("weak-lensing-maps", lambda: to_png(maps_figure()), _MAPS))
    return Section("Weak lensing", blocks)


def tables(rows: Sequence[Row]) -> list[Table]:
    """One table per set of maps and budget."""
    header = ["method", *HEADINGS, "seeds"]
    return [
        Table(
            title,
            header,
            [[r.label, *_cells(r), str(len(r.seeds))] for r in rows if _title(r) == title],
        )
        for title in dict.fromkeys(_title(row) for row in rows)
    ]


def _how_to_read() -> str:
    return (
        "Mean and deviation over seeds. The score is the challenge's, larger is better; RMSE in "
        "physical units, NLL with its constant, and the share of test maps inside one predicted "
        "standard deviation (68 % if honest). **Simulated** maps take the place of the "
        "challenge's: their scores compare with each other only."
    )


def maps_figure() -> Any:
    """Simulated convergence maps of three cosmologies, and what a network sees of them."""
    import matplotlib.pyplot as plt

    setting = PRESETS["quick"].simulation._replace(height=96, width=96)
    mask, noise = draw_mask(setting), noise_std(PRESETS["quick"].galaxies)
    drawing, axes = plt.subplots(2, len(_SHOWN), figsize=(8, 5.4), layout="constrained")
    for column, (omega_m, s8) in enumerate(_SHOWN):
        rng = generator("weak_lensing", "picture")  # the same sky for all
        kappa = draw_map(np.array([omega_m, s8, 7.8, 0.013, 0.0]), mask.shape, rng)
        seen = np.where(mask, kappa + noise * rng.normal(size=mask.shape), np.nan)
        for axis, image in zip(axes[:, column], (kappa, seen), strict=True):
            drawn = axis.imshow(
                image, vmin=-0.03, vmax=0.03, cmap="RdBu_r", interpolation="nearest"
            )
            axis.set(xticks=[], yticks=[])
        axes[0, column].set_title(f"Ωm {omega_m:g}, S8 {s8:g}")
    axes[0, 0].set_ylabel("convergence")
    axes[1, 0].set_ylabel("mask and noise")
    drawing.colorbar(drawn, ax=axes)
    return drawing


def figure(store: Store) -> Any:
    """Validation scores over training, one line per training; None without results."""
    import matplotlib.pyplot as plt

    cells = list(store.cells("weak_lensing"))
    if not cells:
        return None
    drawing, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    order, named = list(LABELS), set()
    for cell in cells:
        method = cell["spec"]["method"]
        history = [[number(value) for value in point] for point in cell["result"]["history"]]
        score = np.array(history)[:, 1]
        label = None if method in named else LABELS[method]
        named.add(method)
        axis.plot(np.arange(1, len(score) + 1), score, color=f"C{order.index(method)}", label=label)
    axis.set_xlabel("epoch")
    axis.set_ylabel("validation score")
    axis.legend(frameon=False)
    return drawing
