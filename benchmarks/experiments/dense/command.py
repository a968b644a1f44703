"""Disparity of every pixel of a stereo pair: Fisher8 beside the plain NLL and beta-NLL.

One small U-Net per method on the stereo pair that ships with scikit-image, split by blocks of
pixels. Fisher8 takes its norms over the batch and both axes of space. Every method trains with Adam
and a cosine decay at two learning rates, of which validation NLL picks one; Fisher8 is also run
with the default optimizer. Reported on the test blocks: RMSE in pixels of the full image,
NLL in nats per pixel, ECE. Every method and seed is stored by itself. The picture shows error and
predicted sigma of what is computed; it holds no part of the photographs.
"""

import argparse
import pathlib
from typing import Any

import numpy as np

from benchmarks.experiments.dense.data import BLOCK, Scene, load_scene
from benchmarks.experiments.dense.jobs import CHOSEN, LEARNING_RATES, RECIPE, run_method
from benchmarks.experiments.dense.report import section
from benchmarks.machinery.console import console, progress
from benchmarks.machinery.document import print_section
from benchmarks.machinery.provenance import machine, provenance
from benchmarks.machinery.store import DEFAULT_RESULTS, Store
from fisher8_jax import Gaussian


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m benchmarks dense`."""
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--width", type=int, default=8, help="channels at the finest scale")
    parser.add_argument("--methods", nargs="+", choices=list(CHOSEN), default=list(CHOSEN))
    parser.add_argument("--results", type=pathlib.Path, default=DEFAULT_RESULTS)
    parser.add_argument("--picture", type=pathlib.Path, default=None, help="of all methods, anew")


def run(args: argparse.Namespace) -> int:
    """Trains what is not stored, or everything if a picture is wanted, and prints the table."""
    store = Store(args.results)
    places = [(method, seed) for seed in args.seeds for method in args.methods]
    if args.picture is None:
        places = [place for place in places if store.read(cell(*place), spec(args, *place)) is None]
    predictions, rows = {}, []
    with progress("Stereo pair", len(places)) as advance:
        for method, seed in places:
            scene = load_scene(seed)
            row, predictions[method] = run_method(scene, method, seed, args)
            rows.append(row)
            result = row | {"machine": machine()}
            origin = provenance(_command(args, method, seed))
            wanted = spec(args, method, seed)
            store.write(cell(method, seed), spec=wanted, result=result, provenance=origin)
            advance(1)
    code = print_section(section(store))
    if args.picture is not None:
        _draw(load_scene(args.seeds[-1]), predictions, rows[-len(predictions) :], args.picture)
    return code


def cell(method: str, seed: int) -> str:
    """The name in the store."""
    return f"dense/{method.replace(' + ', '_')}-seed{seed}"


def spec(args: argparse.Namespace, method: str, seed: int) -> dict[str, Any]:
    """What defines a cell."""
    setting = {"optimizer": RECIPE} if method.endswith("radius") else {"rates": LEARNING_RATES}
    return {"method": method, "seed": seed, "steps": args.steps, "width": args.width} | setting


def _command(args: argparse.Namespace, method: str, seed: int) -> str:
    size = f"--steps {args.steps} --width {args.width}"
    return f"python -m benchmarks dense --methods '{method}' --seeds {seed} {size}"


def _draw(
    scene: Scene, predictions: dict[str, Gaussian], rows: list[dict[str, Any]], path: pathlib.Path
) -> None:
    """A row per method: absolute error and predicted sigma on one scale; test blocks outlined."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    from benchmarks.machinery.figures import style

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
