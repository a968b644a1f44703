"""Cost of Fisher8 in a compiled training step, beside plain NLL in the same interleaved run.

For three networks the whole step (forward, backward, SGD) is compiled with plain NLL, with the
`fisher8` op in front of the NLL, and with the fused `fisher8_nll`. They are called in turn, many
times, and the ratio of neighbouring calls is reported with its spread, so that a machine that is
busy for a while slows all. Also reported: the arrays saved for the backward pass, and what a step
with a batch sharded over eight devices communicates.
"""

import argparse
import functools
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from benchmarks.costs.scale_out_programs import read_collectives
from benchmarks.machinery.console import progress
from benchmarks.machinery.document import Paragraph, Section, Table, print_section
from benchmarks.machinery.provenance import machine, provenance
from benchmarks.machinery.store import DEFAULT_RESULTS, Store
from fisher8_jax import Gaussian, fisher8, fisher8_nll

DEVICES = 8

LOSSES = {
    "nll": lambda dist, targets: dist.nll(targets),
    "fisher8": lambda dist, targets: fisher8(dist).nll(targets),
    "fisher8_nll": fisher8_nll,
}
BASELINES = ("fisher8", "fisher8_nll")


class Problem(NamedTuple):
    """A network as a pure function, its parameters and one batch."""

    name: str
    apply: Callable[[Any, Array], Array]  # (rows, 2): mean and log-variance
    params: Any
    inputs: Array
    inner: int  # steps per timed call: short steps are repeated inside one compiled loop


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=60, help="timed pairs per network")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", default=DEFAULT_RESULTS, help="folder of the result files")


def run(args: argparse.Namespace) -> int:
    jax.config.update("jax_num_cpu_devices", DEVICES)
    rng = np.random.default_rng(args.seed)
    rows = []
    with progress("overhead", 3 * args.rounds) as advance:
        for problem in (small_mlp(rng), large_mlp(rng), small_cnn(rng)):
            seconds = interleaved_seconds(problem, args.rounds, advance)
            rows += [summary(problem, baseline, seconds) for baseline in BASELINES]
    result = {"networks": rows, "sharded_step": sharded_communication(rng), "machine": machine()}
    store = Store(args.results)
    spec = {"rounds": args.rounds, "seed": args.seed}
    command = f"python -m benchmarks overhead --rounds {args.rounds} --seed {args.seed}"
    store.write("overhead/cpu", spec=spec, result=result, provenance=provenance(command))
    return print_section(section(store))


def dense(rng: np.random.Generator, *widths: int) -> list[dict[str, Array]]:
    """Layers of a multilayer perceptron."""
    return [
        {
            "w": jnp.asarray(rng.normal(0, a**-0.5, (a, b)), jnp.float32),
            "b": jnp.zeros(b, jnp.float32),
        }
        for a, b in itertools.pairwise(widths)
    ]


def apply_dense(layers: list[dict[str, Array]], x: Array) -> Array:
    for layer in layers[:-1]:
        x = jax.nn.elu(x @ layer["w"] + layer["b"][None])
    return x @ layers[-1]["w"] + layers[-1]["b"][None]


def small_mlp(rng: np.random.Generator) -> Problem:
    inputs = jnp.asarray(rng.normal(size=(32, 8)), jnp.float32)
    return Problem("MLP 2x50, batch 32", apply_dense, dense(rng, 8, 50, 50, 2), inputs, 2000)


def large_mlp(rng: np.random.Generator) -> Problem:
    inputs = jnp.asarray(rng.normal(size=(1024, 64)), jnp.float32)
    params = dense(rng, 64, 1024, 1024, 1024, 2)
    return Problem("MLP 3x1024, batch 1024", apply_dense, params, inputs, 1)


