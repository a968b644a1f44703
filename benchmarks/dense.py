"""Disparity of every pixel of a stereo pair: Fisher8 beside the plain NLL and beta-NLL.

One small U-Net per method on the stereo pair that ships with scikit-image, split by blocks of
pixels. Fisher8 takes its norms over the batch and both axes of space. Every method trains with Adam
and a cosine decay at two learning rates, of which validation NLL picks one; Fisher8 is also run
with the ready recipe of momentum and KL radius. Reported on the test blocks: RMSE in pixels of the
full image, NLL in nats per pixel, ECE. The picture shows error and predicted sigma.
"""

import argparse
import json
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
from fisher8_jax import Gaussian, fisher8_nll
from fisher8_jax.losses import beta_nll, gaussian_nll
from fisher8_jax.metrics import ece, nll, rmse
from fisher8_jax.transforms import fisher8_optimizer

RESULTS = pathlib.Path(__file__).parent / "results" / "families"
LEARNING_RATES = (1e-3, 4e-3)
CROP, BATCH_SIZE = (40, 40), 8


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
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--width", type=int, default=12, help="channels at the finest scale")
    parser.add_argument("--picture", type=pathlib.Path, help="default: beside the results")


def run(args: argparse.Namespace) -> int:
    """Trains all methods, prints the table, stores it and draws the picture."""
    scene = load_scene(args.seed)
    rows, predictions = [], {}
    for method in METHODS:
        rates = (None,) if method.endswith("radius") else LEARNING_RATES
        trials = [(_train(scene, method, rate, args), rate) for rate in rates]
        scores = [_scores(dist, scene, scene.validation)["nll"] for dist, _ in trials]
        dist, rate = trials[int(np.argmin(scores))]
        rows.append({"method": method, "learning_rate": rate, **_scores(dist, scene, scene.test)})
        predictions[method] = dist
        console.print(_line(rows[-1]))
    _store(rows, args)
    _draw(scene, predictions, args.picture or RESULTS / "dense.png")
    return 0


def _normalised(scene: Scene) -> tuple[np.ndarray, float, float]:
    """Targets with mean 0 and variance 1 over the training pixels, and what undoes it."""
    known = scene.disparity[scene.train]
    shift, scale = float(known.mean()), float(known.std())
    targets = np.nan_to_num((scene.disparity - shift) / scale)
    return targets.astype(np.float32), shift, scale


def _train(scene: Scene, method: str, rate: float | None, args: argparse.Namespace) -> Gaussian:
    """The prediction for the whole image, in pixels, after training on the training blocks."""
    targets, shift, scale = _normalised(scene)
    image, labels, mask = map(jnp.asarray, (scene.inputs, targets, scene.train))
    network = UNet(image.shape[-1], args.width, rngs=nnx.Rngs(args.seed))
    graph, params = nnx.split(network, nnx.Param)
    if rate is None:
        optimizer: Any = fisher8_optimizer(args.steps)
    else:
        schedule = optax.cosine_decay_schedule(rate, args.steps)
        optimizer = optax.with_extra_args_support(optax.adam(schedule))
    loss = METHODS[method]

    def step(carry, key):
        params, state = carry
        x, y, where = _crops(key, image, labels, mask)

        def predict(params):
            return nnx.merge(graph, params)(x)

        gradient = jax.grad(lambda p: loss(predict(p), y, where).mean())(params)
        updates, state = optimizer.update(gradient, state, params, predict=predict)
        return (optax.apply_updates(params, updates), state), None

    @jax.jit
    def train(params, key):
        keys = jax.random.split(key, args.steps)
        (params, _), _ = jax.lax.scan(step, (params, optimizer.init(params)), keys)
        return nnx.merge(graph, params)(image[None])

    dist = train(params, jax.random.key(args.seed))
    return jax.tree.map(lambda leaf: leaf[0], dist).unscale(shift=shift, scale=scale)


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
    RESULTS.mkdir(parents=True, exist_ok=True)
    command = f"python -m benchmarks dense --steps {args.steps} --seed {args.seed}"
    record = {
        "rows": rows,
        "steps": args.steps,
        "seed": args.seed,
        "width": args.width,
        "machine": machine(),
        **provenance(f"{command} --width {args.width}"),
    }
    path = RESULTS / "dense.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    console.print(f"stored {path}")


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
