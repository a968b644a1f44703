"""What the KL radius adds to a compiled training step, against plain Fisher8, interleaved.

Three networks: dense 2x50 at batch 32, dense 3x1024 at batch 1024, a small CNN at batch 128. The
radius is measured by a derivative on the whole batch and on its first quarter, and by the
difference of two forward passes on the whole batch. The process is pinned to one core,
and processor time is counted instead of time on the clock, so that other work on the machine
disturbs little; ratios are taken round by round. Ratios of floating-point operations come from the
compiler and have no noise.
"""

import itertools
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarks.machinery.console import console
from benchmarks.machinery.provenance import machine, provenance
from benchmarks.machinery.store import Store
from fisher8_jax import Gaussian, fisher8_nll
from fisher8_jax.optimizers import scale_by_kl_radius

ROUNDS = 15


class Case(NamedTuple):
    """A network with a batch, and how many steps one timed call makes."""

    forward: Callable[[Any, Array], Gaussian]
    params: Any
    inputs: Array
    steps: int


def measure(store: Store) -> None:
    """Times all networks on one core and writes one cell for each."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for name, case in make_cases().items():
        result = compare(case)
        store.write(
            f"radius-cost/{_slug(name)}",
            spec={"network": name, "rounds": ROUNDS},
            result={"ratios": result, "machine": machine()},
            provenance=provenance("python -m benchmarks radius --cost"),
        )
        console.print(f"{name}: " + ", ".join(f"{k} {r['median']:.3f}" for k, r in result.items()))


def make_cases() -> dict[str, Case]:
    """The three networks."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Array:
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    def dense(*widths: int) -> list[tuple[Array, Array]]:
        pairs = itertools.pairwise(widths)
        return [(normal(a, b) / a**0.5, jnp.zeros(b)) for a, b in pairs]

    filters = [normal(3, 3, a, b) / (9 * a) ** 0.5 for a, b in ((1, 16), (16, 32))]
    return {
        "MLP 2x50, batch 32": Case(_mlp, dense(8, 50, 50, 2), normal(32, 8), 200),
        "MLP 3x1024, batch 1024": Case(_mlp, dense(64, 1024, 1024, 1024, 2), normal(1024, 64), 1),
        "CNN 16-32, batch 128": Case(
            _cnn, (filters, dense(7 * 7 * 32, 64, 2)), normal(128, 28, 28, 1), 1
        ),
    }


def compare(case: Case) -> dict[str, dict[str, float]]:
    """Ratios to plain Fisher8 of the step with a radius that is measured in several ways."""
    quarter = max(1, len(case.inputs) // 4)
    steps = {"plain": make_step(case, None), "batch": make_step(case, len(case.inputs))}
    steps["quarter of the batch"] = make_step(case, quarter)
    steps["difference"] = make_step(case, len(case.inputs), measure="difference")
    state = optax.trace(0.9).init(case.params)
    calls = {
        k: _repeated(step, case).lower(case.params, state).compile() for k, step in steps.items()
    }
    flops = {k: _flops(step, case.params, state) for k, step in steps.items()}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS + 1):
        for name, call in calls.items():
            began = time.process_time()
            jax.block_until_ready(call(case.params, state))
            times[name].append(time.process_time() - began)
    plain = np.array(times["plain"][1:])  # the first round warms up
    return {
        name: _summary(np.array(times[name][1:]) / plain, flops[name] / flops["plain"])
        for name in steps
        if name != "plain"
    }


def make_step(
    case: Case, measured: int | None, **options: Any
) -> Callable[[Any, Any], tuple[Any, Any]]:
    """A training step with momentum; `measured` is how many examples the radius looks at."""
    momentum, radius = optax.trace(0.9), scale_by_kl_radius(0.01, **options)
    targets = jnp.sin(case.inputs.reshape(len(case.inputs), -1)[:, 0])

    def step(params: Any, state: Any) -> tuple[Any, Any]:
        def loss(params: Any) -> Array:
            return fisher8_nll(case.forward(params, case.inputs), targets).mean()

        gradients = jax.grad(loss)(params)
        updates, state = momentum.update(gradients, state, params)
        if measured is None:
            updates = jax.tree.map(lambda u: -1e-3 * u, updates)
        else:
            part = case.inputs[:measured]
            updates, _ = radius.update(
                updates, radius.init(params), params, predict=lambda p: case.forward(p, part)
            )
            updates = jax.tree.map(jnp.negative, updates)
        return optax.apply_updates(params, updates), state

    return step


def _repeated(step: Callable[..., Any], case: Case) -> Any:
    return jax.jit(
        lambda params, state: jax.lax.fori_loop(
            0, case.steps, lambda _, carry: step(*carry), (params, state)
        )
    )


def _flops(step: Callable[..., Any], params: Any, state: Any) -> float:
    analysis = jax.jit(step).lower(params, state).compile().cost_analysis()
    return float((analysis or {}).get("flops", np.nan))


def _summary(ratios: np.ndarray, flops: float) -> dict[str, float]:
    low, median, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    return {"median": float(median), "low": float(low), "high": float(high), "flops": flops}


def _mlp(params: Any, x: Array) -> Gaussian:
    for weights, bias in params[:-1]:
        x = jax.nn.elu(x @ weights + bias)
    weights, bias = params[-1]
    outputs = x @ weights + bias
    return Gaussian(outputs[:, 0], outputs[:, 1])


def _cnn(params: Any, x: Array) -> Gaussian:
    filters, dense = params
    for kernel in filters:
        x = jax.lax.conv_general_dilated(
            x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x)
    return _mlp(dense, x.reshape(len(x), -1))


def _slug(name: str) -> str:
    return name.lower().replace(",", "").replace(" ", "-")
