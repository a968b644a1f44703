"""Cost of the natural gradient in parameter space beside plain NLL, in the same interleaved run.

For three networks the whole step is compiled with plain NLL and SGD, with `network_gradient` and
its preset, and with the Jacobian's rows written out, the way other dual solvers go. They are called
in turn, and the ratio of the processor time of neighbouring calls is reported with its quartiles.
Then a small network grows in batch, width and targets. Memory is what the compiled step allocates
for intermediate results.
"""

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from jax import Array

from benchmarks.costs.overhead import apply_dense, dense, small_cnn, small_mlp
from benchmarks.machinery.console import progress
from benchmarks.machinery.document import Figure, Paragraph, Section, Table, print_section
from benchmarks.machinery.figures import to_png
from benchmarks.machinery.provenance import machine, provenance
from benchmarks.machinery.store import DEFAULT_RESULTS, Store
from fisher8_jax import Gaussian, network_gradient, network_optimizer

CELL = "network_cost/cpu"
DAMPING = 0.1
GROWTH = {
    "batch": (16, 32, 64, 128, 256),
    "width": (25, 50, 100, 200, 400),
    "targets": (1, 2, 4, 8),
}
# Rows of the Jacobian beyond this many numbers are not tried.
LARGEST_ROWS = 2**28


class Case(NamedTuple):
    """A network as a function of one example, its parameters and one batch."""

    name: str
    apply: Callable[[Any, Array], Array]  # a batch of rows to (rows, 2 targets)
    params: Any
    inputs: Array
    inner: int  # steps per timed call

    def predict(self, params: Any, inputs: Array) -> Gaussian:
        mean, log_variance = jnp.split(self.apply(params, inputs), 2, axis=-1)
        return Gaussian(mean, log_variance)

    def predict_one(self, params: Any, example: Array) -> Gaussian:
        return jax.tree.map(lambda leaf: leaf[0], self.predict(params, example[None]))

    @property
    def targets(self) -> Array:
        shape = jax.eval_shape(self.predict, self.params, self.inputs).mean.shape
        return jnp.asarray(np.random.default_rng(1).normal(size=shape), jnp.float32)

    @property
    def row_numbers(self) -> int:
        size = sum(leaf.size for leaf in jax.tree.leaves(self.params))
        return 2 * self.targets.size * size


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=30, help="timed calls per network")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", default=DEFAULT_RESULTS, help="folder of the result files")


def run(args: argparse.Namespace) -> int:
    rng = np.random.default_rng(args.seed)
    networks, growth = three_networks(rng), growing_networks(rng)
    with progress("network_cost", len(networks) + len(growth)) as advance:
        rows = [measure(case, args.rounds, advance) for case in networks]
        grown = [
            {"axis": axis, "value": value, **measure(case, args.rounds, advance)}
            for (axis, value), case in growth.items()
        ]
    result = {"networks": rows, "growth": grown, "machine": machine()}
    store = Store(args.results)
    command = f"python -m benchmarks network_cost --rounds {args.rounds} --seed {args.seed}"
    spec = {"rounds": args.rounds, "seed": args.seed, "damping": DAMPING}
    store.write(CELL, spec=spec, result=result, provenance=provenance(command))
    return print_section(section(store))


def three_networks(rng: np.random.Generator) -> list[Case]:
    mlp, cnn = small_mlp(rng), small_cnn(rng)
    inputs = jnp.asarray(rng.normal(size=(256, 64)), jnp.float32)
    layers = dense(rng, 64, 1024, 1024, 1024, 2)
    return [
        Case(mlp.name, mlp.apply, mlp.params, mlp.inputs, 200),
        Case("MLP 3x1024, batch 256", apply_dense, layers, inputs, 1),
        Case(cnn.name, cnn.apply, cnn.params, cnn.inputs, 2),
    ]


