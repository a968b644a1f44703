"""ramsey: a conditional neural process on curves of its Gaussian-process sampler."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from ramsey import NP
from ramsey.data import sample_from_gaussian_process
from ramsey.nn import MLP

from benchmarks.experiments.adoption.changes import ramsey as change
from benchmarks.experiments.adoption.loops import (
    Loop,
    Network,
    look_steps,
    loss_of,
    mean_nll,
    scores,
)
from fisher8_jax import Gaussian

WIDTH, BATCH, CONTEXT, TARGETS = 64, 16, 10, 30
KERNELS, CURVES, POINTS = 16, (24, 8, 8), 60


class Adopted:
    """One method; see `train.py`.

    Version 0.3.0 needs an older Flax than it asks for (see `plan.py`), and its loop an even older
    one; so the loop is ours, with its network, its loss and its optimiser.
    """

    axis, has_members, score = (0, 1), False, staticmethod(mean_nll)

    def __init__(self, job: dict[str, Any]):
        self.job, self.looks = job, look_steps(job["steps"])
        loss = loss_of(job["method"], axis=(0, 1))
        if loss is not None:
            change.apply(loss)
        self.parts = curves()
        self.graph, _, *self.rest = nnx.split(make_model(0), nnx.Param, ...)
        self.network = Network(self._predict_one, self._loss, self._draw)
        self.loop = Loop(self.network, job["method"], job["steps"])
        self.evaluate = jax.jit(self._evaluate)

    def run(self, rate: float | None, seed: int) -> dict[str, list]:
        """Scores at every evaluation of one training."""
        return scores(self.evaluate, self.loop.train(self.start(seed), self.parts[0], seed, rate))

    def start(self, seed: int) -> Any:
        """The first parameters."""
        return nnx.split(make_model(seed), nnx.Param, ...)[1]

    def rows(self, seed: int) -> dict[str, Any]:
        """Curves to draw from, and context and targets of the held-out ones."""
        train, *held = self.parts
        validation, test = map(asked, held)
        return {"train": train, "validation": validation, "test": test}

    def predict(self, params: Any, inputs: tuple[jax.Array, ...]) -> Gaussian:
        """Of many curves: context points, their values, target points."""
        normal = nnx.merge(self.graph, params, *self.rest)(*inputs)
        return Gaussian.from_std(normal.mean, normal.scale)

    def _predict_one(self, params, inputs):
        dist = self.predict(params, jax.tree.map(lambda leaf: leaf[None], inputs))
        return Gaussian(dist.mean[0], dist.log_variance[0])

    def _loss(self, params, inputs, targets):
        return nnx.merge(self.graph, params, *self.rest).loss(*inputs, targets)

    def _draw(self, key, data):
        key_curves, key_points = jax.random.split(key)
        x, y = data
        picked = jax.random.choice(key_curves, len(x), (BATCH,), replace=False)
        points = jax.random.choice(key_points, POINTS, (TARGETS,), replace=False)
        x, y = x[picked][:, points], y[picked][:, points]
        return (x[:, :CONTEXT], y[:, :CONTEXT], x), y

    def _evaluate(self, params):
        found = {}
        for part, curves in zip(("validation", "test"), self.parts[1:], strict=True):
            inputs, y = asked(curves)
            dist = self.predict(params, inputs)
            found[f"{part}_nll"] = self.score(dist, y)
            found[f"{part}_rmse"] = jnp.sqrt(jnp.mean((dist.mean - y) ** 2))
        return found


def asked(curves: tuple[jax.Array, ...]) -> tuple[tuple[jax.Array, ...], jax.Array]:
    """Inputs and targets of whole curves, of which the first points are the context."""
    order = jax.random.permutation(jax.random.key(1), POINTS)
    x, y = (values[:, order] for values in curves)
    return (x[:, :CONTEXT], y[:, :CONTEXT], x[:, CONTEXT:]), y[:, CONTEXT:]


def make_model(seed: int) -> NP:
    """A deterministic encoder and a decoder, no latent variable."""
    rngs = nnx.Rngs(seed)
    return NP(
        decoder=MLP(WIDTH + 1, [WIDTH, WIDTH, 2], rngs=rngs),
        deterministic_encoder=MLP(2, [WIDTH, WIDTH, WIDTH], rngs=rngs),
    )


def curves() -> list[tuple[jax.Array, ...]]:
    """Inputs and values of training, validation and test curves; a call draws one kernel."""
    parts: list[list[Any]] = [[], [], []]
    for kernel in range(KERNELS):
        drawn = sample_from_gaussian_process(
            jax.random.key(kernel), batch_size=sum(CURVES), num_observations=POINTS
        )
        first = 0
        for part, number in zip(parts, CURVES, strict=True):
            part.append((drawn.x[first : first + number], drawn.y[first : first + number]))
            first += number
    return [tuple(jnp.concatenate(leaves) for leaves in zip(*part, strict=True)) for part in parts]
