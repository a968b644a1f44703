"""From the settings and the shape of the data to a plan of training; free of scikit-learn."""

import math
from typing import NamedTuple

import numpy as np

from fisher8_jax.estimator._network import Network
from fisher8_jax.estimator._training import Folds, Plan

_LOOKS = 50  # at the held-out NLL in a whole training
_ROUNDS = 10  # in one call of the compiled program


class Settings(NamedTuple):
    """The checked hyper-parameters."""

    members: int
    hidden: tuple[int, ...]
    max_kl: float
    max_steps: int
    batch: int
    validation_fraction: float
    patience: float


def make_folds(rng: np.random.Generator, rows: int, settings: Settings) -> Folds:
    """Each member holds out another part of one shuffled order, and begins again after the last.

    Together the members of a default ensemble learn from every row.
    """
    size = min(max(1, round(settings.validation_fraction * rows)), rows - 1)
    order = rng.permutation(rows).astype(np.int32)
    starts = [size * (m % max(1, rows // size)) for m in range(settings.members)]
    held_out = np.stack([order[start : start + size] for start in starts])
    train = np.stack([np.delete(order, np.s_[start : start + size]) for start in starts])
    return Folds(train, held_out)


def make_plan(settings: Settings, target_shape: tuple[int, ...], train_rows: int) -> Plan:
    """About 50 looks at the held-out NLL, whatever the number of rows."""
    batch = min(settings.batch, train_rows)
    per_pass = train_rows // batch
    passes = max(1, round(settings.max_steps / (_LOOKS * per_pass)))
    return Plan(Network(settings.hidden, target_shape), batch, passes, _ROUNDS)


def steps_in_round(plan: Plan, train_rows: int) -> int:
    """Gradient steps between two looks."""
    return plan.passes * (train_rows // plan.batch)


def number_of_chunks(plan: Plan, train_rows: int, max_steps: int) -> int:
    """Calls of the compiled program until the steps are used up."""
    return math.ceil(max_steps / (steps_in_round(plan, train_rows) * plan.rounds))
