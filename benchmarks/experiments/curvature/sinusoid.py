"""The sinusoid of twelve periods, learned by the natural gradient in 2,000 steps."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.experiments.curvature.plan import SinusoidJob
from benchmarks.experiments.curvature.training import Predict, Settings, make_task
from benchmarks.experiments.sinusoid.plan import HIGH, LOW, NOISES, POINTS, true_mean
from benchmarks.machinery.local_variance import local_jacobian_variance, local_kl_variance
from benchmarks.machinery.loop import Datasets, Schedule, start, train
from benchmarks.machinery.networks import Mlp, Params, stack_members
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.rows import shuffled_rows
from benchmarks.machinery.seeds import generator
from benchmarks.machinery.step import Run
from benchmarks.machinery.store import Store
from benchmarks.machinery.workers import Report
from fisher8_jax import Gaussian

NETWORK = Mlp(hidden=(150, 150), activation=jnp.tanh)
CHUNK = 100
BALL = 0.5
GRID = np.linspace(LOW, HIGH, POINTS)
DENSE = np.linspace(LOW, HIGH, 1201)  # where errors are measured
SHOWN = slice(None, None, 5)


def run_sinusoid(job: SinusoidJob, report: Report) -> None:
    """Trains all seeds, looks every 100 steps, writes the cell."""
    task = make_task("network", NETWORK, job.steps, job.max_kl)
    datasets, runs = draw_datasets(job), draw_runs(job)
    state = start(task, draw_params(job), None, runs, datasets)
    schedule = draw_schedule(job)
    looks = [_look(job, state.params, datasets)]
    for first in range(0, job.steps, CHUNK):
        chunk, steps = schedule.chunk(first, CHUNK)
        state, _ = train(task, state, datasets, runs, chunk, steps)
        looks.append(_look(job, state.params, datasets))
        report(steps * job.seeds)
    result = _result(job, state.params, looks)
    origin = provenance(job.command)
    Store(job.results).write(job.cell, spec=job.spec, result=result, provenance=origin)


def draw_datasets(job: SinusoidJob) -> Datasets:
    """A common grid, noise of each seed's own; targets in units of their standard deviation."""
    targets = draw_targets(job)
    inputs = np.repeat(scaled_inputs(job, GRID)[None, :, None], job.seeds, axis=0)
    shift, scale = _units(targets)
    scaled = (targets - shift[:, None]) / scale[:, None]
    return Datasets(jnp.asarray(inputs, jnp.float32), jnp.asarray(scaled, jnp.float32))


def draw_runs(job: SinusoidJob) -> Run:
    """One run per seed."""
    settings = Settings(jnp.ones(job.seeds), jnp.full(job.seeds, job.damping))
    indices = jnp.arange(job.seeds, dtype=jnp.int32)
    return Run(settings, jax.random.split(jax.random.key(0), job.seeds), indices)


def draw_params(job: SinusoidJob) -> Params:
    """PyTorch's default initialisation."""
    rngs = (generator("sinusoid", seed, "init") for seed in range(job.seeds))
    return stack_members([NETWORK.init(rng, 1) for rng in rngs])


def draw_schedule(job: SinusoidJob) -> Schedule:
    """Shuffled epochs of each seed's own."""
    rows = [
        shuffled_rows(
            generator("curvature", "sinusoid", seed, "batches"),
            POINTS,
            batch=job.batch,
            steps=job.steps,
        )[0]
        for seed in range(job.seeds)
    ]
    return Schedule(np.stack(rows, axis=1), np.zeros(job.steps, bool), np.ones(job.steps))


def draw_targets(job: SinusoidJob) -> np.ndarray:
    """The targets of all seeds in the units of the data."""
    sigma = NOISES[job.noise](GRID)
    draws = [generator("sinusoid", job.noise, s, "noise").normal(size=POINTS) for s in _seeds(job)]
    return np.stack([true_mean(GRID) + sigma * draw for draw in draws])


def _seeds(job: SinusoidJob) -> range:
    return range(job.seeds)


def _units(targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return targets.mean(axis=1), targets.std(axis=1)


def scaled_inputs(job: SinusoidJob, x: np.ndarray) -> np.ndarray:
    """What the network sees of `x`."""
    return x if job.inputs == "raw" else (x - GRID.mean()) / GRID.std()


def _predict(job: SinusoidJob, params: Params, x: np.ndarray) -> list[Gaussian]:
    """The predictions of every seed in the units of the data."""
    shift, scale = _units(draw_targets(job))
    inputs = jnp.asarray(scaled_inputs(job, x)[:, None], jnp.float32)
    dists = jax.jit(jax.vmap(Predict(NETWORK), (0, None)))(params, inputs)
    return [
        jax.tree.map(lambda leaf, s=seed: leaf[s], dists).unscale(shift[seed], scale[seed])
        for seed in _seeds(job)
    ]


def _look(job: SinusoidJob, params: Params, datasets: Datasets) -> dict[str, Any]:
    """Errors of every seed, and the two maps of the first."""
    dists = _predict(job, params, DENSE)
    mean, sigma = true_mean(DENSE), NOISES[job.noise](DENSE)
    jacobian, kl = _maps(jax.tree.map(lambda leaf: leaf[0], params), datasets.inputs[0], GRID)
    return {
        "rmse": [float(np.sqrt(np.mean((np.asarray(d.mean) - mean) ** 2))) for d in dists],
        "sigma_error": [float(np.mean(np.abs(np.asarray(d.std) / sigma - 1))) for d in dists],
        "log10_jacobian_variance": np.asarray(jacobian),
        "log10_kl_variance": np.asarray(kl),
    }


@jax.jit
def _maps(params: Params, inputs: jax.Array, grid: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """Both local variances at the shown points; balls are measured in the units of the data."""
    places = jnp.asarray(grid, jnp.float32)[:, None]
    ratio = (inputs[1, 0] - inputs[0, 0]) / (places[1, 0] - places[0, 0])

    def features(x: jax.Array) -> jax.Array:
        return NETWORK.features(params, inputs[0] + ratio * (x - places[0]))

    jacobian = local_jacobian_variance(features, places, radius=BALL)[SHOWN]
    kl = local_kl_variance(Predict(NETWORK)(params, inputs), places, radius=BALL)[SHOWN]
    return jnp.log10(jacobian), jnp.log10(kl)


def _result(job: SinusoidJob, params: Params, looks: list[dict[str, Any]]) -> dict[str, Any]:
    dist = _predict(job, params, GRID[SHOWN])[0]
    rounded = functools.partial(np.round, decimals=5)
    maps = ("log10_jacobian_variance", "log10_kl_variance")
    return {
        "rmse": looks[-1]["rmse"],
        "sigma_error": looks[-1]["sigma_error"],
        "steps": [min(i * CHUNK, job.steps) for i in range(len(looks))],
        "rmse_over_training": rounded([look["rmse"] for look in looks]),
        "sigma_error_over_training": rounded([look["sigma_error"] for look in looks]),
        "x": rounded(GRID[SHOWN]),
        "targets": rounded(draw_targets(job)[0][SHOWN]),
        "mean": rounded(dist.mean),
        "std": rounded(dist.std),
        **{name: np.round([look[name] for look in looks], 2) for name in maps},
    }
