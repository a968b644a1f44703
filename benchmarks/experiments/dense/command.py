"""Disparity of every pixel of a stereo pair: Fisher8 beside the plain NLL and beta-NLL.

One small U-Net per method on the stereo pair that ships with scikit-image, split by blocks of
pixels. Fisher8 takes its norms over the batch and both axes of space. Every method trains with Adam
and a cosine decay at two learning rates, of which validation NLL picks one; Fisher8 is also run
with the ready recipe, as it comes or at the best of several radii and with second moments. Reported
on the test blocks: RMSE in pixels of the full image, NLL in nats per pixel, ECE. The picture shows
error and predicted sigma; it holds no part of the photographs.
"""

import argparse
import pathlib
from typing import Any

import numpy as np

from benchmarks.experiments.dense.data import BLOCK, Scene, load_scene
from benchmarks.experiments.dense.jobs import CHOSEN, run_method
from benchmarks.experiments.dense.report import section
from benchmarks.machinery.console import console, progress
from benchmarks.machinery.document import print_blocks
from benchmarks.machinery.provenance import machine, provenance
from benchmarks.machinery.store import DEFAULT_RESULTS, Store
from fisher8_jax import Gaussian

DEFAULT_RADII = [0.3]  # the recipe's own


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m benchmarks dense`."""
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--width", type=int, default=8, help="channels at the finest scale")
    parser.add_argument("--radii", type=float, nargs="+", default=DEFAULT_RADII)
    parser.add_argument("--second-moment", type=float, default=None, help="of the recipe")
    parser.add_argument("--results", type=pathlib.Path, default=DEFAULT_RESULTS)
    parser.add_argument(
        "--picture", type=pathlib.Path, default=pathlib.Path("dense.png"), help="where to save it"
    )


def run(args: argparse.Namespace) -> int:
    """Trains all methods, prints the table, stores it and draws the picture."""
    scene = load_scene(args.seed)
    rows, predictions = [], {}
    with progress("Stereo pair", len(CHOSEN)) as advance:
        for method in CHOSEN:
            row, predictions[method] = run_method(scene, method, args)
            rows.append(row)
            advance(1)
    _store(rows, args)
    found = section(Store(args.results))
    print_blocks(found.blocks if found else [])
    _draw(scene, predictions, rows, args.picture)
    return 0


def _store(rows: list[dict[str, Any]], args: argparse.Namespace) -> None:
    spec: dict[str, Any] = {"steps": args.steps, "seed": args.seed, "width": args.width}
    command = "python -m benchmarks dense " + " ".join(f"--{k} {v}" for k, v in spec.items())
    if args.radii != DEFAULT_RADII or args.second_moment is not None:
        spec |= {"radii": args.radii, "second_moment": args.second_moment}
        command += " --radii " + " ".join(f"{radius:g}" for radius in args.radii)
        if args.second_moment is not None:
            command += f" --second-moment {args.second_moment:g}"
    result = {"rows": rows, "machine": machine()}
    Store(args.results).write(
        "dense/stereo", spec=spec, result=result, provenance=provenance(command)
    )


def _draw(
    scene: Scene, predictions: dict[str, Gaussian], rows: list[dict[str, Any]], path: pathlib.Path
) -> None:
    """A row per method: absolute error and predicted sigma on one scale; test blocks outlined."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    from fisher8_jax.plots import style

    known, blocks = np.isfinite(scene.disparity), _whole_blocks(scene.test)
    colours = matplotlib.colormaps["magma"].with_extremes(bad="0.8")
    with style():
        size = (8.4, 2.75 * len(predictions))
        figure, axes = plt.subplots(len(predictions), 2, figsize=size, squeeze=False)
        for pair, (method, dist), scores in zip(axes, predictions.items(), rows, strict=True):
            error = np.abs(np.asarray(dist.mean) - scene.disparity)
            sigma = np.where(known, np.asarray(dist.std), np.nan)
            for axis, values in zip(pair, (error, sigma), strict=True):
                shown = axis.imshow(values, cmap=colours, vmin=0, vmax=12)
                axis.contour(blocks, levels=[0.5], colors="white", linewidths=0.8)
                axis.set_axis_off()
            pair[0].set_title(f"{method}: |error|, RMSE {scores['rmse']:.2f}", loc="left")
            pair[1].set_title(f"predicted sigma, NLL {scores['nll']:.2f}", loc="left")
        where: dict[str, Any] = {"location": "bottom", "aspect": 50, "extend": "max"}
        figure.colorbar(shown, ax=axes, label="pixels; grey: no disparity known", **where)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=90)
        plt.close(figure)
    console.print(f"drew {path}")


def _whole_blocks(mask: np.ndarray) -> np.ndarray:
    """The blocks that hold pixels of `mask`, with their unknown pixels."""
    height, width = mask.shape
    padded = np.pad(mask, ((0, -height % BLOCK), (0, -width % BLOCK)))
    rows, columns = (n // BLOCK for n in padded.shape)
    held = padded.reshape(rows, BLOCK, columns, BLOCK).any((1, 3))
    return np.kron(held, np.ones((BLOCK, BLOCK)))[:height, :width]
