"""`python -m fisher8_jax check`: does the library compute what it should on this machine?

Gradients in float32, as users compute them, are compared with formulas in NumPy's float64 that
share no code with the library. Step costs are wall time of compiled steps.
"""

import argparse
import importlib.metadata
import itertools
import platform
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fisher8_jax._fisher8 import fisher8, fisher8_nll
from fisher8_jax.command._csv import CommandError
from fisher8_jax.curvature import network_gradient
from fisher8_jax.families import Gaussian

_REQUIRED = ("fisher8_jax", "jax", "jaxlib", "optax", "flax", "chex", "numpy")
_OPTIONAL = ("scikit-learn", "narwhals", "pandas", "matplotlib", "orbax-checkpoint")

# Relative errors in float32. The natural gradient solves a linear system, which loses digits.
_TOLERANCE = {"fisher8": 1e-5, "network_gradient": 1e-3}
_DAMPING = 0.1

# Rounds over all steps, and the seconds of one sample in a round.
_ROUNDS, _SAMPLE = 10, 0.01

Params = dict[str, Any]


def run_check(arguments: argparse.Namespace) -> int:
    """Prints everything; the exit code is 0 if the gradients are exact."""
    for option, value in (("--rows", arguments.rows), ("--width", arguments.width)):
        if value < 2:
            raise CommandError(f"`{option}` must be at least 2, got {value}.")
    print(_describe_machine())
    errors = {"fisher8": fisher8_error(), "network_gradient": network_gradient_error()}
    print("\nRelative error in float32 against float64 formulas")
    for name, error in errors.items():
        verdict = "exact" if error <= _TOLERANCE[name] else "NOT EXACT"
        print(f"  {name:<18}{error:>9.1e}   {verdict} (at most {_TOLERANCE[name]:.0e})")
    print(f"\nStep cost, MLP 8-{arguments.width}-{arguments.width}-2, {arguments.rows} rows")
    seconds = step_seconds(arguments.rows, arguments.width)
    for name, value in seconds.items():
        ratio = value / seconds["NLL"]
        print(f"  {name:<18}{1e3 * value:>9.3f} ms   {ratio:.2f} times a step of the NLL")
    if all(error <= _TOLERANCE[name] for name, error in errors.items()):
        return 0
    print(
        "\nNot exact: this device rounds matrix products. Try again with the environment variable "
        "JAX_DEFAULT_MATMUL_PRECISION=highest."
    )
    return 1


def _describe_machine() -> str:
    lines = [f"Python {platform.python_version()} on {platform.platform()}"]
    for names in (_REQUIRED, _OPTIONAL):
        lines.append(", ".join(f"{name} {_version(name)}" for name in names))
    for device in jax.devices():
        lines.append(f"device {device.id}: {device.platform}, {device.device_kind}")
    precision = getattr(jax.config, "jax_default_matmul_precision", None)
    lines.append(f"matmul precision {precision or 'default'}, default dtype {jnp.zeros(()).dtype}")
    return "\n".join(lines)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _problem(rows: int, inputs: int, *widths: int) -> tuple[Params, np.ndarray, np.ndarray]:
    """Weights and rows in float32, the same on every machine."""
    rng = np.random.default_rng(0)
    sizes = (inputs, *widths, 2)
    params: Params = {}
    for index, (n, m) in enumerate(itertools.pairwise(sizes)):
        params[f"kernel{index}"] = (rng.normal(size=(n, m)) / np.sqrt(n)).astype(np.float32)
        params[f"bias{index}"] = (0.1 * rng.normal(size=m)).astype(np.float32)
    x = rng.normal(size=(rows, inputs)).astype(np.float32)
    return params, x, rng.normal(size=rows).astype(np.float32)


def _predict(params: Params, x: jax.Array) -> Gaussian:
    last = len(params) // 2 - 1
    for index in range(last):
        x = jnp.tanh(x @ params[f"kernel{index}"] + params[f"bias{index}"])
    outputs = x @ params[f"kernel{last}"] + params[f"bias{last}"]
    return Gaussian(outputs[..., 0], outputs[..., 1])


