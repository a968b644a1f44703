"""Curvature that remembers: rows kept from earlier batches, at equal processor time.

The Gram matrix of a batch belongs to its own outputs, so an average of Gram matrices over batches
has no meaning. What can be remembered are rows: those of earlier batches go through the network
again, with the parameters of now, and enter the curvature but not the gradient. Beside that stands
what the same rows do where they enter both, which is a larger batch. Momentum, which remembers the
last solution instead, is in `scales`.

A way has one damping, chosen on the four sets of `SELECTION` and reported on four others, by the
NLL of held-out training rows.
"""

import functools
import itertools
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarks.experiments.curvature.plan import HELD_OUT, SELECTION
from benchmarks.experiments.curvature.training import Predict
from benchmarks.experiments.damping.scales import Fold, held_out_nll, load_fold
from benchmarks.experiments.uci.jobs import PADDED_FEATURES
from benchmarks.machinery.document import Block, Paragraph, Table
from benchmarks.machinery.networks import Mlp, stack_members
from benchmarks.machinery.rows import shuffled_rows
from benchmarks.machinery.seeds import generator
from benchmarks.machinery.store import Store
from fisher8_jax import network_gradient, network_optimizer

CELL = "damping/kept"
OTHERS = ("boston", "concrete", "power", "naval")
NETWORK = Mlp((50, 50), jax.nn.silu)
DAMPINGS = (0.1, 0.3, 1.0, 3.0)
BUDGETS = {"short": 125, "long": 625}  # the processor time of so many steps of the first way
SPLITS = 5
COST_STEPS, COST_ROUNDS = 40, 5


class Way(NamedTuple):
    """How many rows of a step are new, and how many are kept for the curvature."""

    new: int
    kept: int

    def __str__(self) -> str:
        return f"{self.new} new, {self.kept} kept" if self.kept else f"{self.new} new"


WAYS = (Way(32, 0), Way(32, 32), Way(32, 96), Way(64, 0), Way(128, 0))
SPEC: dict[str, Any] = {"experiment": "kept", "sets": SELECTION, "others": OTHERS}
SPEC |= {"dampings": DAMPINGS, "budgets": BUDGETS, "splits": SPLITS, "held_out": HELD_OUT}
SPEC |= {"ways": WAYS, "hidden": NETWORK.hidden}


def gradient(way: Way, params: Any, x: Array, y: Array, damping: Array) -> Any:
    """The natural gradient of the new rows' mean loss in the curvature of all rows."""
    counts = jnp.arange(way.new + way.kept) < way.new
    factor = jnp.where(counts, (way.new + way.kept) / way.new, 0)
    return network_gradient(
        Predict(NETWORK), params, x, y, damping=damping, loss=lambda d, t: factor * d.nll(t)
    )


