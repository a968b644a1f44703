"""A step of kfac-jax beside the natural gradient's, in the same interleaved run.

For an environment of its own that has kfac-jax with a JAX it works with (0.8 does, 0.10 does not)
and this checkout on its path:

    python -m benchmarks.costs.kfac_reference

Each library does what it is made for: kfac-jax a squared error of two outputs with its Kronecker
approximation, inverses renewed every step or every ten; the natural gradient a mean and a variance,
exactly. Both steps are called from Python, so the times contain the dispatch of one call.
"""

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarks.costs.overhead import apply_dense, dense
from benchmarks.machinery.provenance import machine, provenance
from benchmarks.machinery.store import DEFAULT_RESULTS, Store

CELL = "network_cost/kfac"
DAMPING = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--results", default=DEFAULT_RESULTS)
    args = parser.parse_args()
    rows = [
        measure("MLP 2x50, batch 32", (8, 50, 50, 2), 32, 20, args.rounds),
        measure("MLP 3x1024, batch 256", (64, 1024, 1024, 1024, 2), 256, 1, args.rounds),
    ]
    command = f"python -m benchmarks.costs.kfac_reference --rounds {args.rounds}"
    result = {"networks": rows, "machine": machine()}
    spec = {"rounds": args.rounds, "damping": DAMPING}
    Store(args.results).write(CELL, spec=spec, result=result, provenance=provenance(command))
    for row in rows:
        print(row)


def measure(name: str, widths: tuple[int, ...], batch: int, calls: int, rounds: int) -> Any:
    """The median processor time of a step of every method, in microseconds."""
    rng = np.random.default_rng(0)
    params = dense(rng, *widths)
    inputs = jnp.asarray(rng.normal(size=(batch, widths[0])), jnp.float32)
    targets = jnp.asarray(rng.normal(size=(batch, 2)), jnp.float32)
    steps = {
        "nll": nll_step(params, inputs, targets),
        "network": network_step(params, inputs, targets),
        "kfac, inverses every step": kfac_step(params, inputs, targets, 1),
        "kfac, inverses every 10 steps": kfac_step(params, inputs, targets, 10),
    }
    for step in steps.values():
        for _ in range(12):  # compiles all that a period contains
            step()
    seconds: dict[str, list[float]] = {method: [] for method in steps}
    for _ in range(rounds):
        for method, step in steps.items():
            begin = time.process_time()
            for _ in range(calls * 10):
                step()
            seconds[method].append((time.process_time() - begin) / (calls * 10))
    return {
        "network": name,
        "microseconds": {m: 1e6 * statistics.median(values) for m, values in seconds.items()},
    }


def _predict(params: Any, inputs: Array) -> Any:
    from fisher8_jax import Gaussian

    outputs = apply_dense(params, inputs)
    return Gaussian(outputs[:, 0], outputs[:, 1])


def nll_step(params: Any, inputs: Array, targets: Array) -> Callable[[], None]:
    @jax.jit
    def update(params: Any) -> Any:
        gradient = jax.grad(lambda p: _predict(p, inputs).nll(targets[:, 0]).mean())(params)
        return jax.tree.map(lambda p, g: p - 1e-4 * g, params, gradient)

    return lambda: jax.block_until_ready(update(params))


def network_step(params: Any, inputs: Array, targets: Array) -> Callable[[], None]:
    import optax

    from fisher8_jax import network_gradient, network_optimizer

    def predict_one(params: Any, example: Array) -> Any:
        return jax.tree.map(lambda leaf: leaf[0], _predict(params, example[None]))

    optimizer = network_optimizer(1000, max_kl=1e-8)
    state = optimizer.init(params)

    @jax.jit
    def update(params: Any, state: Any) -> Any:
        step = network_gradient(predict_one, params, inputs, targets[:, 0], damping=DAMPING)
        updates, state = optimizer.update(step.gradient, state, params, step_kl=step.step_kl)
        return optax.apply_updates(params, updates), state

    return lambda: jax.block_until_ready(update(params, state))


def kfac_step(params: Any, inputs: Array, targets: Array, period: int) -> Callable[[], None]:
    import kfac_jax

    def loss(params: Any, batch: Any) -> Array:
        outputs = apply_dense(params, batch[0])
        kfac_jax.register_squared_error_loss(outputs, batch[1])
        return jnp.mean(jnp.sum(jnp.square(outputs - batch[1]), -1))

    optimizer = kfac_jax.Optimizer(
        value_and_grad_func=jax.value_and_grad(loss),
        l2_reg=0.0,
        inverse_update_period=period,
        num_burnin_steps=0,
        min_damping=1e-4,
        multi_device=False,
    )
    key, batch = jax.random.key(0), (inputs, targets)
    held = [jax.tree.map(jnp.copy, params)]
    held.append(optimizer.init(held[0], key, batch))
    options = {"momentum": 0.0, "learning_rate": 1e-4, "damping": DAMPING}
    one = functools.partial(optimizer.step, batch=batch, **options)

    def step() -> None:
        held[:] = one(held[0], held[1], key)[:2]
        jax.block_until_ready(held[0])

    return step


if __name__ == "__main__":
    main()
