"""What tables of means over seeds share: published figures, groups of seeds, texts of scores."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Cell = tuple[dict[str, Any], dict[str, Any]]  # spec and result

_PAPER = Path(__file__).parents[1] / "paper" / "tables.json"


def published(experiment: str) -> list[dict[str, Any]]:
    """The rows of the paper for one experiment."""
    return json.loads(_PAPER.read_text())[experiment]


def group_by_seed(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Groups cells that differ in nothing but the seed, each in the order of its seeds."""
    groups: dict[str, list[Cell]] = {}
    for spec, result in cells:
        key = json.dumps({**spec, "seed": None}, sort_keys=True)
        groups.setdefault(key, []).append((spec, result))
    return [sorted(members, key=lambda cell: cell[0]["seed"]) for members in groups.values()]


def number(value: float | None) -> float:
    """A stored score; the store has None for what is not a number."""
    return float("nan") if value is None else value


def score_texts(
    mean: Sequence[float],
    std: Sequence[float] | None,
    paper: Sequence[float] | None,
    digits: Sequence[int],
) -> list[str]:
    """Each mean, its spread if there is one, and the published value in brackets."""
    texts = []
    for index, places in enumerate(digits):
        text = f"{mean[index]:.{places}f}"
        if std is not None:
            text += f" ± {std[index]:.{places}f}"
        if paper is not None:
            text += f" ({paper[index]:.{places}f})"
        texts.append(text)
    return texts
