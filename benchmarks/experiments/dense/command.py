"""Disparity of every pixel of a stereo pair: Fisher8 beside the plain NLL and beta-NLL.

One small U-Net per method on the stereo pair that ships with scikit-image, split by blocks of
pixels. Fisher8 takes its norms over the batch and both axes of space. Every method trains with Adam
and a cosine decay at two learning rates, of which validation NLL picks one; Fisher8 is also run
with the ready recipe, as it comes or at the best of several radii and with second moments. Reported
on the test blocks: RMSE in pixels of the full image, NLL in nats per pixel, ECE. The picture shows
error and predicted sigma; it holds no part of the photographs.
"""

import argparse
import functools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import Array

from benchmarks.experiments.dense.data import BLOCK, Scene, load_scene
from benchmarks.experiments.dense.network import UNet
from benchmarks.machinery.console import console
from benchmarks.machinery.provenance import machine, provenance
from benchmarks.machinery.store import DEFAULT_RESULTS, Store
from fisher8_jax import Gaussian, fisher8_nll
from fisher8_jax.losses import beta_nll, gaussian_nll
from fisher8_jax.metrics import ece, nll, rmse
from fisher8_jax.transforms import fisher8_optimizer

LEARNING_RATES = (1e-3, 4e-3)
DEFAULT_RADII = [0.3]  # the recipe's own
CROP, BATCH_SIZE = (32, 32), 6


def _fisher8_over_space(dist: Gaussian, targets: Array, where: Array) -> Array:
    return fisher8_nll(dist, targets, where=where, axis=(0, 1, 2))


METHODS = {
    "nll": lambda dist, y, where: gaussian_nll(dist, y, where=where),
    "beta-nll": lambda dist, y, where: beta_nll(dist, y, where=where, beta=0.5),
    "fisher8": _fisher8_over_space,
    "fisher8 + radius": _fisher8_over_space,
}


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
    for method in METHODS:
        row, predictions[method] = _run_method(scene, method, args)
        rows.append(row)
        console.print(_line(row))
    _store(rows, args)
    _draw(scene, predictions, args.picture)
    return 0


def _run_method(
    scene: Scene, method: str, args: argparse.Namespace
) -> tuple[dict[str, Any], Gaussian]:
    """Trains all settings; the test scores and the prediction of the better one."""
    by_radius = method.endswith("radius")
    settings = tuple(args.radii) if by_radius else LEARNING_RATES
    dists = _train(scene, method, settings, args)
    tried = [
        {
            "setting": setting,
            "validation": _scores(dist, scene, scene.validation),
            "test": _scores(dist, scene, scene.test),
        }
        for setting, dist in zip(settings, dists, strict=True)
    ]
    best = int(np.argmin([entry["validation"]["nll"] for entry in tried]))
    name = "max_kl" if by_radius else "learning_rate"
    row = {"method": method, name: settings[best], **tried[best]["test"], "tried": tried}
    return row, dists[best]


def _normalised(scene: Scene) -> tuple[np.ndarray, float, float]:
    """Targets with mean 0 and variance 1 over the training pixels, and what undoes it."""
    known = scene.disparity[scene.train]
    shift, scale = float(known.mean()), float(known.std())
    targets = np.nan_to_num((scene.disparity - shift) / scale)
    return targets.astype(np.float32), shift, scale


def _train(
    scene: Scene, method: str, settings: tuple[float, ...], args: argparse.Namespace
) -> list[Gaussian]:
    """Per setting the prediction for the whole image, in pixels, after training."""
    targets, shift, scale = _normalised(scene)
    image, labels, mask = map(jnp.asarray, (scene.inputs, targets, scene.train))
    network = UNet(image.shape[-1], args.width, rngs=nnx.Rngs(args.seed))
    graph, params = nnx.split(network, nnx.Param)
    loss = METHODS[method]

    def step(optimizer, carry, key):
        params, state = carry
        x, y, where = _crops(key, image, labels, mask)

        def predict(params):
            return nnx.merge(graph, params)(x)

        gradient = jax.grad(lambda p: loss(predict(p), y, where).mean())(params)
        updates, state = optimizer.update(gradient, state, params, predict=predict, where=where)
        return (optax.apply_updates(params, updates), state), None

    @jax.jit
    def train(params, setting):
        optimizer = _optimizer(method, setting, args)
        keys = jax.random.split(jax.random.key(args.seed), args.steps)
        carry = params, optimizer.init(params)
        (params, _), _ = jax.lax.scan(functools.partial(step, optimizer), carry, keys)
        dist = nnx.merge(graph, params)(image[None])
        return jax.tree.map(lambda leaf: leaf[0], dist).unscale(shift=shift, scale=scale)

    return [train(params, setting) for setting in settings]