def fisher8_error() -> float:
    """The cotangents against normalised natural residuals."""
    rng = np.random.default_rng(1)
    mean, log_variance, targets = rng.normal(size=(3, 512)).astype(np.float32)

    def loss(dist: Gaussian) -> jax.Array:
        return fisher8(dist).nll(targets).mean()

    found = jax.jit(jax.grad(loss))(Gaussian(jnp.asarray(mean), jnp.asarray(log_variance)))
    residual = mean.astype(np.float64) - targets
    expected = residual, 1 - residual**2 * np.exp(-log_variance.astype(np.float64))
    pairs = zip((found.mean, found.log_variance), expected, strict=True)
    return max(_distance(one, other / np.linalg.norm(other)) for one, other in pairs)


def network_gradient_error() -> float:
    """The parameter-space natural gradient against a dense solve."""
    params, x, y = _problem(48, 3, 8)
    targets = jnp.asarray(y)
    step = jax.jit(lambda p: network_gradient(_predict, p, x, targets, damping=_DAMPING).gradient)(
        params
    )
    found = np.concatenate([np.ravel(step[name]) for name in sorted(params)])
    return _distance(found, _dense_natural_gradient(params, x, y))


def _dense_natural_gradient(params: Params, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(J' F J / n + damping)^-1 J' g with every matrix written out, by the chain rule by hand."""
    p = {name: leaf.astype(np.float64) for name, leaf in params.items()}
    rows, width = len(x), p["bias0"].size
    x, y = x.astype(np.float64), y.astype(np.float64)
    hidden = np.tanh(x @ p["kernel0"] + p["bias0"])
    mean, log_variance = (hidden @ p["kernel1"] + p["bias1"]).T
    slope = (1 - hidden**2)[:, None, :] * p["kernel1"].T  # (rows, outputs, hidden)
    jacobian = {
        "bias0": slope,
        "bias1": np.broadcast_to(np.eye(2), (rows, 2, 2)),
        "kernel0": np.einsum("ni,noh->noih", x, slope).reshape(rows, 2, -1),
        "kernel1": np.einsum("nh,oc->nohc", hidden, np.eye(2)).reshape(rows, 2, 2 * width),
    }
    flat = np.concatenate([jacobian[name] for name in sorted(params)], axis=2)
    precision = np.exp(-log_variance)
    fisher = np.stack([precision, np.full(rows, 0.5)], axis=1) / rows
    cotangent = (
        np.stack([(mean - y) * precision, 0.5 * (1 - (mean - y) ** 2 * precision)], axis=1) / rows
    )
    matrix = np.einsum("nop,no,noq->pq", flat, fisher, flat)
    gradient = np.einsum("nop,no->p", flat, cotangent)
    return np.linalg.solve(matrix + _DAMPING * np.eye(len(matrix)), gradient)


def _distance(found: Any, expected: np.ndarray) -> float:
    """Relative to the length of what is expected; nan counts as infinitely far."""
    difference = np.asarray(found, np.float64) - expected
    return float(np.nan_to_num(np.linalg.norm(difference) / np.linalg.norm(expected), nan=np.inf))


def step_seconds(rows: int, width: int) -> dict[str, float]:
    """The shortest wall time of a gradient, which other programs disturb least, in turn."""
    params, x, y = jax.device_put(_problem(rows, 8, width, width))
    programs: dict[str, Callable[[Params], object]] = {
        "NLL": jax.grad(lambda p: _predict(p, x).nll(y).mean()),
        "fisher8": jax.grad(lambda p: fisher8_nll(_predict(p, x), y).mean()),
        "network_gradient": lambda p: network_gradient(_predict, p, x, y).gradient,
    }
    steps = {name: jax.jit(program) for name, program in programs.items()}
    for step in steps.values():
        jax.block_until_ready(step(params))  # compiles
    # Short steps are repeated, so that the clock and a cold cache have no part in them.
    calls = {name: max(1, int(_SAMPLE / _seconds(step, params, 1))) for name, step in steps.items()}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(_ROUNDS):
        for name, step in steps.items():
            times[name].append(_seconds(step, params, calls[name]))
    return {name: min(values) for name, values in times.items()}


def _seconds(step: Callable[[Params], object], params: Params, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        result = step(params)
    jax.block_until_ready(result)
    return (time.perf_counter() - start) / calls
