"""Disparity of every pixel of a stereo pair: Fisher8 beside the plain NLL and beta-NLL.

One small U-Net per method on the stereo pair that ships with scikit-image, split by blocks of
pixels. Fisher8 takes its norms over the batch and both axes of space. Every method trains with Adam
and a cosine decay at two learning rates, of which validation NLL picks one; Fisher8 is also run
with the ready recipe of momentum and KL radius. Reported on the test blocks: RMSE in pixels of the
full image, NLL in nats per pixel, ECE. The picture shows error and predicted sigma.
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

from benchmarks.console import console
from benchmarks.dense_data import Scene, load_scene
from benchmarks.dense_network import UNet
from benchmarks.provenance import machine, provenance
from benchmarks.store import DEFAULT_RESULTS, Store
from fisher8_jax import Gaussian, fisher8_nll
from fisher8_jax.losses import beta_nll, gaussian_nll
from fisher8_jax.metrics import ece, nll, rmse
from fisher8_jax.transforms import fisher8_optimizer

LEARNING_RATES = (1e-3, 4e-3)
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
    parser.add_argument("--results", type=pathlib.Path, default=DEFAULT_RESULTS)
    parser.add_argument(
        "--picture", type=pathlib.Path, default=pathlib.Path("dense.png"), help="where to save it"
    )


def run(args: argparse.Namespace) -> int:
    """Trains all methods, prints the table, stores it and draws the picture."""
    scene = load_scene(args.seed)
    rows, predictions = [], {}
    for method in METHODS:
        rates = (None,) if method.endswith("radius") else LEARNING_RATES
        trials = _train(scene, method, rates, args)
        scores = [_scores(dist, scene, scene.validation)["nll"] for dist, _ in trials]
        dist, rate = trials[int(np.argmin(scores))]
        rows.append({"method": method, "learning_rate": rate, **_scores(dist, scene, scene.test)})
        predictions[method] = dist
        console.print(_line(rows[-1]))
    _store(rows, args)
    _draw(scene, predictions, args.picture)
    return 0


def _normalised(scene: Scene) -> tuple[np.ndarray, float, float]:
    """Targets with mean 0 and variance 1 over the training pixels, and what undoes it."""
    known = scene.disparity[scene.train]
    shift, scale = float(known.mean()), float(known.std())
    targets = np.nan_to_num((scene.disparity - shift) / scale)
    return targets.astype(np.float32), shift, scale


def _train(
    scene: Scene, method: str, rates: tuple[float | None, ...], args: argparse.Namespace
) -> list[tuple[Gaussian, float | None]]:
    """Per learning rate the prediction for the whole image, in pixels, after training."""
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
        updates, state = optimizer.update(gradient, state, params, predict=predict)
        return (optax.apply_updates(params, updates), state), None

    @jax.jit
    def train(params, rate):
        optimizer = _optimizer(rate, args.steps)
        keys = jax.random.split(jax.random.key(args.seed), args.steps)
        carry = params, optimizer.init(params)
        (params, _), _ = jax.lax.scan(functools.partial(step, optimizer), carry, keys)
        dist = nnx.merge(graph, params)(image[None])
        return jax.tree.map(lambda leaf: leaf[0], dist).unscale(shift=shift, scale=scale)

    return [(train(params, rate), rate) for rate in rates]


def _optimizer(rate: Any, steps: int) -> optax.GradientTransformationExtraArgs:
    """Adam with a cosine decay from `rate`, or the ready recipe for None."""
    if rate is None:
        return fisher8_optimizer(steps)
    decay = optax.cosine_decay_schedule(1.0, steps)
    return optax.with_extra_args_support(optax.adam(lambda count: rate * decay(count)))


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
    rate = "-" if row["learning_rate"] is None else f"{row['learning_rate']:g}"
    return (
        f"{row['method']:18} learning rate {rate:6} RMSE {row['rmse']:7.3f} px   "
        f"NLL {row['nll']:7.3f}   ECE {row['ece']:.4f}"
    )


def _store(rows: list[dict[str, Any]], args: argparse.Namespace) -> None:
    spec = {"steps": args.steps, "seed": args.seed, "width": args.width}
    command = "python -m benchmarks dense " + " ".join(f"--{k} {v}" for k, v in spec.items())
    result = {"rows": rows, "machine": machine()}
    Store(args.results).write(
        "dense/stereo", spec=spec, result=result, provenance=provenance(command)
    )


def _draw(scene: Scene, predictions: dict[str, Gaussian], path: pathlib.Path) -> None:
    """Per method the absolute error and the predicted sigma on one scale; test blocks outlined."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        len(predictions) + 1, 2, figsize=(9, 2.7 * (len(predictions) + 1)), layout="constrained"
    )
    axes[0, 0].imshow(scene.left)
    axes[0, 0].set_title("left view, test blocks outlined")
    shown = axes[0, 1].imshow(scene.disparity, cmap="viridis")
    axes[0, 1].set_title("true disparity (px)")
    figure.colorbar(shown, ax=axes[0, 1])
    for row, (method, dist) in zip(axes[1:], predictions.items(), strict=True):
        error = np.abs(np.asarray(dist.mean) - scene.disparity)
        for axis, values, title in (
            (row[0], error, f"{method}: |error| (px)"),
            (row[1], np.asarray(dist.std), f"{method}: predicted sigma (px)"),
        ):
            shown = axis.imshow(values, cmap="magma", vmin=0, vmax=12)
            axis.set_title(title)
        figure.colorbar(shown, ax=row)
    known = np.isfinite(scene.disparity)
    for axis in axes.flat:
        axis.contour(scene.test & known, levels=[0.5], colors="white", linewidths=0.6)
        axis.set_axis_off()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    console.print(f"drew {path}")