def _optimizer(
    method: str, setting: Any, args: argparse.Namespace
) -> optax.GradientTransformationExtraArgs:
    """The ready recipe with the radius `setting`, or Adam with a cosine decay from that rate."""
    if method.endswith("radius"):
        return fisher8_optimizer(args.steps, max_kl=setting, second_moment=args.second_moment)
    decay = optax.cosine_decay_schedule(1.0, args.steps)
    return optax.with_extra_args_support(optax.adam(lambda count: setting * decay(count)))


def _crops(key: Array, image: Array, labels: Array, mask: Array) -> tuple[Array, ...]:
    """Random windows of the image, its targets and the mask of training pixels."""
    tops, lefts = (
        jax.random.randint(k, (BATCH_SIZE,), 0, n - c + 1)
        for k, n, c in zip(jax.random.split(key), labels.shape, CROP, strict=True)
    )

    def crop(array: Array) -> Array:
        size = (*CROP, *array.shape[2:])
        tail = (0,) * (array.ndim - 2)
        return jax.vmap(lambda a, b: jax.lax.dynamic_slice(array, (a, b, *tail), size))(tops, lefts)

    return crop(image), crop(labels), crop(mask)


def _scores(dist: Gaussian, scene: Scene, where: np.ndarray) -> dict[str, float]:
    targets, mask = jnp.asarray(np.nan_to_num(scene.disparity)), jnp.asarray(where)
    metrics = {"rmse": rmse, "nll": nll, "ece": ece}
    return {
        name: float(metric(dist, targets, axis=(0, 1), where=mask))
        for name, metric in metrics.items()
    }


def _line(row: dict[str, Any]) -> str:
    name = "max_kl" if "max_kl" in row else "learning_rate"
    return (
        f"{row['method']:18} {name} {row[name]:g}   RMSE {row['rmse']:7.3f} px   "
        f"NLL {row['nll']:7.3f}   ECE {row['ece']:.4f}"
    )


def table(rows: list[dict[str, Any]]) -> list[str]:
    """The rows as a table in Markdown."""
    head = ["| method | RMSE in pixels | NLL | ECE |", "|---|---|---|---|"]
    return head + [
        f"| {row['method']} | {row['rmse']:.2f} | {row['nll']:.2f} | {row['ece']:.3f} |"
        for row in rows
    ]


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


def _draw(scene: Scene, predictions: dict[str, Gaussian], path: pathlib.Path) -> None:
    """Per method the absolute error and the predicted sigma on one scale; test blocks outlined."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    size = (2.4 * len(predictions), 3.4)
    figure, axes = plt.subplots(2, len(predictions), figsize=size, layout="constrained")
    known, blocks = np.isfinite(scene.disparity), _whole_blocks(scene.test)
    colours = matplotlib.colormaps["magma"].with_extremes(bad="lightgrey")
    for column, (method, dist) in zip(axes.T, predictions.items(), strict=True):
        error = np.abs(np.asarray(dist.mean) - scene.disparity)
        sigma = np.where(known, np.asarray(dist.std), np.nan)
        for axis, values, title in (
            (column[0], error, f"{method}\n|error|"),
            (column[1], sigma, "predicted sigma"),
        ):
            shown = axis.imshow(values, cmap=colours, vmin=0, vmax=12)
            axis.contour(blocks, levels=[0.5], colors="white", linewidths=0.5)
            axis.set_title(title, fontsize=9)
            axis.set_axis_off()
    figure.colorbar(shown, ax=axes, label="pixels")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    console.print(f"drew {path}")


def _whole_blocks(mask: np.ndarray) -> np.ndarray:
    """The blocks that hold pixels of `mask`, with their unknown pixels."""
    height, width = mask.shape
    padded = np.pad(mask, ((0, -height % BLOCK), (0, -width % BLOCK)))
    rows, columns = (n // BLOCK for n in padded.shape)
    held = padded.reshape(rows, BLOCK, columns, BLOCK).any((1, 3))
    return np.kron(held, np.ones((BLOCK, BLOCK)))[:height, :width]
