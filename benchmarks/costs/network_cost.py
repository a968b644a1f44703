"""Cost of the natural gradient in parameter space beside plain NLL, in the same interleaved run.

For six networks the whole step is compiled with plain NLL and SGD, with Adam, with
`fisher8_optimizer`, with `network_gradient` and its optimizer, and, where they fit, with the
Jacobian's rows written out, the way other dual solvers go. Each is compiled twice: as one jitted
step a call, and as steps inside a loop. They are called in turn, and the ratio of the processor
time of neighbouring calls is reported with its quartiles. Then a small network grows in batch,
width and targets. Memory is what the compiled step allocates for intermediate results. Last, the
errors of conjugate gradients at small variances.
"""

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from jax import Array

from benchmarks.costs import solver_errors
from benchmarks.costs.cost_networks import NETWORKS, Case, mlp
from benchmarks.machinery.console import progress
from benchmarks.machinery.document import Figure, Paragraph, Section, Table, print_section
from benchmarks.machinery.figures import to_png
from benchmarks.machinery.provenance import machine, provenance
from benchmarks.machinery.store import DEFAULT_RESULTS, Store
from fisher8_jax import (
    Gaussian,
    fisher8_nll,
    network_curvature,
    network_gradient,
    network_optimizer,
)
from fisher8_jax.optimizers import descend, fisher8_optimizer

DAMPING = 0.1
GROWTH = {
    "batch": (64, 128, 256, 512, 2048),
    "width": (100, 400),
    "targets": (2, 4, 16),
}
# Rows of the Jacobian beyond this many numbers, or systems of more unknowns, are not tried.
LARGEST_ROWS = 2**25
LARGEST_SYSTEM = 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=30, help="timed calls per network")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=(), help="cells to measure, by name; all")
    parser.add_argument("--results", default=DEFAULT_RESULTS, help="folder of the result files")


def run(args: argparse.Namespace) -> int:
    store, cases = Store(args.results), cells()
    if args.only:
        cases = {name: case for name, case in cases.items() if name.split("/")[1] in args.only}
    spec = {"rounds": args.rounds, "seed": args.seed, "damping": DAMPING}
    command = f"python -m benchmarks network_cost --rounds {args.rounds} --seed {args.seed}"
    name = "network_cost/iterations"
    if (not args.only or "iterations" in args.only) and store.read(name, spec) is None:
        rows = solver_errors.measure(args.seed, DAMPING)
        store.write(name, spec=spec, result={"rows": rows}, provenance=provenance(command))
    with progress("network_cost", len(cases)) as advance:
        for name, (draw_case, methods) in cases.items():
            if store.read(name, spec) is None:  # finished cells are kept
                result = measure(draw_case(np.random.default_rng(args.seed)), methods, args.rounds)
                result["machine"] = machine()
                store.write(name, spec=spec, result=result, provenance=provenance(command))
            advance(1)
    return print_section(section(store))


def cells() -> dict[str, tuple[Callable[[np.random.Generator], Case], list[str]]]:
    """The network and the methods of every cell.

    A network of 2x50 units and batch 32, or for targets 2x64 and 64, grows in one number.
    """
    found: dict[str, tuple[Callable[[np.random.Generator], Case], list[str]]] = {
        f"network_cost/{name}": (make, [m for m in STEPS if "mlp" in name or m not in CHEAPER])
        for name, make in NETWORKS.items()
    }
    for axis, values in GROWTH.items():
        fixed: dict[str, int] = {"batch": 64, "width": 64} if axis == "targets" else {}
        for value in values:
            make = _growing(fixed | {axis: value})
            found[f"network_cost/{axis}-{value}"] = (make, ["nll", "network", "rows"])
    return found


def _growing(sizes: dict[str, int]) -> Callable[[np.random.Generator], Case]:
    return lambda rng: mlp(rng, **sizes)


# Tiny steps: the same work, and thousands of steps that end nowhere.
_ADAM = optax.adam(1e-8)
_RADIUS = fisher8_optimizer(1000, max_kl=1e-8)
_NETWORK = network_optimizer(1000, max_kl=1e-8)
MEASURE_EVERY = 8  # steps that rely on one measurement, in a cheaper form of the radius
MEASURED_PART = 4  # one in so many rows is measured, in another one
_SELDOM = fisher8_optimizer(1000, max_kl=1e-8, measure_every=MEASURE_EVERY)
# The direction of `fisher8_optimizer` with a learning rate: what is left without the radius.
_DIRECTION = descend(optax.scale(1e-8), momentum=0.9, second_moment=0.99, protect_units=True)
CHEAPER = {"radius_8": _SELDOM, "radius_part": _RADIUS, "direction": _DIRECTION}
OPTIMIZERS = {"adam": _ADAM, "radius": _RADIUS, "network": _NETWORK} | CHEAPER


