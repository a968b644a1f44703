"""rl-blox: the probabilistic ensemble of PETS on transitions of a pendulum."""

import itertools
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from rl_blox.blox import probabilistic_ensemble as theirs

from benchmarks.experiments.adoption.changes import rl_blox as change
from benchmarks.experiments.adoption.loops import (
    Loop,
    Network,
    adam,
    look_steps,
    loss_of,
    mixture_nll,
    scores,
)
from fisher8_jax import Gaussian

MEMBERS, HIDDEN, BATCH, TRAIN_SIZE = 5, [64, 64], 32, 0.7
EPISODES, LENGTH, HORIZON = (10, 5, 5), 200, 10


class Adopted:
    """One method; see `train.py`."""

    axis, has_members, score = 0, False, staticmethod(mixture_nll)

    def __init__(self, job: dict[str, Any]):
        self.job, self.looks = job, look_steps(job["steps"])
        loss = loss_of(job["method"])
        if loss is not None:
            change.apply(loss)
        self.parts = [transitions(seed, number) for seed, number in enumerate(EPISODES)]
        self.graph = nnx.split(make_model(0))[0]
        self.network = Network(self._predict_one, self._loss, self._draw)
        self.loop = Loop(self.network, job["method"], job["steps"])
        self.evaluate = jax.jit(self._evaluate)

    def run(self, rate: float | None, seed: int) -> dict[str, list]:
        """Scores at every evaluation of one training."""
        has_own_loop = self.job["method"] not in ("radius", "network")
        if has_own_loop:
            return scores(self.evaluate, self._own_loop(rate, seed))
        rows = self.rows(seed)["train"]
        return scores(self.evaluate, self.loop.train(self.start(seed), rows, seed, None))

    def _own_loop(self, rate: float | None, seed: int) -> list[Any]:
        model = make_model(seed)
        adamw = adam(rate, optax.adamw, weight_decay=1e-3)
        optimizer = nnx.Optimizer(model, adamw, wrt=nnx.Param)
        x, y = flat(self.parts[0])
        per_epoch = int(TRAIN_SIZE * len(x)) // BATCH
        epochs, train_epoch = self.job["steps"] // per_epoch, theirs.train_epoch
        snapshots: list[Any] = []
        count = itertools.count(1)
        wanted = {round(step / per_epoch) for step in self.looks}

        def recorded(model, *args):
            value = train_epoch(model, *args)
            if next(count) in wanted:
                snapshots.append(jax.tree.map(jnp.array, nnx.split(model)[1]))
            return value

        theirs.train_epoch = recorded
        try:
            key = jax.random.key(seed)
            theirs.train_ensemble(model, optimizer, TRAIN_SIZE, x, y, epochs, BATCH, key)
        finally:
            theirs.train_epoch = train_epoch
        return snapshots

    def start(self, seed: int) -> Any:
        """The first parameters."""
        return nnx.split(make_model(seed))[1]

    def rows(self, seed: int) -> dict[str, Any]:
        """Transitions, and the rows of each member's bootstrap sample."""
        train, *held = [flat(episodes) for episodes in self.parts]
        rows = theirs.bootstrap(MEMBERS, TRAIN_SIZE, len(train[0]), jax.random.key(seed))
        return {"train": (*train, rows), "validation": held[0], "test": held[1]}

    def predict(self, params: Any, x: jax.Array) -> Gaussian:
        """Of all members, which are the first axis."""
        return Gaussian(*nnx.merge(self.graph, params)(x))

    def _predict_one(self, params, x):
        """All members of one example: they share the bounds of the log-variance."""
        dist = self.predict(params, x[:, None])
        return Gaussian(dist.mean[:, 0], dist.log_variance[:, 0])

    def _loss(self, params, x, y):
        model = nnx.merge(self.graph, params)
        return theirs.gaussian_ensemble_loss(model, jnp.moveaxis(x, 1, 0), jnp.moveaxis(y, 1, 0))

    def _draw(self, key, data):
        x, y, rows = data
        picked = jax.random.randint(key, (BATCH, MEMBERS), 0, rows.shape[1])
        chosen = rows[jnp.arange(MEMBERS), picked]
        return x[chosen], y[chosen]

    def _evaluate(self, params):
        found = {}
        for part, episodes in zip(("validation", "test"), self.parts[1:], strict=True):
            x, y = flat(episodes)
            dist = self.predict(params, x)
            found[f"{part}_nll"] = self.score(dist, y)
            found[f"{part}_rmse"] = jnp.sqrt(jnp.mean((dist.mean.mean(0) - y) ** 2))
        found["test_rollout_rmse"] = self._rollout(params, self.parts[2])
        return found

    def _rollout(self, params, episodes):
        """The error after several steps with the true actions, from every fifth state."""
        states, actions = episodes
        starts = jnp.arange(0, LENGTH - HORIZON, 5)
        state = states[:, starts]
        for step in range(HORIZON):
            x = jnp.concatenate([state, actions[:, starts + step]], axis=-1)
            change = self.predict(params, x.reshape(-1, x.shape[-1])).mean.mean(0)
            state = state + change.reshape(state.shape)
        return jnp.sqrt(jnp.mean((state - states[:, starts + HORIZON]) ** 2))


def make_model(seed: int) -> theirs.GaussianMLPEnsemble:
    """As its own PETS makes it, with smaller layers."""
    return theirs.GaussianMLPEnsemble(
        n_ensemble=MEMBERS,
        shared_head=True,
        n_features=4,
        n_outputs=3,
        hidden_nodes=HIDDEN,
        activation="swish",
        rngs=nnx.Rngs(seed),
    )


def transitions(seed: int, episodes: int) -> tuple[jax.Array, jax.Array]:
    """States (episodes, steps + 1, 3) and random torques (episodes, steps, 1)."""
    env = gymnasium.make("Pendulum-v1").unwrapped
    env.action_space.seed(seed)
    states, actions = [], []
    for episode in range(episodes):
        state, _ = env.reset(seed=1000 * seed + episode)
        path, torques = [state], [env.action_space.sample() for _ in range(LENGTH)]
        for torque in torques:
            path.append(env.step(torque)[0])
        states.append(path)
        actions.append(torques)
    return jnp.asarray(np.array(states, np.float32)), jnp.asarray(np.array(actions, np.float32))


def flat(episodes: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """State and torque, and the change of the state."""
    states, actions = episodes
    x = jnp.concatenate([states[:, :-1], actions], axis=-1)
    change = states[:, 1:] - states[:, :-1]
    return x.reshape(-1, x.shape[-1]), change.reshape(-1, change.shape[-1])
