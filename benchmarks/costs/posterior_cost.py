"""Time and memory of a posterior over rows and widths, beside its Jacobian written out.

Every entry is a process of its own, pinned to one core, without compiled programs: `cold` is the
first fit and what it compiles, `warm` the second, `predict` the second prediction of 10,000 rows.
The dense way writes the Jacobian of all rows in float64, multiplies it with itself and factorises,
for one precision; it is left out where its arrays exceed three gigabytes.
"""

import argparse
import functools
import itertools
import math
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.machinery.console import progress
from benchmarks.machinery.document import Block, Figure, Paragraph, Section, Table, print_section
from benchmarks.machinery.provenance import machine, peak_memory_bytes, provenance
from benchmarks.machinery.store import DEFAULT_RESULTS, Store
from benchmarks.machinery.threads import use_one_thread

ROWS = (300, 1000, 3000, 10_000, 30_000)
WIDTHS = (50, 256, 1024)
NEW_ROWS, FEATURES = 10_000, 8
LARGEST_DENSE = 3e9
LONG = 60.0  # seconds; a longer first fit is not repeated


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of entries, and where results go."""
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS)
    parser.add_argument("--widths", nargs="+", type=int, default=WIDTHS)
    parser.add_argument("--results", type=Path, default=DEFAULT_RESULTS)
    parser.add_argument("--table", action="store_true", help="only print what is there")


def run(args: argparse.Namespace) -> int:
    """Measures what is missing, one entry after the other, and prints the table."""
    store = Store(args.results)
    entries = [(rows, width) for width in args.widths for rows in args.rows]
    missing = [e for e in entries if store.read(cell_of(*e), spec_of(*e)) is None]
    with progress("Posterior", len(missing)) as advance:
        for rows, width in [] if args.table else missing:
            result = in_new_process(posterior_costs, rows, width)
            is_small = dense_bytes(rows, width) <= LARGEST_DENSE
            result["dense"] = in_new_process(dense_costs, rows, width) if is_small else None
            result["machine"] = machine()
            command = f"python -m benchmarks posterior_cost --rows {rows} --widths {width}"
            spec = spec_of(rows, width)
            store.write(
                cell_of(rows, width), spec=spec, result=result, provenance=provenance(command)
            )
            advance(1)
    return print_section(section(store))


def cell_of(rows: int, width: int) -> str:
    return f"posterior_cost/{width}-{rows}"


def spec_of(rows: int, width: int) -> dict[str, Any]:
    return {"rows": rows, "width": width, "new_rows": NEW_ROWS, "features": FEATURES}


def params_of(width: int) -> int:
    """Weights and biases of two layers and the outputs."""
    return (FEATURES + 1) * width + (width + 1) * width + 2 * (width + 1)


def dense_bytes(rows: int, width: int) -> float:
    """Of the Jacobian and of its smaller product."""
    return 8 * (2 * rows * params_of(width) + 2 * min(2 * rows, params_of(width)) ** 2)


def in_new_process(function: Any, rows: int, width: int) -> dict[str, Any]:
    """What a function returns in a process that has done nothing else, and its peak memory."""
    with ProcessPoolExecutor(1, get_context("spawn"), _settle) as pool:
        return pool.submit(_with_peak, functools.partial(function, rows, width)).result()


def _settle() -> None:
    use_one_thread()
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _with_peak(function: Any) -> dict[str, Any]:
    import jax  # noqa: F401

    before = peak_memory_bytes()
    return function() | {"peak": peak_memory_bytes(), "before": before}


def posterior_costs(rows: int, width: int) -> dict[str, Any]:
    """Processor seconds of `fit_posterior` and of a prediction."""
    import jax

    from fisher8_jax.posterior import fit_posterior

    inputs, targets, new, params = problem(rows, width)
    seconds: dict[str, float | None] = {"warm": None}
    for name in ("cold", "warm"):
        if name == "warm" and (seconds["cold"] or 0) > LONG:
            break
        began = time.process_time()
        posterior = fit_posterior(predict_one, params, inputs, targets)
        seconds[name] = time.process_time() - began
    for _ in range(2):
        began = time.process_time()
        jax.block_until_ready(posterior.predict(new).mean)
        seconds["predict"] = time.process_time() - began
    report = posterior.report
    return {**seconds, "form": report.form, "used_rows": report.rows}


def dense_costs(rows: int, width: int) -> dict[str, Any]:
    """Processor seconds of the Jacobian, its product with itself and one factorisation."""
    import jax
    import numpy as np
    import scipy.linalg
    from jax.flatten_util import ravel_pytree

    jax.config.update("jax_enable_x64", True)
    inputs, _, _, params = problem(rows, width)
    flat, unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf.astype(float), params))
    began = time.process_time()
    one = jax.jacrev(lambda flat, x: predict_one(unravel(flat), x).to_vector())
    part = jax.jit(jax.vmap(one, (None, 0)))
    jacobian = np.empty((rows, 2, flat.size))
    for start in range(0, rows, 100):
        jacobian[start : start + 100] = part(flat, inputs[start : start + 100].astype(float))
    matrix = jacobian.reshape(2 * rows, -1)
    wide = matrix.shape[1] > matrix.shape[0]
    product = matrix @ matrix.T if wide else matrix.T @ matrix
    product[np.diag_indices_from(product)] += 1
    scipy.linalg.cholesky(product, overwrite_a=True, lower=True)
    return {"cold": time.process_time() - began}


def problem(rows: int, width: int) -> tuple[Any, Any, Any, Any]:
    """A made-up regression and the network's first parameters."""
    import numpy as np

    rng = np.random.default_rng(0)
    inputs, new = (rng.normal(size=(n, FEATURES)).astype(np.float32) for n in (rows, NEW_ROWS))
    noise = 0.3 * np.exp(0.5 * inputs[:, 3]) * rng.normal(size=rows)
    targets = (np.sin(inputs[:, 0]) + 0.5 * inputs[:, 1] + noise).astype(np.float32)
    sizes = (FEATURES, width, width, 2)
    params = {}
    for index, (above, below) in enumerate(itertools.pairwise(sizes)):
        kernel = rng.normal(size=(above, below)) / math.sqrt(above)
        params[f"kernel_{index}"] = kernel.astype(np.float32)
        params[f"bias_{index}"] = np.zeros(below, np.float32)
    return inputs, targets, new, params


