"""The panels of two scores: ellipses are covariances, no run is lost."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from benchmarks.experiments.uci.panels import plot_pareto_panels

RUNS = np.random.default_rng(1).normal(size=(12, 2)) @ np.array([[1.0, 0.5], [0.0, 0.2]])


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def draw(panels, upper=(9.0, 9.0)):
    axes = plt.subplots(1, len(panels), squeeze=False, layout="constrained")[1].ravel()
    plot_pareto_panels(panels, axes, names=("RMSE", "NLL"), upper=upper)
    axes[0].figure.canvas.draw()
    return axes


def test_the_ellipse_is_one_standard_deviation_of_the_covariance():
    ax = draw({"a": {"A": RUNS}})[0]
    # On the ellipse the Mahalanobis distance from the mean is 1 in every direction.
    corners = ax.patches[0].get_path().vertices
    edge = ax.patches[0].get_patch_transform().transform(corners[:-1:3])
    gap = edge - RUNS.mean(axis=0)
    distance = np.einsum("ni,ij,nj->n", gap, np.linalg.inv(np.cov(RUNS.T)), gap)
    np.testing.assert_allclose(distance, 1, rtol=1e-6)
    np.testing.assert_allclose(ax.lines[0].get_xydata()[0], RUNS.mean(axis=0))


def test_runs_beyond_the_edge_are_drawn_there_and_counted():
    runs = np.array([[1.0, 1.0], [np.nan, 1.0], [2.0, 9.0], [2.0, 3.0], [np.inf, np.inf]])
    left, right = draw({"a": {"A": runs, "B": RUNS[:2]}, "b": {"A": RUNS}}, upper=(4.0, 5.0))
    moved = np.array([[4.0, 1.0], [2.0, 5.0], [4.0, 5.0]])
    np.testing.assert_array_equal(left.collections[1].get_offsets(), moved)
    star = np.mean([[1.0, 1.0], [2.0, 3.0], *moved], axis=0)
    np.testing.assert_allclose(left.lines[0].get_xydata()[0], star)
    assert len(left.patches) == 1  # of all five runs of A; B has two
    assert left.texts[0].get_text() == "A, 3 of 5 at the edge"
    assert right.texts[0].get_text() == ""
    assert [text.get_text() for text in left.figure.legends[0].get_texts()] == ["A", "B"]
