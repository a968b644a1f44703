"""The data of the comparison: training, held-out and test rows of every seed, first parameters."""

import functools
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.experiments.comparison.plan import HELD_OUT, PROBLEMS
from benchmarks.experiments.curvature import sinusoid
from benchmarks.experiments.curvature.plan import SinusoidJob
from benchmarks.experiments.curvature.training import SILU
from benchmarks.experiments.rotated_mnist.data import load_digits, make_problem
from benchmarks.experiments.rotated_mnist.plan import SEEDS
from benchmarks.experiments.sinusoid.plan import NOISES, true_mean
from benchmarks.experiments.uci.jobs import load_prepared
from benchmarks.machinery.networks import Mlp, Params, stack_members
from benchmarks.machinery.seeds import generator

NOISE = "linear"
REGIME = "independent"
TRAIN_IMAGES, TEST_IMAGES = 20_000, 5_000


class Problem(NamedTuple):
    """All arrays have the seeds first; training targets are in units of `scale` about `shift`."""

    network: Mlp
    params: Params
    inputs: np.ndarray
    targets: np.ndarray
    held_inputs: np.ndarray
    held_targets: np.ndarray
    test_inputs: np.ndarray
    test_truth: np.ndarray  # without noise, for the RMSE
    test_targets: np.ndarray
    shift: np.ndarray
    scale: np.ndarray


@functools.lru_cache(maxsize=1)
def load_problem(name: str, data: Path | None) -> Problem:
    """One of the problems with runs."""
    return _sinusoid() if name == "sinusoid" else _digits(data)


def _sinusoid() -> Problem:
    """Twelve periods with growing noise, standardised, PyTorch's default initialisation."""
    job = SinusoidJob(NOISE, "standardised", PROBLEMS["sinusoid"].seeds, Path())
    datasets = sinusoid.draw_datasets(job)
    drawn = sinusoid.draw_targets(job)
    x = sinusoid.DENSE
    truth = np.repeat(true_mean(x)[None], job.seeds, axis=0)
    white = np.stack(
        [
            generator("comparison", "sinusoid", s, "test").normal(size=len(x))
            for s in range(job.seeds)
        ]
    )
    tests = np.repeat(sinusoid.scaled_inputs(job, x)[None, :, None], job.seeds, axis=0)
    return _split(
        sinusoid.NETWORK,
        sinusoid.draw_params(job),
        np.asarray(datasets.inputs),
        np.asarray(datasets.targets),
        (tests.astype(np.float32), truth, truth + NOISES[NOISE](x) * white),
        (drawn.mean(axis=1), drawn.std(axis=1)),
    )


def _digits(data: Path | None) -> Problem:
    """Rotated digits, three hidden layers of 500 units, a part of the images."""
    digits = load_digits("mnist", data)
    digits = digits._replace(
        train_images=digits.train_images[:TRAIN_IMAGES],
        train_labels=digits.train_labels[:TRAIN_IMAGES],
        test_images=digits.test_images[:TEST_IMAGES],
        test_labels=digits.test_labels[:TEST_IMAGES],
    )
    drawn = make_problem(digits, REGIME, SEEDS[0])
    network = Mlp(hidden=(500, 500, 500), activation=jax.nn.relu)
    first = network.init(generator("rotated_mnist", SEEDS[0], "init"), drawn.train.inputs.shape[1])
    return _split(
        network,
        stack_members([first]),
        drawn.train.inputs[None],
        drawn.train_targets[None],
        (drawn.test.inputs[None], drawn.test.angles[None], drawn.test.noisy[None]),
        (np.zeros(1), np.array([drawn.scale])),
    )


def load_table(path: Path, seeds: int) -> Problem:
    """The first splits of a UCI set; only for angles, so nothing is held out or tested."""
    prepared = load_prepared(path)
    rows = min(prepared.train_rows)
    inputs, targets = (np.asarray(leaf[:seeds, :rows]) for leaf in prepared.train)
    rngs = (generator("uci", path.stem, fold, 0, "init") for fold in range(seeds))
    first = [SILU.init(rng, prepared.features, inputs.shape[-1]) for rng in rngs]
    units = np.zeros(seeds), np.ones(seeds)
    return _split(SILU, stack_members(first), inputs, targets, (inputs, targets, targets), units)


def _split(
    network: Mlp,
    params: Params,
    inputs: np.ndarray,
    targets: np.ndarray,
    test: tuple[np.ndarray, np.ndarray, np.ndarray],
    units: tuple[np.ndarray, np.ndarray],
) -> Problem:
    """Holds a tenth of the rows out."""
    order = generator("comparison", "held out").permutation(targets.shape[1])
    held = round(HELD_OUT * len(order))
    out, kept = order[:held], order[held:]
    parts = (inputs[:, kept], targets[:, kept], inputs[:, out], targets[:, out])
    return Problem(network, jax.tree.map(jnp.asarray, params), *parts, *test, *units)
