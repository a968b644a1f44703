"""bayesflow: the posterior of one rate of a predator-prey simulator, given ten counts of both."""

import os

os.environ["KERAS_BACKEND"] = "jax"  # before Keras is imported

from typing import Any

import bayesflow
import jax
import jax.numpy as jnp
import keras
import numpy as np

from benchmarks.experiments.adoption.changes import bayesflow as change
from benchmarks.experiments.adoption.loops import (
    Loop,
    Network,
    look_steps,
    loss_of,
    mean_nll,
    scores,
)
from fisher8_jax import Gaussian

BATCH, WIDTHS = 64, (64, 64)
SIMULATED = {"train": 60 * BATCH, "validation": 1000, "test": 2000}


class Adopted:
    """One method; see `train.py`."""

    axis, has_members, score = 0, False, staticmethod(mean_nll)

    def __init__(self, job: dict[str, Any]):
        self.job, self.looks = job, look_steps(job["steps"])
        loss = loss_of(job["method"])
        if loss is not None:
            change.apply(loss)
        self.parts = simulations()
        self.model = make_network(0)
        self.fixed = [leaf.value for leaf in self.model.non_trainable_variables]
        self.network = Network(self._predict_one, self._loss, self._draw)
        self.loop = Loop(self.network, job["method"], job["steps"])
        self.evaluate = jax.jit(self._evaluate)

    def run(self, rate: float | None, seed: int) -> dict[str, list]:
        """Scores at every evaluation of one training."""
        if self.job["method"] not in ("radius", "network"):
            return scores(self.evaluate, self._own_loop(rate, seed))
        return scores(
            self.evaluate, self.loop.train(self.start(seed), self.parts["train"], seed, None)
        )

    def start(self, seed: int) -> Any:
        """The first parameters."""
        return [leaf.value for leaf in make_network(seed).trainable_variables]

    def rows(self, seed: int) -> dict[str, Any]:
        """Simulations, the same for all seeds."""
        return self.parts

    def _own_loop(self, rate: float | None, seed: int) -> list[Any]:
        model = make_network(seed)
        workflow = bayesflow.BasicWorkflow(
            inference_network=model,
            inference_variables="target",
            inference_conditions="data",
            standardize=None,
            initial_learning_rate=rate,
        )
        recorder = Recorder(model, self.looks)
        x, y = map(np.asarray, self.parts["train"])
        workflow.fit_offline(
            {"data": x, "target": y},
            epochs=self.job["steps"] * BATCH // len(x),
            batch_size=BATCH,
            callbacks=[recorder],
            verbose=0,
        )
        return recorder.snapshots

    def predict(self, params: Any, x: jax.Array) -> Gaussian:
        """Of many simulated data sets."""
        found = self.model.stateless_call(params, self.fixed, conditions=x)[0]["normal"]
        return Gaussian.from_std(found["mean"], 1 / found["precision_cholesky_factor"][..., 0])

    def _predict_one(self, params, x):
        dist = self.predict(params, x[None])
        return Gaussian(dist.mean[0], dist.log_variance[0])

    def _loss(self, params, x, y):
        found = self.model.stateless_call(params, self.fixed, conditions=x)[0]["normal"]
        return self.model.scoring_rules["normal"].score(found, y)

    def _draw(self, key, data):
        rows = jax.random.choice(key, len(data[0]), (BATCH,), replace=False)
        return data[0][rows], data[1][rows]

    def _evaluate(self, params):
        found = {}
        for part in ("validation", "test"):
            x, y = self.parts[part]
            dist = self.predict(params, x)
            found[f"{part}_nll"] = self.score(dist, y)
            found[f"{part}_rmse"] = jnp.sqrt(jnp.mean((dist.mean - y) ** 2))
        return found


class Recorder(keras.callbacks.Callback):
    """Keeps the parameters after some steps."""

    def __init__(self, model: Any, steps: list[int]):
        super().__init__()
        self.network, self.steps, self.count = model, steps, 0
        self.snapshots: list[Any] = []

    def on_train_batch_end(self, batch, logs=None):
        """Called by Keras after each step."""
        self.count += 1
        if self.count in self.steps:
            self.model.jax_state_sync()
            values = [np.array(leaf.value) for leaf in self.network.trainable_variables]
            self.snapshots.append(values)


def make_network(seed: int) -> Any:
    """A dense network with the head of a normal distribution."""
    keras.utils.set_random_seed(seed)
    model = bayesflow.networks.ScoringRuleNetwork(
        scoring_rules={"normal": bayesflow.scoring_rules.MvNormalScore()},
        subnet_kwargs={"widths": WIDTHS, "dropout": 0.0},
    )
    model.build(xz_shape=(None, 1), conditions_shape=(None, 20))
    return model


def simulations() -> dict[str, Any]:
    """Log counts and the log of the prey's growth rate, standardised on the training part."""
    parts: dict[str, Any] = {}
    for seed, (part, number) in enumerate(SIMULATED.items()):
        simulator = bayesflow.simulators.LotkaVolterra(rng=np.random.default_rng(seed))
        drawn = simulator.sample(number)
        x, y = np.log1p(np.maximum(drawn["observables"], 0)), np.log(drawn["parameters"][:, :1])
        if part == "train":
            centres = [(values.mean(0), values.std(0)) for values in (x, y)]
        scaled = [(v - mean) / std for v, (mean, std) in zip((x, y), centres, strict=True)]
        parts[part] = tuple(jnp.asarray(values, jnp.float32) for values in scaled)
    return parts
