"""What is trained and scored: all settings of one method on the stereo pair."""

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import Array

from benchmarks.experiments.dense.data import Scene
from benchmarks.experiments.dense.network import UNet
from benchmarks.machinery.baselines import BASELINES, Baseline
from benchmarks.machinery.loop import start, train_on_batches
from benchmarks.machinery.networks import stack_members
from benchmarks.machinery.step import Batch, Run, Task
from fisher8_jax import Gaussian
from fisher8_jax.losses import LOSSES
from fisher8_jax.metrics import ece, nll, rmse
from fisher8_jax.optimizers import fisher8_optimizer
from fisher8_jax.training import LossGradient, Method, nnx_network

LEARNING_RATES = (1e-3, 4e-3)
RECIPE = "fisher8_optimizer(steps)"
CROP, BATCH_SIZE = (32, 32), 6


# Fisher8 takes its norms over the batch and both axes of space.
_OVER_SPACE = BASELINES["fisher8"].override(hyperparameters={"axis": (0, 1, 2)})
# By the names in the stored table.
CHOSEN = {
    "nll": BASELINES["nll"],
    "beta-nll": BASELINES["beta_nll"],
    "fisher8": _OVER_SPACE,
    "fisher8 + radius": _OVER_SPACE,
}


def run_method(
    scene: Scene, method: str, seed: int, args: argparse.Namespace
) -> tuple[dict[str, Any], Gaussian]:
    """Trains all settings; the test scores and the prediction of the better one."""
    settings = (1.0,) if method.endswith("radius") else LEARNING_RATES  # it has none
    dists = _train(scene, method, seed, settings, args)
    tried: list[dict[str, Any]] = [
        {
            "setting": setting,
            "validation": scores_in(dist, scene, scene.validation),
            "test": scores_in(dist, scene, scene.test),
        }
        for setting, dist in zip(settings, dists, strict=True)
    ]
    best = int(np.argmin([entry["validation"]["nll"] for entry in tried]))
    row = {"method": method, "setting": settings[best], **tried[best]["test"], "tried": tried}
    return row, dists[best]


def normalised(scene: Scene) -> tuple[np.ndarray, float, float]:
    """Targets with mean 0 and variance 1 over the training pixels, and what undoes it."""
    known = scene.disparity[scene.train]
    shift, scale = float(known.mean()), float(known.std())
    targets = np.nan_to_num((scene.disparity - shift) / scale)
    return targets.astype(np.float32), shift, scale


def _train(
    scene: Scene, method: str, seed: int, settings: tuple[float, ...], args: argparse.Namespace
) -> list[Gaussian]:
    """Per setting the prediction for the whole image, in pixels, after training."""
    targets, shift, scale = normalised(scene)
    image, labels, mask = map(jnp.asarray, (scene.inputs, targets, scene.train))
    apply, params, variables = nnx_network(UNet(image.shape[-1], args.width, rngs=nnx.Rngs(seed)))
    gradient = LossGradient(loss_of(CHOSEN[method]))
    task = Task(apply, lambda setting, factor: Method(gradient, _optimizer(method, setting, args)))
    keys = jax.random.split(jax.random.key(seed), args.steps)

    def batch(key):
        inputs, targets, where = crops(key, image, labels, mask)
        return jax.tree.map(lambda leaf: leaf[None, None], Batch(inputs, targets, where=where))

    @jax.jit
    def train(params, variables, setting):
        runs = Run(setting[None], jax.random.split(keys[0], 1))
        first = start(task, stack_members([params]), stack_members([variables]), runs)
        state, _ = jax.lax.scan(
            lambda state, key: (train_on_batches(task, state, runs, batch(key))[0], None),
            first,
            keys,
        )
        trained = jax.tree.map(lambda leaf: leaf[0], (state.params, state.variables))
        dist = jax.tree.map(lambda leaf: leaf[0], apply(*trained, image[None])[0])
        assert isinstance(dist, Gaussian)
        return dist.unscale(shift=jnp.asarray(shift), scale=jnp.asarray(scale))

    return [train(params, variables, jnp.asarray(setting)) for setting in settings]


def loss_of(method: Baseline) -> Callable[..., Array]:
    """The mean over all pixels of a crop, known or not, as the loop means over the known ones."""

    def loss(dist, targets, *, where, weights):
        options = {"where": where, "weights": weights, **dict(method.hyperparameters)}
        return LOSSES[method.loss](dist, targets, **options) * jnp.mean(where, dtype=jnp.float32)

    return loss


def _optimizer(
    method: str, setting: Any, args: argparse.Namespace
) -> optax.GradientTransformationExtraArgs:
    """The default optimizer, or Adam with a cosine decay from the rate `setting`."""
    if method.endswith("radius"):
        return fisher8_optimizer(args.steps)
    decay = optax.cosine_decay_schedule(1.0, args.steps)
    return optax.with_extra_args_support(optax.adam(lambda count: setting * decay(count)))


def crops(key: Array, image: Array, labels: Array, mask: Array) -> tuple[Array, ...]:
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


def scores_in(dist: Gaussian, scene: Scene, where: np.ndarray) -> dict[str, float]:
    targets, mask = jnp.asarray(np.nan_to_num(scene.disparity)), jnp.asarray(where)
    metrics = {"rmse": rmse, "nll": nll, "ece": ece}
    return {
        name: float(metric(dist, targets, axis=(0, 1), where=mask))
        for name, metric in metrics.items()
    }