def draw_rows(name: str, fold: Fold, way: Way, steps: int) -> np.ndarray:
    """The row numbers of every step and split: new ones first, then those of the steps before."""
    drawn = []
    for split, mine in enumerate(fold.kept[:SPLITS]):
        rng = generator("uci", name, split, 0, "batches")
        rows = mine[shuffled_rows(rng, len(mine), batch=way.new, steps=steps)[0]]
        earlier = [np.roll(rows, back + 1, axis=0) for back in range(way.kept // way.new)]
        drawn.append(np.concatenate([rows, *earlier], axis=1))
    return np.stack(drawn, axis=1)


@functools.partial(jax.jit, static_argnums=0)
def train(way: Way, params: Any, fold: tuple[Array, Array], rows: Array, damping: Array) -> Any:
    """Averaged parameters of all runs; `rows` has the shape (steps, runs, rows of a step)."""
    steps, runs, _ = rows.shape
    optimizer, (inputs, targets) = network_optimizer(steps), fold
    source = jnp.arange(runs) % SPLITS

    def step(params: Any, state: Any, source: Array, rows: Array, damping: Array) -> Any:
        x, y = inputs[source, rows], targets[source, rows]
        found = gradient(way, params, x, y, damping)
        updates, state = optimizer.update(found.gradient, state, params, step_kl=found.step_kl)
        return optax.apply_updates(params, updates), state

    def scan_step(carry: Any, rows: Array) -> tuple[Any, None]:
        params, state = carry
        return jax.vmap(step)(params, state, source, rows, damping), None

    (params, state), _ = jax.lax.scan(scan_step, (params, jax.vmap(optimizer.init)(params)), rows)
    return optax.tree_utils.tree_get(state, "average")


def train_all(name: str, fold: Fold, way: Way, steps: int) -> list[float]:
    """Mean held-out NLL over splits, for every damping; infinite where one diverged."""
    rngs = [generator("uci", name, split, 0, "init") for split in range(SPLITS)]
    first = stack_members([NETWORK.init(rng, fold.features, PADDED_FEATURES) for rng in rngs])
    copies = len(DAMPINGS)
    params = jax.tree.map(lambda leaf: jnp.concatenate([jnp.asarray(leaf)] * copies), first)
    rows = jnp.tile(jnp.asarray(draw_rows(name, fold, way, steps)), (1, copies, 1))
    damping = jnp.repeat(jnp.array(DAMPINGS, jnp.float32), SPLITS)
    data = fold.inputs[:SPLITS], fold.targets[:SPLITS]
    average = train(way, params, data, rows, damping)
    values = np.asarray(held_out_nll(NETWORK, average, data, jnp.asarray(fold.held[:SPLITS])))
    means = np.where(np.isfinite(values), values, np.inf).reshape(copies, SPLITS).mean(1)
    return [float(mean) for mean in means]


def measure_costs(name: str, fold: Fold) -> list[float]:
    """Median processor time of a step of a run, all ways in turn."""

    def once(way: Way) -> float:
        began = time.process_time()
        train_all(name, fold, way, COST_STEPS)
        return (time.process_time() - began) / (COST_STEPS * SPLITS * len(DAMPINGS))

    for way in WAYS:
        once(way)  # compiles
    seconds = [[once(way) for way in WAYS] for _ in range(COST_ROUNDS)]
    return [float(x) for x in np.median(seconds, axis=0)]


def measure(paths: dict[str, Path]) -> dict[str, Any]:
    """Costs, and the held-out NLL of every way, budget, damping and set."""
    folds = {name: load_fold(name, paths[name]) for name in (*SELECTION, *OTHERS)}
    costs = measure_costs(SELECTION[0], folds[SELECTION[0]])
    rows = []
    for (budget, number), (way, cost) in itertools.product(
        BUDGETS.items(), zip(WAYS, costs, strict=True)
    ):
        steps = round(number * costs[0] / cost)
        found = {name: train_all(name, fold, way, steps) for name, fold in folds.items()}
        for index, damping in enumerate(DAMPINGS):
            row = {"budget": budget, "way": str(way), "damping": damping, "steps": steps}
            row["nll"] = {name: values[index] for name, values in found.items()}
            rows.append(row)
    seconds = {str(way): cost for way, cost in zip(WAYS, costs, strict=True)}
    return {"seconds_per_step": seconds, "rows": rows}


def best_rows(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of every budget and way the damping with the smallest mean NLL over `SELECTION`."""
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        way = row["budget"], row["way"]
        if way not in best or mean_over(SELECTION, row) < mean_over(SELECTION, best[way]):
            best[way] = row
    return list(best.values())


def mean_over(sets: Iterable[str], row: dict[str, Any]) -> float:
    values = [row["nll"][name] for name in sets]
    return float(np.mean([np.inf if value is None else value for value in values]))


def blocks(store: Store) -> list[Block]:
    """The table; nothing if the cell is missing."""
    result = store.read(CELL)
    if result is None:
        return []
    header = [
        "budget",
        "rows of a step",
        "damping",
        "us a step",
        "steps",
        "mean of the four chosen on",
    ]
    header += ["mean of the four others", *SELECTION, *OTHERS]
    caption = "Rows kept from earlier batches, and larger batches, at equal processor time"
    lines = [
        _line(row, result["seconds_per_step"][row["way"]]) for row in best_rows(result["rows"])
    ]
    words = (
        "Mean over splits of the NLL of held-out training rows, averaged parameters, 2x50 "
        "SiLU units. Kept rows enter the curvature alone. The damping of each way is the best of "
        f"four on {', '.join(SELECTION)}."
    )
    return [Table(caption, header, lines), Paragraph(words)]


def _line(row: dict[str, Any], seconds: float) -> list[str]:
    means = [mean_over(sets, row) for sets in (SELECTION, OTHERS)]
    values = [mean_over([name], row) for name in (*SELECTION, *OTHERS)]
    numbers = [f"{row['damping']:g}", f"{1e6 * seconds:.0f}", str(row["steps"])]
    return [row["budget"], row["way"], *numbers, *(f"{x:.3f}" for x in (*means, *values))]
