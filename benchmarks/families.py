"""Recovery of every family: Fisher8 with the KL radius beside tuned Adam on the plain NLL.

Data is drawn from each family with parameters that depend on two inputs. A small network learns
them by Fisher8 with the ready recipe (no setting but the number of steps) and by Adam on the plain
NLL with three learning rates, each constant and with the same linear decay. Reported: the held-out
NLL above that of the true parameters, on the same targets, and the steps after which it first stays
within 0.02 nats at an evaluation.
"""

import argparse
import functools
import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarks.console import console
from benchmarks.families_problems import PROBLEMS, Problem
from benchmarks.provenance import machine, provenance
from fisher8_jax import fisher8_nll
from fisher8_jax.transforms import fisher8_optimizer

RESULTS = pathlib.Path(__file__).parent / "results" / "families"
LEARNING_RATES = (1e-3, 3e-3, 1e-2)
TOLERANCE = 0.02
EVALUATE_EVERY = 20
NUM_TRAIN, NUM_TEST, BATCH_SIZE, WIDTH = 65536, 8192, 256, 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m benchmarks families`."""
    parser.add_argument("--steps", type=int, default=1500, help="the budget of every method")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--family", choices=list(PROBLEMS), help="only this one; not stored")


def run(args: argparse.Namespace) -> int:
    """Runs the families, prints the table and stores it."""
    names = [args.family] if args.family else list(PROBLEMS)
    rows = []
    for name in names:
        rows.append(_row(PROBLEMS[name], args.steps, args.seed))
        console.print(_line(rows[-1]))
    counted = sum(row["recovered"] and row["faster"] for row in rows)
    console.print(f"within {TOLERANCE} nats and fewer steps than Adam: {counted} of {len(rows)}")
    if not args.family:
        _store(rows, args)
    return 0


def _row(problem: Problem, steps: int, seed: int) -> dict[str, Any]:
    data = _data(problem, jax.random.key(seed))
    curves = {"fisher8": _train(problem, data, steps, seed, None)}
    for rate in LEARNING_RATES:
        curves[f"adam {rate:g}"] = _train(problem, data, steps, seed, rate)
        curves[f"adam {rate:g} decay"] = _train(problem, data, steps, seed, -rate)
    summary = {
        name: {"excess_nll": float(curve[-1]), "steps": _steps_to_reach(curve)}
        for name, curve in curves.items()
    }
    ours = summary.pop("fisher8")
    best = min(
        summary, key=lambda name: (summary[name]["steps"] or np.inf, summary[name]["excess_nll"])
    )
    reached = ours["steps"] is not None
    rival = summary[best]["steps"]
    return {
        "family": problem.name,
        "fisher8": ours,
        "adam": summary,
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


def _train(problem: Problem, data: Any, steps: int, seed: int, rate: float | None) -> np.ndarray:
    """The held-out NLL above the truth at every evaluation; a negative rate asks for decay."""
    if rate is None:
        optimizer = fisher8_optimizer(steps)
    else:
        schedule = abs(rate) if rate > 0 else optax.linear_schedule(-rate, 0.0, steps)
        optimizer = optax.with_extra_args_support(optax.adam(schedule))
    params = _initial(problem, jax.random.key(seed + 1))
    run_all = _compiled(problem, optimizer, steps, use_fisher8=rate is None)
    return np.asarray(run_all(params, data, jax.random.key(seed + 2)))


def _compiled(problem: Problem, optimizer: Any, steps: int, *, use_fisher8: bool) -> Any:
    train_x, train_y = (lambda d: d[0]), (lambda d: d[1])

    def step(data, carry, key):
        params, state = carry
        rows = jax.random.randint(key, (BATCH_SIZE,), 0, NUM_TRAIN)
        x, y = train_x(data)[rows], train_y(data)[rows]
        predict = functools.partial(_network, problem, inputs=x)

        def loss(params):
            dist = predict(params)
            return (fisher8_nll(dist, y) if use_fisher8 else dist.nll(y)).mean()

        gradient = jax.grad(loss)(params)
        updates, state = optimizer.update(gradient, state, params, predict=predict)
        return (optax.apply_updates(params, updates), state), None

    @jax.jit
    def run_all(params, data, key):
        _, _, test_x, test_y, true_nll = data

        def chunk(carry, keys):
            carry, _ = jax.lax.scan(functools.partial(step, data), carry, keys)
            held_out = _network(problem, carry[0], test_x).nll(test_y).mean()
            return carry, held_out - true_nll

        keys = jax.random.split(key, (steps // EVALUATE_EVERY, EVALUATE_EVERY))
        return jax.lax.scan(chunk, (params, optimizer.init(params)), keys)[1]

    return run_all


def _steps_to_reach(curve: np.ndarray) -> int | None:
    """The first evaluation within the tolerance, in steps; None if there is none."""
    reached = np.flatnonzero(curve <= TOLERANCE)
    return int(EVALUATE_EVERY * (reached[0] + 1)) if len(reached) else None


def _line(row: dict[str, Any]) -> str:
    ours, best = row["fisher8"], row["adam"][row["best_adam"]]
    lowest = min(entry["excess_nll"] for entry in row["adam"].values())
    return (
        f"{row['family']:22} fisher8 {ours['excess_nll']:8.4f} in {ours['steps'] or '-':>5} steps   "
        f"{row['best_adam']:16} {best['excess_nll']:8.4f} in {best['steps'] or '-':>5} steps   "
        f"lowest Adam {lowest:8.4f}   "
        f"{'recovered' if row['recovered'] else 'NOT recovered'}, "
        f"{'faster' if row['faster'] else 'NOT faster'}"
    )


def _store(rows: list[dict[str, Any]], args: argparse.Namespace) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    record = {
        "rows": rows,
        "steps": args.steps,
        "seed": args.seed,
        "tolerance": TOLERANCE,
        "batch_size": BATCH_SIZE,
        "num_train": NUM_TRAIN,
        "machine": machine(),
        **provenance(f"python -m benchmarks families --steps {args.steps} --seed {args.seed}"),
    }
    path = RESULTS / "recovery.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    console.print(f"stored {path}")
