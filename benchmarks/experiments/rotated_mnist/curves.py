"""Pictures of the rotated digits over training, drawn from the stored looks at each of them."""

from typing import Any

import numpy as np

from benchmarks.experiments.rotated_mnist.data import REGIMES
from benchmarks.experiments.rotated_mnist.plan import FULL_EPOCHS, SETTINGS
from benchmarks.machinery.seed_tables import number
from benchmarks.machinery.store import Store

TITLES = ("Noise independent of the digit", "Noise that depends on the digit")
SCORES = ("RMSE, degrees", "NLL")

Cell = dict[str, Any]


def trained_with_features(store: Store, images: str = "mnist") -> list[Cell]:
    """The trainings that recorded feature accuracy on the way."""
    return [cell for cell in _with("features", store, images) if cell["spec"]["epochs"]]


def features_figure(store: Store, images: str = "mnist") -> Any:
    """Feature accuracy over training: a column for each regime and length."""
    import matplotlib.pyplot as plt

    cells, trained = _with("features", store, images), trained_with_features(store, images)
    panels = sorted(
        {(c["spec"]["regime"], c["spec"]["epochs"]) for c in trained},
        key=lambda panel: (REGIMES.index(panel[0]), panel[1]),
    )
    drawing, axes = plt.subplots(
        1,
        len(panels),
        figsize=(4 * len(panels), 4.6),
        squeeze=False,
        sharey=True,
        layout="constrained",
    )
    for axis, (regime, epochs) in zip(axes[0], panels, strict=True):
        here = [
            c for c in trained if (c["spec"]["regime"], c["spec"]["epochs"]) == (regime, epochs)
        ]
        for cell in here:
            axis.plot(_history(cell)["epoch"], _features(cell), **_line(cell), lw=1.3)
        for cell in cells:
            if cell["spec"]["epochs"] == 0 and cell["spec"]["regime"] == regime:
                axis.axhline(_features(cell)[0], color="0.4", ls=":", lw=1.3)
        axis.set_title(f"{TITLES[REGIMES.index(regime)]}, {epochs} epochs", fontsize="medium")
        axis.set_xlabel("epoch")
        axis.set_ylim(0, 100)
    axes[0, 0].set_ylabel("features, %")
    lines = _legend(trained)
    if any(cell["spec"]["epochs"] == 0 for cell in cells):
        lines.append(plt.Line2D([], [], color="0.4", ls=":", label="Untrained network"))
    drawing.legend(handles=lines, loc="outside lower center", ncols=4, frameon=False)
    return drawing


def figure(store: Store, images: str = "mnist") -> Any:
    """Test RMSE and NLL over training, one line per method and regime; None without results."""
    import matplotlib.pyplot as plt

    cells = [cell for cell in _with("epoch", store, images) if cell["spec"]["epochs"]]
    if not cells:
        return None
    drawing, axes = plt.subplots(
        2, len(REGIMES), figsize=(9, 6), squeeze=False, sharex=True, layout="constrained"
    )
    for cell in cells:
        share, scores = _curve(cell)
        column = REGIMES.index(cell["spec"]["regime"])
        for index, heading in enumerate(SCORES):
            axis = axes[index, column]
            axis.plot(share, scores[:, index], **_line(cell), lw=1)
            axis.set_ylabel(heading)
        axes[0, column].set_title(TITLES[column])
        axes[1, column].set_xlabel("share of the training")
    for column, regime in enumerate(REGIMES):
        curves = [_curve(cell)[1] for cell in cells if cell["spec"]["regime"] == regime]
        for index, axis in enumerate(axes[:, column]):
            _bound_axis(axis, [curve[:, index] for curve in curves])
    drawing.legend(handles=_legend(cells), loc="outside lower center", ncols=4, frameon=False)
    return drawing


def _with(record: str, store: Store, images: str) -> list[Cell]:
    """The cells whose history has such a record."""
    return [cell for cell in store.cells(f"rotated_mnist/{images}") if _history(cell).get(record)]


def _history(cell: Cell) -> dict[str, Any]:
    return cell["result"].get("history", {})


def _features(cell: Cell) -> np.ndarray:
    return np.array([number(value) for value in _history(cell)["features"]])


def _line(cell: Cell) -> dict[str, Any]:
    import matplotlib.pyplot as plt

    spec = cell["spec"]
    style = "-" if spec["epochs"] < FULL_EPOCHS else "--"
    if spec["method"] == "fisher8":  # on top: others nearly coincide with it
        return {"color": "black", "ls": style, "zorder": 3}
    index = list(SETTINGS).index(spec["method"])
    return {"color": plt.colormaps["tab20"](index % 20), "ls": style}


def _legend(cells: list[Cell]) -> list[Any]:
    import matplotlib.pyplot as plt

    used = {cell["spec"]["method"]: _line(cell)["color"] for cell in cells}
    return [
        plt.Line2D([], [], color=used[method], label=setting.label)
        for method, setting in SETTINGS.items()
        if method in used
    ]


def _bound_axis(axis: Any, curves: list[np.ndarray]) -> None:
    """From the lowest score up to where nine tenths of the curves begin."""
    lowest = min((np.nanmin(curve) for curve in curves), default=0.0)
    highest = np.nanquantile([curve[0] for curve in curves], 0.9) if curves else 0.0
    if highest > lowest:
        axis.set_ylim(lowest - 0.05 * (highest - lowest), highest)


def _curve(cell: Cell) -> tuple[np.ndarray, np.ndarray]:
    """The share of the training at every look, and the scores there."""
    history = _history(cell)
    scores = np.array([[number(value) for value in point] for point in history["scores"]])
    return np.array(history["epoch"]) / cell["spec"]["epochs"], scores
