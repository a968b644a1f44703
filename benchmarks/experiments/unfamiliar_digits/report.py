"""The study of unfamiliar digits: one table for each kind of images, one picture."""

import functools
from typing import Any

import numpy as np

from benchmarks.experiments.unfamiliar_digits.plan import IMAGES, SCORES, SEEDS, UNFAMILIAR
from benchmarks.machinery.document import Block, Figure, Paragraph, Section, Table
from benchmarks.machinery.figures import to_png
from benchmarks.machinery.store import Store

_TITLES = {"mnist": "MNIST, 14 x 14 pixels", "digits": "the digits of scikit-learn, 8 x 8 pixels"}
Found = dict[str, list[dict[str, Any]]]


def section(store: Store) -> Section | None:
    """Everything that is stored; None without results."""
    read = {
        name: [store.read(f"unfamiliar_digits/{name}-{seed}") for seed in SEEDS] for name in IMAGES
    }
    found: Found = {name: [r for r in results if r] for name, results in read.items()}
    found = {name: results for name, results in found.items() if results}
    if not found:
        return None
    words = (
        "Networks learn the angle of digits 0 to 5 up to 45 degrees. How well a score tells other "
        "images from new ones of that kind: area under the ROC curve, mean over seeds (smallest)."
    )
    blocks: list[Block] = [
        Paragraph(words),
        Figure("unfamiliar_digits", functools.partial(draw, found), "AUROC by kind of image"),
        *(table(name, results) for name, results in found.items()),
    ]
    return Section("Unfamiliar digits", blocks)


def table(name: str, results: list[dict[str, Any]]) -> Table:
    """A row for each score."""
    rows = []
    for score, title in SCORES.items():
        values = [[r["auroc"][kind][score] for r in results] for kind in UNFAMILIAR]
        rows.append([title, *(f"{np.mean(v):.3f} ({min(v):.3f})" for v in values)])
    caption = f"{_TITLES[name]}, {len(results)} seeds"
    return Table(caption, ["score", *UNFAMILIAR.values()], rows)


def draw(found: Found) -> bytes:
    """A panel for each kind of images, a group of bars for what is unfamiliar."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, len(found), figsize=(9, 3.6), sharey=True, layout="constrained", squeeze=False
    )
    width = 0.8 / len(SCORES)
    for ax, (name, results) in zip(axes[0], found.items(), strict=True):
        for index, (score, title) in enumerate(SCORES.items()):
            heights = [np.mean([r["auroc"][kind][score] for r in results]) for kind in UNFAMILIAR]
            places = np.arange(len(UNFAMILIAR)) + (index - (len(SCORES) - 1) / 2) * width
            ax.bar(places, heights, width, color=f"C{index}", label=title)
        labels = [kind.replace("_", "\n") for kind in UNFAMILIAR]
        ax.set_xticks(range(len(UNFAMILIAR)), labels)
        ax.axhline(0.5, color="0.3", linewidth=1)
        ax.set(title=_TITLES[name], ylim=(0, 1.02))
    axes[0, 0].set_ylabel("AUROC")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return to_png(figure)