def small_cnn(rng: np.random.Generator) -> Problem:
    def apply(params: Any, images: Array) -> Array:
        x = images
        for kernel in params["kernels"]:
            x = jax.lax.conv_general_dilated(
                x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = jax.nn.relu(x)
        return apply_dense(params["head"], x.reshape(len(x), -1))

    channels = (1, 16, 32)
    kernels = [
        jnp.asarray(rng.normal(0, (9 * a) ** -0.5, (3, 3, a, b)), jnp.float32)
        for a, b in itertools.pairwise(channels)
    ]
    params = {"kernels": kernels, "head": dense(rng, 7 * 7 * 32, 64, 2)}
    images = jnp.asarray(rng.normal(size=(128, 28, 28, 1)), jnp.float32)
    return Problem("CNN 28x28, batch 128", apply, params, images, 4)


def loss_of(method: str, problem: Problem, params: Any, targets: Array) -> Array:
    outputs = problem.apply(params, problem.inputs)
    dist = Gaussian(outputs[:, 0], outputs[:, 1])
    return LOSSES[method](dist, targets).mean()


def step_of(method: str, problem: Problem) -> Callable[[Any, Array], Any]:
    """`inner` training steps as one compiled function of the parameters and targets."""
    optimizer = optax.sgd(1e-4)

    def steps(params: Any, targets: Array) -> Any:
        def body(_: Array, carry: Any) -> Any:
            params, state = carry
            gradients = jax.grad(functools.partial(loss_of, method, problem))(params, targets)
            updates, state = optimizer.update(gradients, state, params)
            return optax.apply_updates(params, updates), state

        return jax.lax.fori_loop(0, problem.inner, body, (params, optimizer.init(params)))[0]

    return jax.jit(steps)


def interleaved_seconds(
    problem: Problem, rounds: int, advance: Callable[[float], None]
) -> dict[str, list[float]]:
    """Seconds per step of every method, one entry per round."""
    targets = jnp.asarray(np.random.default_rng(1).normal(size=len(problem.inputs)), jnp.float32)
    steps = {method: step_of(method, problem) for method in LOSSES}
    for step in steps.values():
        jax.block_until_ready(step(problem.params, targets))
    seconds: dict[str, list[float]] = {method: [] for method in steps}
    for index in range(rounds):
        # The order rotates, so that none always runs on a warmer cache.
        order = [list(steps)[(index + place) % len(steps)] for place in range(len(steps))]
        for method in order:
            begin = time.perf_counter()
            jax.block_until_ready(steps[method](problem.params, targets))
            seconds[method].append((time.perf_counter() - begin) / problem.inner)
        advance(1)
    return seconds


def summary(problem: Problem, baseline: str, seconds: dict[str, list[float]]) -> dict[str, Any]:
    """The ratio of neighbouring calls, its quartiles, and what is saved for the backward pass."""
    pairs = zip(seconds[baseline], seconds["nll"], strict=True)
    low, median, high = statistics.quantiles([ours / plain for ours, plain in pairs], n=4)
    targets = jnp.zeros(len(problem.inputs), jnp.float32)
    extra = saved_bytes(baseline, problem, targets) - saved_bytes("nll", problem, targets)
    return {
        "network": problem.name,
        "method": baseline,
        "median_ratio": median,
        "ratio_quartiles": [low, high],
        "median_microseconds": {
            method: 1e6 * statistics.median(seconds[method]) for method in ("nll", baseline)
        },
        "extra_saved_arrays": extra / targets.nbytes,
    }


def saved_bytes(method: str, problem: Problem, targets: Array) -> int:
    """What is kept between the forward and the backward pass, parameters and inputs aside."""
    _, pull_back = jax.vjp(lambda params: loss_of(method, problem, params, targets), problem.params)
    given = {id(leaf) for leaf in jax.tree.leaves((problem.params, problem.inputs, targets))}
    leaves = [leaf for leaf in jax.tree.leaves(pull_back) if hasattr(leaf, "nbytes")]
    unique = {id(leaf): leaf.nbytes for leaf in leaves if id(leaf) not in given}
    return sum(unique.values())


def sharded_communication(rng: np.random.Generator) -> dict[str, int]:
    """Elements that all reductions of a step with a sharded batch hold, per method."""
    problem = small_mlp(rng)
    mesh = jax.make_mesh((DEVICES,), ("data",), axis_types=(AxisType.Auto,))
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    inputs = jax.device_put(problem.inputs, sharding)
    targets = jax.device_put(jnp.zeros(len(inputs), jnp.float32), sharding)

    def reduced(method: str) -> int:
        def gradient(params: Any, inputs: Array, targets: Array) -> Any:
            local = problem._replace(inputs=inputs)
            return jax.grad(functools.partial(loss_of, method, local))(params, targets)

        text = jax.jit(gradient).lower(problem.params, inputs, targets).compile().as_text()
        return reduced_elements(text or "")

    return {"devices": DEVICES, **{method: reduced(method) for method in LOSSES}}


def reduced_elements(program: str) -> int:
    """The number of array elements in the results of all collectives of a compiled program."""
    return sum(collective.elements for collective in read_collectives(program))


def section(store: Store) -> Section | None:
    """The stored measurement; None if there is none."""
    result = store.read("overhead/cpu")
    if result is None:
        return None
    header = ["network", "method", "NLL us", "us", "ratio", "quartiles", "saved"]
    rows = [_row(row) for row in result["networks"]]
    caption = "A compiled training step, Fisher8 over plain NLL, interleaved: median ratio"
    step, machine = result["sharded_step"], result["machine"]
    words = (
        f"On {machine['cores']} cores of {machine['processor']}. `saved` counts the arrays of "
        "batch size that are kept for the backward pass beyond those of NLL. Sharded over "
        f"{step['devices']} devices a step reduces {step['nll']} numbers with NLL, "
        f"{step['fisher8'] - step['nll']} more with the op and "
        f"{step['fisher8_nll'] - step['nll']} more with the fused loss."
    )
    return Section("Cost of a step", [Table(caption, header, rows), Paragraph(words)])


def _row(row: dict[str, Any]) -> list[str]:
    times, (low, high) = row["median_microseconds"], row["ratio_quartiles"]
    return [
        row["network"],
        row["method"],
        f"{times['nll']:.1f}",
        f"{times[row['method']]:.1f}",
        f"{row['median_ratio']:.3f}",
        f"{low:.3f} to {high:.3f}",
        f"{row['extra_saved_arrays']:+.2f}",
    ]