def predict_one(params: Any, x: Any) -> Any:
    """Two layers of SiLU units, a mean and a log-variance."""
    import jax

    from fisher8_jax import Gaussian

    for index in range(2):
        x = jax.nn.silu(x @ params[f"kernel_{index}"] + params[f"bias_{index}"])
    return Gaussian(*(x @ params["kernel_2"] + params["bias_2"]))


def section(store: Store) -> Section | None:
    """What is stored; None if there is nothing."""
    bodies = list(store.cells("posterior_cost"))
    cells = {(b["spec"]["width"], b["spec"]["rows"]): b["result"] for b in bodies}
    if not cells:
        return None
    rows = [_row(width, number, cells[width, number]) for width, number in sorted(cells)]
    header = ["width", "rows", "form", "first fit, s", "second, s", "10,000 predictions, s"]
    header += ["memory, MB", "dense: fit, s", "dense: memory, MB"]
    words = (
        "Two layers of SiLU units, eight inputs, one core. Memory is the peak of the process above "
        "what it has before the fit. The dense way has no predictions and one fixed precision."
    )
    figure = Figure(
        "posterior_cost",
        functools.partial(draw, cells),
        "Seconds and memory of a posterior by rows",
    )
    blocks: list[Block] = [Paragraph(words), figure, Table("Cost of a posterior", header, rows)]
    return Section("Cost of the posterior", blocks)


def _row(width: int, number: int, found: dict[str, Any]) -> list[str]:
    form = found["form"].replace("_", " ")
    if found["used_rows"] < number:
        form += f", {found['used_rows']:,} rows"
    found_seconds = [found[name] for name in ("cold", "warm", "predict")]
    seconds = ["" if value is None else f"{value:.2f}" for value in found_seconds]
    dense = found["dense"]
    shown = ["", ""] if dense is None else [f"{dense['cold']:.2f}", _megabytes(dense)]
    return [str(width), f"{number:,}", form, *seconds, _megabytes(found), *shown]


def _megabytes(found: dict[str, Any]) -> str:
    return f"{(found['peak'] - found['before']) / 1e6:,.0f}"


def draw(cells: dict[tuple[int, int], dict[str, Any]]) -> bytes:
    """Fit and memory over rows, a colour for each width, the dense way dashed."""
    import matplotlib.pyplot as plt

    from benchmarks.machinery.figures import to_png

    figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.6), layout="constrained")
    for index, width in enumerate(sorted({width for width, _ in cells})):
        for key, style, label in (("own", "o-", f"{width} units"), ("dense", "x--", None)):
            points = []
            for (other, rows), result in sorted(cells.items()):
                found = result if key == "own" else result["dense"]
                if other == width and found is not None:
                    memory = (found["peak"] - found["before"]) / 1e9
                    points.append((rows, found["cold"], memory))
            for ax, place in zip(axes, (1, 2), strict=True):
                x, y = [p[0] for p in points], [p[place] for p in points]
                ax.plot(x, y, style, color=f"C{index}", label=label)
    for ax, title in zip(axes, ("first fit, processor seconds", "memory, GB"), strict=True):
        ax.set(xscale="log", yscale="log", xlabel="rows", title=title)
        ax.grid()
    axes[0].legend(title="dashed: dense Jacobian")
    return to_png(figure)
