"""flowjax: the conditional density of a target, a flow of one affine layer."""

import itertools
from pathlib import Path
from typing import Any

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import paramax
from flowjax.distributions import Normal
from flowjax.flows import masked_autoregressive_flow
from flowjax.train import loops as theirs

from benchmarks.experiments.adoption.changes import flowjax as change
from benchmarks.experiments.adoption.loops import (
    Loop,
    Network,
    adam,
    look_steps,
    loss_of,
    mean_nll,
    scores,
)
from benchmarks.experiments.uci.data import load, standardize
from fisher8_jax import Gaussian

BATCH, HELD_OUT = 100, 0.1


class Adopted:
    """One table and method; see `train.py`."""

    axis, has_members, score = 0, False, staticmethod(mean_nll)

    def __init__(self, job: dict[str, Any]):
        self.job, self.looks = job, look_steps(job["steps"])
        loss = loss_of(job["method"])
        self.loss = None if loss is None else change.make(loss)
        self.splits = load(Path(job["data"]))
        self.static = self._parts(0)[1]
        self.network = Network(self._predict_one, self._loss, self._draw)
        self.loop = Loop(self.network, job["method"], job["steps"])
        self.evaluate = jax.jit(self._evaluate)

    def run(self, rate: float | None, seed: int) -> dict[str, list]:
        """Scores at every evaluation of one training, in standardised units."""
        parts = self.rows(seed)
        if self.job["method"] in ("radius", "network"):
            snapshots = self.loop.train(self.start(seed), parts["train"], seed, None)
        else:
            snapshots = self._own_loop(rate, seed, parts["train"])
        return scores(lambda params: self.evaluate(params, parts), snapshots)

    def _parts(self, seed: int) -> tuple[Any, Any]:
        return parted(make_flow(seed, self.splits[0].train_inputs.shape[1]))

    def start(self, seed: int) -> Any:
        """The first parameters."""
        return self._parts(seed)[0]

    def rows(self, seed: int) -> dict[str, Any]:
        """See `split`."""
        return split(self.splits[seed])

    def _own_loop(self, rate: float | None, seed: int, data: Any) -> list[Any]:
        """`fit_to_data` without early stopping; a thousandth row is held out because it must be."""
        step, count = theirs.step, itertools.count(1)
        snapshots: list[Any] = []

        def recorded(*args, **kwargs):
            answer = step(*args, **kwargs)
            if next(count) in self.looks:
                snapshots.append(answer[0])
            return answer

        theirs.step = recorded
        try:
            theirs.fit_to_data(
                jax.random.key(seed),
                equinox.combine(*self._parts(seed)),
                data=(data[1], data[0]),
                loss_fn=self.loss,
                optimizer=adam(rate),
                max_epochs=-(-self.job["steps"] // (int(len(data[0]) * 0.999) // BATCH)),
                max_patience=self.job["steps"],
                batch_size=BATCH,
                val_prop=0.001,
                show_progress=False,
            )
        finally:
            theirs.step = step
        return snapshots

    def _predict_one(self, params, x):
        return change.predict(paramax.unwrap(equinox.combine(params, self.static)), x)

    def predict(self, params: Any, x: jax.Array) -> Gaussian:
        """Of many rows."""
        return jax.vmap(self._predict_one, (None, 0))(params, x)

    def _loss(self, params, x, y):
        assert self.loss is not None  # only Fisher8 is trained by the loop of ours
        return self.loss(params, self.static, y, x)

    def _draw(self, key, data):
        rows = jax.random.choice(key, len(data[0]), (BATCH,), replace=False)
        return data[0][rows], data[1][rows]

    def _evaluate(self, params, parts):
        found = {}
        for part in ("validation", "test"):
            x, y = parts[part]
            dist = self.predict(params, x)
            found[f"{part}_nll"] = self.score(dist, y)
            found[f"{part}_rmse"] = jnp.sqrt(jnp.mean((dist.mean - y) ** 2))
        return found


def make_flow(seed: int, features: int) -> Any:
    """Its masked autoregressive flow with one layer: the target given the features is Gaussian."""
    base = Normal(jnp.zeros(1))
    return masked_autoregressive_flow(
        jax.random.key(seed), base_dist=base, cond_dim=features, flow_layers=1
    )


def parted(flow: Any) -> tuple[Any, Any]:
    """Trained and fixed leaves, as `fit_to_data` parts them."""
    return equinox.partition(
        flow,
        equinox.is_inexact_array,
        is_leaf=lambda leaf: isinstance(leaf, paramax.NonTrainable),
    )


def split(rows: Any) -> dict[str, Any]:
    """Standardised; a tenth of the training rows is held out."""
    scaled = standardize(rows).split
    order = np.random.default_rng(0).permutation(len(scaled.train_targets))
    held = round(HELD_OUT * len(order))
    x, y = scaled.train_inputs[order], scaled.train_targets[order, None]
    parts = {
        "train": (x[held:], y[held:]),
        "validation": (x[:held], y[:held]),
        "test": (scaled.test_inputs, scaled.test_targets[:, None]),
    }
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), parts)
