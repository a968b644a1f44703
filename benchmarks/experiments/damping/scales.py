"""Damping by the identity beside damping by factored second moments, at equal processor time.

Four UCI sets, trained on nine tenths of their training rows by the preset and judged by the NLL of
the last tenth; no test row is looked at. The identity treats all parameters alike. The roots of
running second moments make the method Adam for large damping and the natural gradient for small
damping; they cost the Fisher8 gradient of every batch. Both with and without momentum.
"""

import functools
import itertools
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarks.experiments.curvature.plan import BATCH, HELD_OUT, SELECTION
from benchmarks.experiments.curvature.training import Predict
from benchmarks.experiments.damping.moments import ScaledPredict, SecondMoments, full_roots
from benchmarks.experiments.uci.jobs import PADDED_FEATURES, load_prepared
from benchmarks.machinery.networks import Mlp, stack_members
from benchmarks.machinery.rows import shuffled_rows
from benchmarks.machinery.seeds import generator
from fisher8_jax import fisher8_nll, network_gradient, network_optimizer
from fisher8_jax.curvature import GradientState
from fisher8_jax.optimizers import network_max_kl

NETWORKS = {
    "silu-2x50": Mlp((50, 50), jax.nn.silu),
    "relu-3x128": Mlp((128, 128, 128), jax.nn.relu),
}
DAMPINGS = {"identity": (0.1, 0.3, 1.0, 3.0), "factored": (1.0, 3.0, 10.0, 30.0)}
MOMENTA = (0.0, 0.9)
# The processor time of so many steps with the identity and without momentum.
BUDGETS = {"short": 125, "long": 625}
SPLITS = 10
COST_STEPS, COST_ROUNDS = 40, 5


class Way(NamedTuple):
    """One form of damping; hashable."""

    form: str
    momentum: float

    def optimizer(self, steps: int | Array) -> optax.GradientTransformationExtraArgs:
        """The preset; with momentum, which multiplies steps, a tenth of its radius."""
        return network_optimizer(
            steps, max_kl=network_max_kl(steps) * (0.1 if self.momentum else 1.0)
        )

    def state(self, params: Any) -> "Remembered":
        has_moments = self.form == "factored"
        return Remembered(
            GradientState.zeros(params, momentum=self.momentum) if self.momentum else None,
            SecondMoments.zeros(params) if has_moments else None,
        )


class Remembered(NamedTuple):
    """What a step hands to the next."""

    momentum: GradientState | None
    moments: SecondMoments | None


WAYS = tuple(itertools.starmap(Way, itertools.product(DAMPINGS, MOMENTA)))


def spec_of(network: str) -> dict[str, Any]:
    """What defines the cell of a network."""
    spec: dict[str, Any] = {"experiment": "scales", "network": network, "sets": SELECTION}
    spec |= {"dampings": DAMPINGS, "momenta": MOMENTA, "budgets": BUDGETS}
    return spec | {"splits": SPLITS, "batch": BATCH, "held_out": HELD_OUT}


class Fold(NamedTuple):
    """The training rows of all splits of a set, and which of them are held out."""

    features: int
    inputs: Array
    targets: Array
    kept: list[np.ndarray]
    held: np.ndarray


def load_fold(name: str, path: Path) -> Fold:
    """The same held-out rows as those of the benchmark `curvature`."""
    prepared = load_prepared(path)
    size = round(HELD_OUT * min(prepared.train_rows))
    orders = [
        generator("curvature", name, split, 0, "held out").permutation(prepared.train_rows[split])
        for split in range(SPLITS)
    ]
    inputs, targets = prepared.train.inputs[:SPLITS], prepared.train.targets[:SPLITS]
    held = np.stack([order[:size] for order in orders])
    return Fold(prepared.features, inputs, targets, [order[size:] for order in orders], held)


def one_step(predict: Predict, way: Way, carry: Any, x: Array, y: Array, damping: Array) -> Any:
    """One step of one run; `carry` has parameters, the two states and the budget."""
    params, state, remembered, budget = carry
    gradient, step_kl, remembered = natural_gradient(predict, remembered, params, x, y, damping)
    optimizer = way.optimizer(budget)
    updates, state = optimizer.update(gradient, state, params, step_kl=step_kl)
    return optax.apply_updates(params, updates), state, remembered, budget


def natural_gradient(
    predict: Predict, remembered: Remembered, params: Any, x: Array, y: Array, damping: Array
) -> tuple[Any, Array | None, Remembered]:
    """Gradient, divergence and what the next step remembers, with or without a scale."""
    momentum, moments = remembered
    if moments is None:
        step = network_gradient(predict, params, x, y, damping=damping, state=momentum)
        return step.gradient, step.step_kl, Remembered(step.state, None)
    moments = moments.add(jax.grad(lambda p: fisher8_nll(predict(p, x), y).mean())(params))
    scale = moments.damping_scale()
    roots = full_roots(scale)

    def times(tree: Any) -> Any:
        return jax.tree.map(jnp.multiply, tree, roots)

    def over(tree: Any) -> Any:
        return jax.tree.map(jnp.divide, tree, roots)

    if momentum is not None:
        momentum = momentum._replace(momentum=times(momentum.momentum))
    scaled = ScaledPredict(predict.network, scale)
    step = network_gradient(scaled, times(params), x, y, damping=damping, state=momentum)
    after = step.state
    if after is not None:
        after = after._replace(momentum=over(after.momentum))
    return over(step.gradient), step.step_kl, Remembered(after, moments)


