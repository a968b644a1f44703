"""The README's table says what the committed results say."""

import importlib.metadata
import json
import pathlib
import re

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[1]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "README.md").read_text().splitlines()
    if line.count("|") == 7 and " / " in line
]
PAPER = json.loads((ROOT / "benchmarks/paper/tables.json").read_text())["uci"]


def numbers(text: str) -> list[float]:
    return [float(x) for x in re.findall(r"-?\d+\.\d+", text)]


def ours(cell: str) -> list[float]:
    result = json.loads((ROOT / f"benchmarks/results/{cell}.json").read_text())["result"]
    return [np.mean(result[metric]) for metric in ("rmse", "nll")]


def published(dataset: str, **wanted: object) -> list[dict]:
    wanted = {"optimizer": "sgd", "dataset": dataset, **wanted}
    return [cell for cell in PAPER if all(cell[key] == wanted[key] for key in wanted)]


def test_there_are_eight_rows():
    assert len(ROWS) == 8


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_row(row):
    dataset, nll, fisher8, best, radius, network = row
    for method, text in (("nll", nll), ("fisher8", fisher8)):
        (paper,) = published(dataset, method=method, learning_rate=0.005)
        expected = ours(f"uci/sgd-0.005-{dataset}-{method}")
        expected += [paper[metric]["mean"] for metric in ("rmse", "nll")]
        np.testing.assert_allclose(numbers(text), expected, atol=0.00501)
    lowest = [
        min(c[metric]["mean"] for c in published(dataset) if c[metric] and c[metric]["mean"])
        for metric in ("rmse", "nll")
    ]
    np.testing.assert_allclose(numbers(best), lowest, atol=0.00501)
    np.testing.assert_allclose(numbers(radius), ours(f"radius/steps-last-{dataset}"), atol=0.00501)
    np.testing.assert_allclose(numbers(network), ours(f"curvature/steps-{dataset}"), atol=0.00501)
    # Marked: the lowest of the row, in both figures.
    assert all(
        a <= min(b, c) for a, b, c in zip(*map(numbers, (network, radius, best)), strict=True)
    )
    assert network.startswith("**")


def test_it_stays_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_citation_names_this_version():
    version = importlib.metadata.version("fisher8_jax")
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
