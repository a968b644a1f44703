"""Held-out NLL of the natural gradient for fixed dampings and for the Levenberg-Marquardt rule.

Two made-up regressions, a stiff one and a noisy one, trained by the preset with nothing changed but
the damping. The rule costs one more forward pass a step, which is not counted against it.
"""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarks.experiments.damping.problems import PROBLEMS, Data, draw
from benchmarks.machinery.console import progress
from benchmarks.machinery.document import Block, Paragraph, Table
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.store import Store
from fisher8_jax import Gaussian, network_gradient, network_optimizer
from fisher8_jax.curvature import NetworkGradient

CELL = "damping/levenberg"
FIXED = (0.01, 0.1, 1.0, 10.0)
START = 0.1
MAX_KL = 0.3
ROWS, BATCH, WIDTH = 1000, 64, 50


def run(steps: int, seeds: int, results: str | Path) -> None:
    """Measures and stores."""
    rows = []
    with progress("damping", len(PROBLEMS)) as advance:
        for problem in PROBLEMS:
            rows += measure(problem, steps, seeds)
            advance(1)
    spec = {"steps": steps, "seeds": seeds, "rows": ROWS, "batch": BATCH}
    command = f"python -m benchmarks damping --steps {steps} --seeds {seeds}"
    Store(results).write(CELL, spec=spec, result={"rows": rows}, provenance=provenance(command))


def predict_one(params: dict[str, Array], x: Array) -> Gaussian:
    hidden = jax.nn.silu(x @ params["first"] + params["first_bias"])
    hidden = jax.nn.silu(hidden @ params["second"] + params["second_bias"])
    return Gaussian(*(hidden @ params["head"] + params["head_bias"]))


def draw_params(key: Array, inputs: int) -> dict[str, Array]:
    keys = jax.random.split(key, 3)

    def kernel(key: Array, rows: int, columns: int) -> Array:
        return jax.random.normal(key, (rows, columns)) * rows**-0.5

    return {
        "first": kernel(keys[0], inputs, WIDTH),
        "first_bias": jnp.zeros(WIDTH),
        "second": kernel(keys[1], WIDTH, WIDTH),
        "second_bias": jnp.zeros(WIDTH),
        "head": 0.1 * kernel(keys[2], WIDTH, 2),
        "head_bias": jnp.zeros(2),
    }


def mean_nll(params: Any, inputs: Array, targets: Array) -> Array:
    return jax.vmap(predict_one, (None, 0))(params, inputs).nll(targets).mean()


def train(problem: str, steps: int, adaptive: bool, damping: Array, seed: Array) -> Any:
    """One training; the held-out NLL and the last damping."""
    data: Data = draw(problem, seed, ROWS)
    params = draw_params(jax.random.key(seed + 1000), data.inputs.shape[1])
    optimizer = network_optimizer(steps, max_kl=MAX_KL)

    def step(carry: Any, key: Array) -> tuple[Any, None]:
        params, state, damping = carry
        rows = jax.random.randint(key, (BATCH,), 0, ROWS)
        x, y = data.inputs[rows], data.targets[rows]
        step = network_gradient(predict_one, params, x, y, damping=damping)
        updates, state = optimizer.update(step.gradient, state, params, step_kl=step.step_kl)
        params = optax.apply_updates(params, updates)
        if adaptive:
            scale = optax.tree_utils.tree_get(state, "scale")
            ratio = reduction_ratio(step, scale, mean_nll(params, x, y))
            damping = adjust_damping(damping, ratio)
        return (params, state, damping), None

    keys = jax.random.split(jax.random.key(seed + 2000), steps)
    start = (params, optimizer.init(params), damping)
    (params, _, damping), _ = jax.lax.scan(step, start, keys)
    return mean_nll(params, data.test_inputs, data.test_targets), damping


def reduction_ratio(step: NetworkGradient, scale: Array, new_value: Array) -> Array:
    """The decrease of the loss over the one that the quadratic model predicts.

    Args:
        step: of the batch, without weights.
        scale: the factor on the gradient in the step that was made, that of the KL radius.
        new_value: the loss of the same batch after the step.
    """
    assert step.slope is not None
    assert step.step_kl is not None
    expected = scale * step.slope - jnp.square(scale) * step.step_kl
    return (step.value - new_value) / jnp.where(expected == 0, 1, expected)


def adjust_damping(
    damping: Array, ratio: Array, *, factor: float = 1.1, bounds: tuple[float, float] = (1e-3, 10.0)
) -> Array:
    """Less damping for a ratio above 3/4, more for one below 1/4 or not finite.

    Reference:
        Martens and Grosse, Optimizing neural networks with Kronecker-factored approximate
        curvature, ICML 2015, section 6.5.
    """
    is_good = ratio > 0.75
    is_fair = is_good | (ratio >= 0.25)
    change = jnp.where(is_good, 1 / factor, jnp.where(is_fair, 1, factor))
    return jnp.clip(damping * change, *bounds)


def measure(problem: str, steps: int, seeds: int) -> list[dict[str, Any]]:
    """One row for each fixed damping and one for the rule."""
    numbers = jnp.arange(seeds)
    rows = []
    for adaptive, values in ((False, FIXED), (True, (START,))):
        one = functools.partial(train, problem, steps, adaptive)
        runs = jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))
        nll, last = map(np.asarray, runs(jnp.array(values), numbers))
        for index, value in enumerate(values):
            rows.append(
                {
                    "problem": problem,
                    "damping": "rule" if adaptive else value,
                    "nll": float(nll[index].mean()),
                    "error": float(nll[index].std(ddof=1) / np.sqrt(seeds)),
                    "last_damping": float(np.median(last[index])),
                }
            )
    return rows


def blocks(store: Store) -> list[Block]:
    """The stored measurement; none if there is none."""
    result = store.read(CELL)
    if result is None:
        return []
    rows = [
        [
            row["problem"],
            str(row["damping"]),
            f"{row['nll']:.3f}",
            f"{row['error']:.3f}",
            f"{row['last_damping']:.3g}",
        ]
        for row in result["rows"]
    ]
    caption = (
        "Held-out NLL by damping of the natural gradient; `rule`: Levenberg-Marquardt from 0.1"
    )
    words = "Mean and standard error over seeds; the last column is the median damping at the end."
    return [Table(caption, ["problem", "damping", "NLL", "error", "last"], rows), Paragraph(words)]
