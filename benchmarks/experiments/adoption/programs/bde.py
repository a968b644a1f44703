"""sklearn-contrib-bde: the deep-ensemble stage on the three tables that it ships."""

from importlib import resources
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from bde.bde_builder import BdeBuilder
from bde.loss import GaussianNLL
from bde.task import TaskType
from bde.training.callbacks import EarlyStoppingCallback
from bde.training.trainer import FnnTrainer

from benchmarks.experiments.adoption.changes import bde as change
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

MEMBERS, HIDDEN, ROWS, BATCH, HELD_OUT = 4, [16, 16], 3000, 128, 0.15


class Recorder(EarlyStoppingCallback):
    """Its own callback, which never stops here, and keeps the parameters of some epochs."""

    def __init__(self, epochs: list[int]):
        super().__init__(patience=epochs[-1] + 1, min_delta=0.0)
        self.epochs = epochs
        self.snapshots: list[Any] = []

    def update(self, state, epoch, params_de, val_lvals_de):
        if epoch + 1 in self.epochs:
            self.snapshots.append(jax.tree.map(lambda leaf: leaf[0], params_de))
        return super().update(state, epoch, params_de, val_lvals_de)


class Adopted:
    """One table and method; see `train.py`."""

    axis, has_members, score = 0, True, staticmethod(mixture_nll)

    def __init__(self, job: dict[str, Any]):
        self.job, self.looks = job, look_steps(job["steps"])
        loss = loss_of(job["method"])
        if loss is not None:
            change.apply(loss)
        self.table = read_table(job["problem"])
        self.forward = BdeBuilder.get_model(0, act_fn="relu", sizes=self.sizes()).forward
        loss_fn = FnnTrainer.make_loss_fn(self, GaussianNLL())
        self.network = Network(self._predict_one, loss_fn, self._draw)
        self.loop = Loop(self.network, job["method"], job["steps"], members=True)
        self.evaluate = jax.jit(self._evaluate)

    def run(self, rate: float | None, seed: int) -> dict[str, list]:
        """Scores at every evaluation of one training."""
        parts = self.rows(seed)
        return scores(
            lambda params: self.evaluate(params, parts), self.snapshots(rate, seed, parts)
        )

    def snapshots(self, rate: float | None, seed: int, parts: dict[str, Any]) -> list[Any]:
        """The parameters at every evaluation of one training."""
        if self.job["method"] not in ("radius", "network"):
            return self._own_loop(rate, seed, parts)
        return self.loop.train(self.start(seed), parts["train"], seed, None)

    def rows(self, seed: int) -> dict[str, Any]:
        """See `split`."""
        return split(self.table, seed)

    def start(self, seed: int) -> Any:
        """The first parameters of all members."""
        members = self.builder(seed)._deep_ensemble_creator(
            100 * seed, act_fn="relu", sizes=self.sizes()
        )
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *[m.params for m in members])

    def sizes(self) -> list[int]:
        """Widths of all layers."""
        return [self.table.shape[1] - 1, *HIDDEN, 2]

    def builder(self, seed: int) -> BdeBuilder:
        """What makes and trains its ensemble."""
        return BdeBuilder(
            hidden_sizes=HIDDEN,
            n_members=MEMBERS,
            seed=100 * seed,
            task=TaskType.REGRESSION,
            act_fn="relu",
            patience=self.job["steps"],
            lr=1e-3,  # replaced by the optimiser that is passed
            weight_decay=0.0,
            val_split=HELD_OUT,
        )

    def _own_loop(self, rate: float | None, seed: int, parts: Any) -> list[Any]:
        builder, recorder = self.builder(seed), Recorder(self.looks)
        builder._create_callback = lambda: recorder
        x, y = parts["all"]
        builder.fit_members(x, y, epochs=self.job["steps"], optimizer=adam(rate))
        return recorder.snapshots

    def _predict_one(self, params, x):
        raw = self.forward(params, x)
        std = GaussianNLL().map_fn(raw[..., 1:2]) + GaussianNLL().min_sigma
        return Gaussian.from_std(raw[..., 0:1], std)

    def predict(self, params: Any, x: jax.Array) -> Gaussian:
        """Of all members, which are the first axis."""
        return jax.vmap(self._predict_one, (0, None))(params, x)

    def _draw(self, key, data):
        """All rows for the radius, as its own loop has them; a batch for the natural gradient."""
        x, y = data
        if self.job["method"] == "network":
            rows = jax.random.choice(key, len(x), (BATCH,), replace=False)
            return x[rows], y[rows]
        return x, y

    def _evaluate(self, params, parts):
        found = {}
        for part in ("validation", "test"):
            x, y = parts[part]
            dist = self.predict(params, x)
            found[f"{part}_nll"] = self.score(dist, y)
            found[f"{part}_rmse"] = jnp.sqrt(jnp.mean((dist.mean.mean(0) - y) ** 2))
        return found


def read_table(name: str) -> np.ndarray:
    """Rows of one of its tables, the target last; of the long one a part."""
    folder = Path(str(resources.files("bde"))) / "data"
    if name == "airfoil":
        return np.loadtxt(folder / "airfoil.csv", delimiter=",", skiprows=1)
    if name == "concrete":
        return np.loadtxt(folder / "concrete.data")
    path = folder / "bike_sharing_dataset" / "hour.csv"
    columns = [*range(2, 14), 16]  # without the two counts that add up to the target
    table = np.loadtxt(path, delimiter=",", skiprows=1, usecols=columns)
    return table[np.random.default_rng(0).permutation(len(table))[:ROWS]]


def split(table: np.ndarray, seed: int) -> dict[str, Any]:
    """A fifth tests, its own splitter holds out a part of the rest; standardised on the latter."""
    order = np.random.default_rng(seed).permutation(len(table))
    tests = len(table) // 5
    rest = table[order[tests:]]
    std = np.where(rest.std(0) == 0, 1, rest.std(0))
    scaled = jnp.asarray((table - rest.mean(0)) / std, jnp.float32)
    test, kept = scaled[order[:tests]], scaled[order[tests:]]
    x, y = kept[:, :-1], kept[:, -1:]
    train_x, held_x, train_y, held_y = FnnTrainer.split_train_val(x, y, val_size=HELD_OUT)
    return {
        "all": (x, y),
        "train": (train_x, train_y),
        "validation": (held_x, held_y),
        "test": (test[:, :-1], test[:, -1:]),
    }