def nll_step(case: Case, params: Any, state: Any, targets: Array) -> tuple[Any, Any]:
    gradient = jax.grad(lambda p: case.predict(p, case.inputs).nll(targets).mean())(params)
    return jax.tree.map(lambda p, g: p - 1e-4 * g, params, gradient), state


def optax_step(case: Case, params: Any, state: Any, targets: Array) -> tuple[Any, Any]:
    gradient = jax.grad(lambda p: case.predict(p, case.inputs).nll(targets).mean())(params)
    updates, state = _ADAM.update(gradient, state, params)
    return optax.apply_updates(params, updates), state


def radius_step(
    case: Case, params: Any, state: Any, targets: Array, optimizer: Any = _RADIUS, part: int = 1
) -> tuple[Any, Any]:
    def predict(params: Any) -> Gaussian:
        return case.predict(params, case.inputs)

    def measured(params: Any) -> Gaussian:
        return case.predict(params, case.inputs[: len(case.inputs) // part])

    gradient = jax.grad(lambda p: fisher8_nll(predict(p), targets).mean())(params)
    updates, state = optimizer.update(gradient, state, params, predict=measured)
    return optax.apply_updates(params, updates), state


def network_step(case: Case, params: Any, state: Any, targets: Array) -> tuple[Any, Any]:
    step = network_gradient(case.predict_one, params, case.inputs, targets, damping=DAMPING)
    updates, state = _NETWORK.update(step.gradient, state, params, step_kl=step.step_kl)
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


STEPS: dict[str, Callable[..., tuple[Any, Any]]] = {
    "nll": nll_step,
    "adam": optax_step,
    "radius": radius_step,
    "radius_8": functools.partial(radius_step, optimizer=_SELDOM),
    "radius_part": functools.partial(radius_step, part=MEASURED_PART),
    "direction": functools.partial(radius_step, optimizer=_DIRECTION),
    "network": network_step,
    "rows": rows_step,
}


class Program:
    """`inner` steps as one compiled program, each call of which goes on where the last one ended.

    Inputs and the optimizer's state are arguments and results of the program, so that nothing is
    computed at compile time or left out.
    """

    def __init__(self, method: str, case: Case):
        state = OPTIMIZERS[method].init(case.params) if method in OPTIMIZERS else ()

        def steps(params: Any, state: Any, inputs: Array, targets: Array) -> Any:
            one = functools.partial(STEPS[method], case._replace(inputs=inputs), targets=targets)
            if case.inner == 1:
                return one(params, state)
            return jax.lax.fori_loop(0, case.inner, lambda _, c: one(*c), (params, state))

        self.carry, self.batch = (case.params, state), (case.inputs, case.targets)
        begin = time.process_time()
        self.compiled: Any = jax.jit(steps).lower(*self.carry, *self.batch).compile()
        self.compile_seconds = time.process_time() - begin

    def run(self, calls: int) -> None:
        for _ in range(calls):
            self.carry = self.compiled(*self.carry, *self.batch)
            jax.block_until_ready(self.carry)

    @property
    def megabytes(self) -> float:
        """Of intermediate results that the compiler has planned for."""
        return self.compiled.memory_analysis().temp_size_in_bytes / 1e6


def measure(case: Case, methods: list[str], rounds: int) -> dict[str, Any]:
    """Time and memory of every method, in a loop of `inner` steps and as one step a call."""
    fits = case.row_numbers <= LARGEST_ROWS and 2 * case.targets.size <= LARGEST_SYSTEM
    methods = [m for m in methods if m != "rows" or fits]
    in_loop = interleave(case, methods, rounds)
    per_call = interleave(case._replace(inner=1), [m for m in methods if m != "rows"], rounds)
    row = {"network": case.name, "row_megabytes": 4e-6 * case.row_numbers, "solver": solver(case)}
    return row | in_loop | {"per_call": per_call}


def solver(case: Case) -> str:
    """What 'auto' takes."""
    found = []

    def curvature(params: Any, inputs: Array) -> None:
        found.append(network_curvature(case.predict_one, params, inputs).solver)

    jax.eval_shape(curvature, case.params, case.inputs)
    return str(found[0])


def interleave(case: Case, methods: list[str], rounds: int) -> dict[str, Any]:
    """Microseconds of processor time per step of every method, their ratios, memory, compilation.

    Single steps are timed in groups, as many as the cheaper radius needs for one measurement.
    """
    calls = MEASURE_EVERY if case.inner == 1 else 1
    programs = {method: Program(method, case) for method in methods}
    for program in programs.values():
        program.run(calls)
    seconds: dict[str, list[float]] = {method: [] for method in methods}
    for index in range(rounds):
        # The order rotates, so that none always runs on a warmer cache.
        for turn in range(len(methods)):
            method = methods[(index + turn) % len(methods)]
            begin = time.process_time()
            programs[method].run(calls)
            seconds[method].append((time.process_time() - begin) / (calls * case.inner))
    return {
        "microseconds": {m: 1e6 * statistics.median(values) for m, values in seconds.items()},
        "ratios": {m: quartiles(seconds[m], seconds["nll"]) for m in methods if m != "nll"},
        "megabytes": {m: program.megabytes for m, program in programs.items()},
        "compile_seconds": {m: program.compile_seconds for m, program in programs.items()},
    }


def quartiles(ours: list[float], plain: list[float]) -> list[float]:
    pairs = zip(ours, plain, strict=True)
    return statistics.quantiles([a / b for a, b in pairs], n=4)


def section(store: Store) -> Section | None:
    """The stored measurements; None if there are none."""
    stored = {name.split("/")[1]: store.read(name) for name in cells()}
    result = {name: row for name, row in stored.items() if row is not None}
    if not result:
        return None
    header = ["network", "solver", "form", "NLL us", "us", "network", "fisher8_optimizer"]
    header += ["measured every 8 steps", "on a quarter", "not measured", "Adam", "rows"]
    header += ["compiles in", "MB", "MB of rows"]
    caption = "Steps over a plain NLL step in the same form, processor time, interleaved"
    named = {name: row for name, row in result.items() if name in NETWORKS}
    rows = [line for row in named.values() for line in _rows(row, row["network"])]
    grown = [line for name, row in result.items() if name not in named for line in _rows(row, name)]
    growth = "The same as networks of 2x50 units, batch 32, and for targets 2x64, batch 64, grow"
    processor = next(iter(result.values()))["machine"]["processor"]
    words = (
        f"On one core of {processor}. A step is forward, backward, solve, "
        "radius and update; medians and quartiles. `rows` computes the same gradient from the "
        "Jacobian's rows, without a radius. `fisher8_optimizer` measures every step, every eighth "
        "one, each on a quarter of the rows; its direction alone has a learning rate. "
        "`compiles in` are seconds of its step and of Adam's. `MB` are the intermediate results of "
        "the compiled step."
    )
    figure = Figure("network_cost", functools.partial(draw, result), "Ratios as a network grows")
    tables = [Table(caption, header, rows), Table(growth, ["grows to", *header[1:]], grown)]
    if (iterations := store.read("network_cost/iterations")) is not None:
        tables.append(solver_errors.table(iterations["rows"]))
    return Section("Cost of the natural gradient", [*tables, figure, Paragraph(words)])


COLUMNS = ("network", "radius", "radius_8", "radius_part", "direction", "adam", "rows")


def _rows(row: dict[str, Any], name: str) -> list[list[str]]:
    forms = (("loop", row), ("call", row["per_call"]))
    return [[name, row["solver"], form, *_cells(cell, row)] for form, cell in forms]


def _cells(cell: dict[str, Any], row: dict[str, Any]) -> list[str]:
    def ratio(method: str) -> str:
        if method not in cell["ratios"]:
            return ""
        low, median, high = cell["ratios"][method]
        return f"{median:.2f} ({low:.2f} to {high:.2f})"

    times = [f"{cell['microseconds'][method]:.0f}" for method in ("nll", "network")]
    ratios = [ratio(method) for method in COLUMNS]
    numbers = cell["megabytes"]["network"], row["row_megabytes"]
    return [*times, *ratios, _compilation(cell), *(f"{number:.1f}" for number in numbers)]


def _compilation(cell: dict[str, Any]) -> str:
    """Seconds of `fisher8_optimizer` and of Adam."""
    seconds = cell.get("compile_seconds", {})
    both = [f"{seconds[method]:.1f}" for method in ("radius", "adam") if method in seconds]
    return " / ".join(both)


LINES = (("network", "o-", "natural gradient"), ("rows", "s--", "Jacobian rows"))


def draw(result: dict[str, Any]) -> bytes:
    """One panel for each way to grow."""
    options: dict[str, Any] = {"layout": "constrained", "sharey": True, "squeeze": False}
    figure, ((*axes,),) = plt.subplots(1, len(GROWTH), figsize=(10, 3.2), **options)
    for ax, axis in zip(axes, GROWTH, strict=True):
        rows = [(v, row) for v in GROWTH[axis] if (row := result.get(f"{axis}-{v}"))]
        for method, style, label in LINES:
            points = [(v, row["ratios"][method]) for v, row in rows if method in row["ratios"]]
            if not points:
                continue
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