def growing_networks(rng: np.random.Generator) -> dict[tuple[str, int], Case]:
    """MLP 2x50 at batch 32 with one target, of which one number is changed."""

    def case(batch: int = 32, width: int = 50, targets: int = 1) -> Case:
        inputs = jnp.asarray(rng.normal(size=(batch, 8)), jnp.float32)
        layers = dense(rng, 8, width, width, 2 * targets)
        inner = max(1, 2**20 // (batch * width * targets**2))
        return Case("", apply_dense, layers, inputs, min(inner, 200))

    return {
        (axis, value): case(**{axis: value}) for axis, values in GROWTH.items() for value in values
    }


def nll_step(case: Case, params: Any, state: Any, targets: Array) -> tuple[Any, Any]:
    gradient = jax.grad(lambda p: case.predict(p, case.inputs).nll(targets).mean())(params)
    return jax.tree.map(lambda p, g: p - 1e-4 * g, params, gradient), state


def network_step(case: Case, params: Any, state: Any, targets: Array) -> tuple[Any, Any]:
    step = network_gradient(case.predict_one, params, case.inputs, targets, damping=DAMPING)
    # A tiny radius: the same work, and thousands of steps that end nowhere.
    optimizer = network_optimizer(1000, max_kl=1e-8)
    updates, state = optimizer.update(step.gradient, state, params, step_kl=step.step_kl)
    return optax.apply_updates(params, updates), state


def rows_step(case: Case, params: Any, state: Any, targets: Array) -> tuple[Any, Any]:
    """The same gradient with the Jacobian's rows as one array for each leaf."""

    def whitened(params: Any, example: Array, factor: Array) -> Array:
        vector = case.predict_one(params, example).to_vector()
        return jnp.einsum("...ij,...i->...j", factor, vector).reshape(-1)

    dist = case.predict(params, case.inputs)
    factor = jax.lax.stop_gradient(dist.fisher_factor())
    jacobian = jax.vmap(jax.jacrev(whitened), (None, 0, 0))(params, case.inputs, factor)
    rows = [leaf.reshape(leaf.shape[0] * leaf.shape[1], -1) for leaf in jax.tree.leaves(jacobian)]
    matrix = sum(row @ row.T for row in rows) / targets.size
    natural = dist.from_vector(
        jnp.concatenate([x.value[..., None] for x in dist.natural_score(targets).values()], -1)
    )
    right = jnp.einsum("...ij,...i->...j", factor, natural.to_vector()).reshape(-1) / targets.size
    damped = matrix + DAMPING * jnp.eye(len(right), dtype=right.dtype)
    solution = jax.scipy.linalg.solve(damped, right, assume_a="pos")
    steps = jax.tree.unflatten(jax.tree.structure(params), [solution @ row for row in rows])
    return jax.tree.map(lambda p, s: p - 1e-4 * s.reshape(p.shape), params, steps), state


STEPS = {"nll": nll_step, "network": network_step, "rows": rows_step}


def compiled_step(method: str, case: Case) -> Any:
    """`inner` steps as one compiled function of the parameters and targets.

    One step is called by itself: XLA's convolutions are far slower inside loops, for any method.
    """
    state = network_optimizer(1000).init(case.params) if method == "network" else ()

    def steps(params: Any, targets: Array) -> Any:
        one = functools.partial(STEPS[method], case, targets=targets)
        if case.inner == 1:
            return one(params, state)[0]
        return jax.lax.fori_loop(0, case.inner, lambda _, c: one(*c), (params, state))[0]

    return jax.jit(steps).lower(case.params, case.targets).compile()


def measure(case: Case, rounds: int, advance: Callable[[float], None]) -> dict[str, Any]:
    """Time and memory of every method, in a loop of `inner` steps and, by itself, per call."""
    methods = [m for m in STEPS if m != "rows" or case.row_numbers <= LARGEST_ROWS]
    in_loop = interleave(case, methods, rounds)
    per_call = interleave(case._replace(inner=1), ["nll", "network"], rounds)
    advance(1)
    row = {"network": case.name, "row_megabytes": 4e-6 * case.row_numbers}
    return row | in_loop | {"per_call": per_call}


def interleave(case: Case, methods: list[str], rounds: int) -> dict[str, Any]:
    """Microseconds of processor time per step of every method, their ratios, and memory."""
    targets = case.targets
    steps = {method: compiled_step(method, case) for method in methods}
    for step in steps.values():
        jax.block_until_ready(step(case.params, targets))
    seconds: dict[str, list[float]] = {method: [] for method in steps}
    for index in range(rounds):
        # The order rotates, so that none always runs on a warmer cache.
        for turn in range(len(methods)):
            method = methods[(index + turn) % len(methods)]
            begin = time.process_time()
            jax.block_until_ready(steps[method](case.params, targets))
            seconds[method].append((time.process_time() - begin) / case.inner)
    return {
        "microseconds": {m: 1e6 * statistics.median(values) for m, values in seconds.items()},
        "ratios": {m: quartiles(seconds[m], seconds["nll"]) for m in methods if m != "nll"},
        "megabytes": {m: planned_megabytes(step) for m, step in steps.items()},
    }


def quartiles(ours: list[float], plain: list[float]) -> list[float]:
    pairs = zip(ours, plain, strict=True)
    return statistics.quantiles([a / b for a, b in pairs], n=4)


def planned_megabytes(step: Any) -> float:
    """Megabytes of intermediate results that the compiler has planned for."""
    return step.memory_analysis().temp_size_in_bytes / 1e6


def section(store: Store) -> Section | None:
    """The stored measurement; None if there is none."""
    result = store.read(CELL)
    if result is None:
        return None
    caption = "The natural-gradient step over a plain NLL step, processor time, interleaved"
    header = [
        "network",
        "NLL us",
        "us",
        "ratio",
        "quartiles",
        "per call",
        "ratio of rows",
        "MB",
        "MB of rows",
    ]
    table = Table(caption, header, [_row(row) for row in result["networks"]])
    growth = Table(
        "The same as a network of 2x50 units grows from batch 32, width 50, one target",
        ["grows", "to", *header[1:]],
        [[row["axis"], str(row["value"]), *_row(row)[1:]] for row in result["growth"]],
    )
    words = (
        f"On {result['machine']['cores']} cores of {result['machine']['processor']}. A step is "
        "forward, backward, solve, radius and update. `rows` computes the same gradient from the "
        "Jacobian's rows, without a radius; where these take more than 1 GB only their size is "
        "given. `per call` is the ratio of one jitted step by itself, the others are those of "
        "loops. `MB` are the intermediate results of the compiled step."
    )
    figure = Figure("network_cost", functools.partial(draw, result), "Ratios as a network grows")
    return Section("Cost of the natural gradient", [table, growth, figure, Paragraph(words)])


def _row(row: dict[str, Any]) -> list[str]:
    low, median, high = row["ratios"]["network"]
    rows = row["ratios"].get("rows")
    times = row["microseconds"]
    return [
        row["network"],
        f"{times['nll']:.0f}",
        f"{times['network']:.0f}",
        f"{median:.2f}",
        f"{low:.2f} to {high:.2f}",
        f"{row['per_call']['ratios']['network'][1]:.2f}" if "per_call" in row else "",
        "" if rows is None else f"{rows[1]:.2f}",
        f"{row['megabytes']['network']:.1f}",
        f"{row['row_megabytes']:.1f}",
    ]


LINES = (("network", "o-", "natural gradient"), ("rows", "s--", "Jacobian rows"))


def draw(result: dict[str, Any]) -> bytes:
    """One panel for each way to grow."""
    options: dict[str, Any] = {"layout": "constrained", "sharey": True, "squeeze": False}
    figure, ((*axes,),) = plt.subplots(1, len(GROWTH), figsize=(10, 3.2), **options)
    for ax, axis in zip(axes, GROWTH, strict=True):
        rows = [row for row in result["growth"] if row["axis"] == axis]
        for method, style, label in LINES:
            points = [(r["value"], r["ratios"][method]) for r in rows if method in r["ratios"]]
            values, ratios = [p[0] for p in points], np.array([p[1] for p in points])
            ax.plot(values, ratios[:, 1], style, label=label)
            ax.fill_between(values, ratios[:, 0], ratios[:, 2], alpha=0.2)
        ax.set(xscale="log", yscale="log", xlabel=axis)
        ax.set_xticks(GROWTH[axis], [str(v) for v in GROWTH[axis]])
        ax.minorticks_off()
    axes[0].set_ylabel("step over plain NLL step")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return to_png(figure)