@functools.partial(jax.jit, static_argnums=(0, 1))
def train(
    network: Mlp, way: Way, params: Any, fold: tuple[Array, Array], rows: Array, damping: Array
) -> Any:
    """Last and averaged parameters of all runs; `rows` has the shape (steps, runs, batch)."""
    steps, runs, _ = rows.shape
    inputs, targets = fold
    source = jnp.arange(runs) % len(inputs)
    step = jax.vmap(functools.partial(one_step, Predict(network), way))

    def scan_step(carry: Any, rows: Array) -> tuple[Any, None]:
        take = jax.vmap(lambda index, mine: (inputs[index, mine], targets[index, mine]))
        return step(carry, *take(source, rows), damping), None

    states = jax.vmap(way.optimizer(steps).init)(params), jax.vmap(way.state)(params)
    start: Any = (params, *states, jnp.full(runs, steps, jnp.int32))
    (params, state, *_), _ = jax.lax.scan(scan_step, start, rows)
    return params, optax.tree_utils.tree_get(state, "average")


@functools.partial(jax.jit, static_argnums=0)
def held_out_nll(network: Mlp, params: Any, fold: tuple[Array, Array], held: Array) -> Array:
    def of_run(params: Any, index: Array) -> Array:
        dist = Predict(network)(params, fold[0][index, held[index]])
        return dist.nll(fold[1][index, held[index]]).mean()

    runs = len(jax.tree.leaves(params)[0])
    return jax.vmap(of_run)(params, jnp.arange(runs) % len(held))


def draw(name: str, fold: Fold, network: Mlp, steps: int, copies: int) -> tuple[Any, Array]:
    """First parameters and batches: those of all splits, one copy for each damping."""
    rngs = [generator("uci", name, split, 0, "init") for split in range(SPLITS)]
    first = stack_members([network.init(rng, fold.features, PADDED_FEATURES) for rng in rngs])
    rows = [
        mine[shuffled_rows(_rng(name, split), len(mine), batch=BATCH, steps=steps)[0]]
        for split, mine in enumerate(fold.kept)
    ]
    params = jax.tree.map(lambda leaf: jnp.concatenate([jnp.asarray(leaf)] * copies), first)
    return params, jnp.tile(jnp.asarray(np.stack(rows, axis=1)), (1, copies, 1))


def _rng(name: str, split: int) -> np.random.Generator:
    return generator("uci", name, split, 0, "batches")


def train_all(name: str, fold: Fold, network: Mlp, way: Way, steps: int) -> np.ndarray:
    """Held-out NLL of the last and the averaged parameters, by damping and split."""
    dampings = DAMPINGS[way.form]
    params, rows = draw(name, fold, network, steps, len(dampings))
    damping = jnp.repeat(jnp.array(dampings, jnp.float32), SPLITS)
    data = fold.inputs, fold.targets
    ends = train(network, way, params, data, rows, damping)
    values = np.stack([held_out_nll(network, end, data, jnp.asarray(fold.held)) for end in ends])
    return np.where(np.isfinite(values), values, np.inf).reshape(2, len(dampings), SPLITS)


def measure_costs(name: str, fold: Fold, network: Mlp) -> dict[str, float]:
    """Median processor time of a step of a run, all ways in turn."""

    def once(way: Way) -> float:
        began = time.process_time()
        train_all(name, fold, network, way, COST_STEPS)
        return (time.process_time() - began) / (COST_STEPS * SPLITS * len(DAMPINGS[way.form]))

    for way in WAYS:
        once(way)  # compiles
    seconds = [[once(way) for way in WAYS] for _ in range(COST_ROUNDS)]
    return {key_of(way): float(x) for way, x in zip(WAYS, np.median(seconds, axis=0), strict=True)}


def key_of(way: Way) -> str:
    return f"{way.form}-{way.momentum}"


def measure(network: str, paths: dict[str, Path]) -> dict[str, Any]:
    """Costs, and the held-out NLL of every way, budget and set."""
    mlp = NETWORKS[network]
    folds = {name: load_fold(name, paths[name]) for name in SELECTION}
    costs = measure_costs(SELECTION[0], folds[SELECTION[0]], mlp)
    rows = []
    for (budget, number), way in itertools.product(BUDGETS.items(), WAYS):
        steps = round(number * costs[key_of(WAYS[0])] / costs[key_of(way)])
        found = {name: train_all(name, fold, mlp, way, steps) for name, fold in folds.items()}
        for index, damping in enumerate(DAMPINGS[way.form]):
            row = {"budget": budget, **way._asdict(), "damping": damping, "steps": steps}
            for key, part in (("nll_of_last", 0), ("nll", 1)):
                row[key] = {name: x[part, index].mean() for name, x in found.items()}
            rows.append(row)
    return {"seconds_per_step": costs, "rows": rows}
