"""Times the compiled loops on one core; started by `speed` in a process of its own."""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.machinery.baselines import PUBLISHED


def main() -> None:
    """Prints seconds per training step and the rate of large matrix products."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before JAX counts the cores
    with tempfile.TemporaryDirectory() as scratch:
        record = {
            "uci_step_seconds": uci_step_seconds(Path(sys.argv[1]), Path(scratch)),
            "sinusoid_step_seconds": sinusoid_step_seconds(),
            "matmul_flop_per_second": matmul_rate(),
        }
    print(json.dumps(record))


def uci_step_seconds(data: Path, scratch: Path) -> float:
    """Mean over the methods, all splits and rates of one set as runs, after compilation."""
    from benchmarks.experiments.uci import jobs as uci_jobs
    from benchmarks.experiments.uci.data import prepare
    from benchmarks.experiments.uci.plan import BUDGETS, Job
    from benchmarks.machinery.loop import start, train

    path = prepare(["energy"], data, scratch)["energy"]
    total, count = 0.0, 0
    for method in PUBLISHED:
        job = Job("sgd", method, "energy", BUDGETS["sgd"].rates, 0, path, scratch)
        recipe, prepared = uci_jobs.make_setup(job), uci_jobs.load_prepared(path)
        schedule = uci_jobs.draw_schedule(job, prepared)
        params, runs = uci_jobs.draw_runs(job, recipe, prepared.features)

        def call(recipe=recipe, params=params, runs=runs, schedule=schedule, prepared=prepared):
            state = start(recipe.task, params, None, runs, prepared.train)
            return train(recipe.task, state, prepared.train, runs, schedule)

        total += _seconds(call, repeats=3)
        count += 100 * len(runs.key)
    return total / count


def sinusoid_step_seconds(steps: int = 500) -> float:
    """Five seeds of Fisher8 as runs, per run."""
    from benchmarks.experiments.sinusoid import jobs as sinusoid_jobs
    from benchmarks.experiments.sinusoid.plan import Job
    from benchmarks.machinery.loop import start, train

    job = Job("constant", "fisher8", "literal", steps, 5, steps, Path("."), Path("."))
    recipe = sinusoid_jobs.make_setup(job)
    datasets, runs = sinusoid_jobs.draw_datasets(job), sinusoid_jobs.draw_runs(job)
    schedule = sinusoid_jobs.draw_chunk(job, 0)

    def call():
        state = start(recipe.task, sinusoid_jobs.draw_params(job), None, runs, datasets)
        return train(recipe.task, state, datasets, runs, schedule)

    return _seconds(call, repeats=3) / (steps * job.seeds)


def matmul_rate(size: int = 2048) -> float:
    """FLOP per second of a large float32 product, the best of five."""
    import jax
    import jax.numpy as jnp

    matrix = jnp.ones((size, size))
    product = jax.jit(lambda a: a @ a)
    return 2 * size**3 / _seconds(lambda: product(matrix), repeats=5)


def _seconds(call, repeats: int) -> float:
    """The best of some calls after a first one that compiles."""
    import jax

    jax.block_until_ready(call())
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - began)
    return min(times)


if __name__ == "__main__":
    main()
