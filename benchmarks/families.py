"""Recovery of every family: Fisher8 with the KL radius beside tuned Adam on the plain NLL.

Data is drawn from each family with parameters that depend on two inputs. A small network learns
them by Fisher8 with the ready recipe, whose only setting is the number of steps, and by Adam on the
plain NLL with three learning rates. Three budgets are tried: Fisher8 takes the first that reaches
the goal; Adam runs with a linear decay over each of them and with no decay over the longest, twelve
settings of which the fastest counts. Reported: the held-out NLL above that of the true parameters,
on the same targets, and the step of the first evaluation at which it is within 0.02 nats.

Every family is stored in a file of its own, so a run can be resumed or split.
"""

import argparse
import functools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarks.console import console
from benchmarks.families_problems import PROBLEMS, Problem
from benchmarks.provenance import provenance
from benchmarks.store import DEFAULT_RESULTS, Store
from fisher8_jax import fisher8_nll
from fisher8_jax.transforms import fisher8_optimizer

LEARNING_RATES = (1e-3, 3e-3, 1e-2)
TOLERANCE = 0.02
EVALUATE_EVERY = 20
NUM_TRAIN, NUM_TEST, BATCH_SIZE, WIDTH = 65536, 4096, 512, 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m benchmarks families`."""
    parser.add_argument("--budgets", type=int, nargs="+", default=[100, 200, 400])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--families", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--results", type=pathlib.Path, default=DEFAULT_RESULTS)


def run(args: argparse.Namespace) -> int:
    """Computes what is not stored yet and prints the table of everything stored."""
    store = Store(args.results)
    for name in args.families:
        cell, spec = f"families/recovery/{name.lower().replace(' ', '_')}", _spec(name, args)
        row = store.read(cell, spec)
        if row is None:
            row = _row(PROBLEMS[name], sorted(args.budgets), args.seed)
            store.write(cell, spec=spec, result=row, provenance=provenance(_command(spec)))
        console.print(_line(row))
    rows = [cell["result"] for cell in store.cells("families/recovery")]
    counted = sum(row["recovered"] and row["faster"] for row in rows)
    console.print(f"within {TOLERANCE} nats and fewer steps than Adam: {counted} of {len(rows)}")
    return 0


def _row(problem: Problem, budgets: list[int], seed: int) -> dict[str, Any]:
    data = _data(problem, jax.random.key(seed))
    tried = {}
    for steps in budgets:
        tried[str(steps)] = ours = _summary(_train_fisher8(problem, data, steps, seed))
        if ours["excess_nll"] <= TOLERANCE:
            break
    rivals = {name: _summary(c) for name, c in _train_adam(problem, data, budgets, seed).items()}

    def rank(name: str) -> tuple[float, float]:
        return rivals[name]["steps"] or np.inf, rivals[name]["excess_nll"]

    best = min(rivals, key=rank)
    reached, rival = ours["steps"] is not None, rivals[best]["steps"]
    return {
        "family": problem.name,
        "fisher8": ours,
        "fisher8_by_budget": tried,
        "adam": rivals,
        "best_adam": best,
        "recovered": reached and ours["excess_nll"] <= TOLERANCE,
        "faster": reached and (rival is None or ours["steps"] < rival),
    }


def _data(problem: Problem, key: Array) -> tuple[Array, ...]:
    """Training inputs and targets, test inputs and targets, and the true test NLL."""
    keys = jax.random.split(key, 4)
    train = jax.random.uniform(keys[0], (NUM_TRAIN, 2), minval=-2, maxval=2)
    test = jax.random.uniform(keys[1], (NUM_TEST, 2), minval=-2, maxval=2)
    draw = jax.jit(lambda key, x: problem.truth(x).sample(key))
    targets = draw(keys[3], test)
    true_nll = jax.jit(lambda x, y: problem.truth(x).nll(y).mean())(test, targets)
    return train, draw(keys[2], train), test, targets, true_nll


def _network(problem: Problem, params: Any, inputs: Array) -> Any:
    hidden = inputs
    for weights, bias in params[:-1]:
        hidden = jnp.tanh(hidden @ weights + bias)
    weights, bias = params[-1]
    return problem.distribution(hidden @ weights + bias)


def _initial(problem: Problem, key: Array) -> Any:
    """LeCun initialisation; the last layer starts small, around the problem's own start."""
    sizes = (2, WIDTH, WIDTH, problem.num_outputs)
    keys = jax.random.split(key, 3)
    params = [
        (jax.random.normal(k, (a, b)) / np.sqrt(a), jnp.zeros(b))
        for k, a, b in zip(keys, sizes, sizes[1:], strict=False)
    ]
    weights, bias = params[-1]
    params[-1] = (0.1 * weights, bias + jnp.asarray(problem.start or 0.0))
    return params


def _train_fisher8(problem: Problem, data: Any, steps: int, seed: int) -> np.ndarray:
    """The held-out NLL above the truth at every evaluation."""

    def loss(dist, targets):
        return fisher8_nll(dist, targets).mean()

    def train(data):
        return _run(problem, loss, fisher8_optimizer(steps), data, steps, seed)

    return np.asarray(jax.jit(train)(data))


def _train_adam(
    problem: Problem, data: Any, budgets: list[int], seed: int
) -> dict[str, np.ndarray]:
    """The same curves for all learning rates and schedules, side by side."""
    settings = {
        f"adam {rate:g}" + (f" over {end}" if end else ""): (rate, end or np.inf)
        for rate in LEARNING_RATES
        for end in (*budgets, None)
    }

    def loss(dist, targets):
        return dist.nll(targets).mean()

    def train(data, rate, end):
        adam = optax.adam(lambda count: rate * jnp.maximum(1 - count / end, 0))
        return _run(problem, loss, optax.with_extra_args_support(adam), data, budgets[-1], seed)

    rates, ends = jnp.asarray(list(settings.values())).T
    curves = jax.jit(jax.vmap(train, (None, 0, 0)))(data, rates, ends)
    return dict(zip(settings, np.asarray(curves), strict=True))


def _run(problem: Problem, loss: Any, optimizer: Any, data: Any, steps: int, seed: int) -> Array:
    """Trains and returns the held-out NLL above the truth, every `EVALUATE_EVERY` steps."""
    train_x, train_y, test_x, test_y, true_nll = data

    def step(carry, key):
        params, state = carry
        rows = jax.random.randint(key, (BATCH_SIZE,), 0, NUM_TRAIN)
        predict = functools.partial(_network, problem, inputs=train_x[rows])
        gradient = jax.grad(lambda p: loss(predict(p), train_y[rows]))(params)
        updates, state = optimizer.update(gradient, state, params, predict=predict)
        return (optax.apply_updates(params, updates), state), None

    def chunk(carry, keys):
        carry, _ = jax.lax.scan(step, carry, keys)
        held_out = _network(problem, carry[0], test_x).nll(test_y).mean()
        return carry, held_out - true_nll

    params = _initial(problem, jax.random.key(seed + 1))
    keys = jax.random.split(jax.random.key(seed + 2), (steps // EVALUATE_EVERY, EVALUATE_EVERY))
    return jax.lax.scan(chunk, (params, optimizer.init(params)), keys)[1]


def _summary(curve: np.ndarray) -> dict[str, Any]:
    """The last value, and the step of the first evaluation within the tolerance or None."""
    reached = np.flatnonzero(curve <= TOLERANCE)
    steps = int(EVALUATE_EVERY * (reached[0] + 1)) if len(reached) else None
    return {"excess_nll": round(float(curve[-1]), 5), "steps": steps}


def _line(row: dict[str, Any]) -> str:
    ours, best = row["fisher8"], row["adam"][row["best_adam"]]
    taken, rival = ours["steps"] or "-", best["steps"] or "-"
    lowest = min(entry["excess_nll"] for entry in row["adam"].values())
    return (
        f"{row['family']:22} fisher8 {ours['excess_nll']:8.4f} in {taken:>5} steps   "
        f"{row['best_adam']:16} {best['excess_nll']:8.4f} in {rival:>5} steps   "
        f"lowest Adam {lowest:8.4f}   "
        f"{'recovered' if row['recovered'] else 'NOT recovered'}, "
        f"{'faster' if row['faster'] else 'NOT faster'}"
    )


def _spec(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """What determines a row, together with the code."""
    return {
        "family": name,
        "budgets": sorted(args.budgets),
        "seed": args.seed,
        "tolerance": TOLERANCE,
        "batch_size": BATCH_SIZE,
        "num_train": NUM_TRAIN,
    }


def _command(spec: dict[str, Any]) -> str:
    budgets = " ".join(map(str, spec["budgets"]))
    name, seed = spec["family"], spec["seed"]
    return f"python -m benchmarks families --families '{name}' --budgets {budgets} --seed {seed}"
