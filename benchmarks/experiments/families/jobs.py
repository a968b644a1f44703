"""One recovery problem: held-out curves of both methods for every planned length, and their sum.

One compiled program per method serves all planned lengths: the length is an argument, not a
constant of the program.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from benchmarks.experiments.families.plan import (
    BATCH_SIZE,
    FIRST_CLIMB,
    LADDER,
    LEARNING_RATES,
    NUM_TEST,
    NUM_TRAIN,
    SEEDS,
    SETTING,
    TOLERANCE,
    WIDTH,
    Job,
    RecipeJob,
)
from benchmarks.experiments.families.problems import PROBLEMS, Problem
from benchmarks.machinery.loop import start, train_on_batches
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.step import Apply, Batch, Run, Task, plain_network
from benchmarks.machinery.store import Store
from benchmarks.machinery.workers import Report
from fisher8_jax.optimizers import fisher8_optimizer
from fisher8_jax.training import (
    LossGradient,
    Method,
    NetworkNaturalGradient,
    OutputNaturalGradient,
)

EVALUATE_EVERY = 5
AVERAGE = 0.1  # of the steps, as `network_optimizer` has it

Optimizer: TypeAlias = optax.GradientTransformationExtraArgs
Curves = dict[str, np.ndarray]  # per setting the excess NLL, (seeds, evaluations)
Trainer = Callable[[Sequence[int], Sequence[int]], Curves]  # of lengths and seeds


class Data(NamedTuple):
    """Draws from the truth, and the NLL of the true parameters on the test part."""

    train_inputs: Array
    train_targets: Array
    test_inputs: Array
    test_targets: Array
    true_nll: Array


def run_job(job: Job, report: Report) -> None:
    """Trains by both methods and writes the cell."""
    row = compute_row(PROBLEMS[job.family], job.ladder, job.seeds)
    origin = provenance(job.command)
    Store(job.results).write(job.cell, spec=job.spec, result=row, provenance=origin)
    report(1)


def run_recipe_job(job: RecipeJob, report: Report) -> None:
    """A preset at lengths that Adam does not beat, until it arrives; Adam's own is stored."""
    store = Store(job.results)
    beside = store.load(store.path(job.beside))
    if beside is None:
        raise RuntimeError(f"Run `python -m benchmarks families --families '{job.family}'` first.")
    adam = beside["result"]["adam"]["planned"]
    lengths = [n for n in LADDER if n <= min(adam or FIRST_CLIMB, FIRST_CLIMB)]
    row = climb(RECIPE_TRAINERS[job.recipe](PROBLEMS[job.family], FIRST_CLIMB), lengths)
    row = {"family": job.family, "adam": adam, "fisher8": row}
    store.write(job.cell, spec=job.spec, result=row, provenance=provenance(job.command))
    report(1)


def climb(train: Trainer, lengths: Sequence[int]) -> dict[str, Any]:
    """One length after the other, until a run ends within the tolerance."""
    curves: Curves = {}
    for number, steps in enumerate(lengths, 1):
        curves |= train([steps], SEEDS)
        found = _summary(curves, lengths[:number])
        if found["planned"]:
            break
    return found


def compute_row(problem: Problem, ladder: Sequence[int], seeds: Sequence[int]) -> dict[str, Any]:
    """Both methods on one family; the ladder is climbed on until both have arrived."""
    trainers = {"fisher8": fisher8_trainer, "adam": adam_trainer}
    train = {name: make(problem, max(ladder)) for name, make in trainers.items()}
    curves: dict[str, Curves] = {name: {} for name in train}
    done = [n for n in ladder if n <= FIRST_CLIMB] or list(ladder)
    new = done
    while True:
        for name in train:
            curves[name] |= train[name](new, seeds)
        row = {name: _summary(found, done) for name, found in curves.items()}
        left = [n for n in ladder if n > done[-1]]
        if not left or all(side["planned"] for side in row.values()):
            return {"family": problem.name, "ladder": done, **row}
        new, done = left[:1], [*done, left[0]]


def _summary(curves: Curves, ladder: Sequence[int]) -> dict[str, Any]:
    """Steps needed in both senses, and the best excess at the end of every planned length."""
    means = {name: curve.mean(0) for name, curve in curves.items()}
    ends = {steps: _best_end(means, steps) for steps in ladder}
    reached = [steps for steps in ladder if ends[steps] <= TOLERANCE]
    crossings = [_first_crossing(curve) for curve in means.values()]
    return {
        "planned": min(reached, default=None),
        "crossing": min((steps for steps in crossings if steps), default=None),
        "excess_by_length": {str(steps): round(end, 5) for steps, end in ends.items()},
        "excess_of_seeds": {
            name: [round(float(value), 5) for value in curve[:, -1]]
            for name, curve in curves.items()
        },
    }


def _best_end(means: dict[str, np.ndarray], steps: int) -> float:
    """The lowest excess after `steps` of the runs planned for them, and of those without plan."""
    ends = [
        float(mean[steps // EVALUATE_EVERY - 1])
        for name, mean in means.items()
        if name.endswith((f"over {steps}", "constant"))
    ]
    # A diverged run is no candidate.
    return min((end for end in ends if np.isfinite(end)), default=np.inf)


def _first_crossing(mean: np.ndarray) -> int | None:
    reached = np.flatnonzero(mean <= TOLERANCE)
    return int(EVALUATE_EVERY * (reached[0] + 1)) if len(reached) else None


class Settings(NamedTuple):
    """What a run's optimiser is made of."""

    steps: Array  # the planned length
    rate: Array


def _fisher8(settings: Settings, factor: Array) -> Optimizer:
    return fisher8_optimizer(
        settings.steps.astype(jnp.int32),
        max_change=None,
        momentum=SETTING["momentum"],
        second_moment=SETTING["second_moment"],
    )


def _bare(settings: Settings, factor: Array) -> Optimizer:
    return fisher8_optimizer(settings.steps.astype(jnp.int32))


def _decaying_adam(settings: Settings, factor: Array) -> optax.GradientTransformation:
    """A linear decay over the planned length; none if that is infinite."""
    steps, rate = settings
    return optax.adam(lambda count: rate * jnp.maximum(1 - count / steps, 0))


def fisher8_trainer(
    problem: Problem,
    longest: int,
    optimizer: Callable[[Settings, Array], Optimizer] = _fisher8,
) -> Trainer:
    """Trains runs planned for each of the lengths; their keys are `over LENGTH`."""

    def method(settings: Settings, factor: Array) -> Method:
        return Method(OutputNaturalGradient(), optimizer(settings, factor))

    return _planned(Task(_network_of(problem), method), problem, longest)


def _planned(task: Task, problem: Problem, longest: int) -> Trainer:
    def curves(lengths: Sequence[int], seeds: Sequence[int]) -> Curves:
        rates = np.ones(1, np.float32)
        found = {n: _train(task, problem, longest, n, n, rates, np.array(seeds)) for n in lengths}
        return {f"over {n}": _cut(curve[0], n) for n, curve in found.items()}

    return curves


def network_trainer(problem: Problem, longest: int) -> Trainer:
    """The same by the natural gradient in parameter space; judged by averaged parameters."""

    def average(settings: Settings) -> Array:
        return jnp.maximum(AVERAGE * settings.steps, 1.0)

    task = Task(
        _network_of(problem),
        lambda settings, factor: Method(NetworkNaturalGradient()),
        num_steps=lambda settings: settings.steps.astype(jnp.int32),
        average=average,
    )
    return _planned(task, problem, longest)


def adam_trainer(problem: Problem, longest: int) -> Trainer:
    """Adam on the plain NLL: per rate a linear decay over each length, and a constant rate."""

    def method(settings: Settings, factor: Array) -> Method:
        return Method(LossGradient("nll"), _decaying_adam(settings, factor))

    task = Task(_network_of(problem), method)
    rates = np.array(LEARNING_RATES, np.float32)

    def curves(lengths: Sequence[int], seeds: Sequence[int]) -> Curves:
        result = {}
        for end, steps in ((np.inf, max(lengths)), *((float(n), n) for n in lengths)):
            words = "constant" if np.isinf(end) else f"over {steps}"
            found = _train(task, problem, longest, steps, end, rates, np.array(seeds))
            for rate, curve in zip(LEARNING_RATES, found, strict=True):
                result[f"{rate:g} {words}"] = _cut(curve, steps)
        return result

    return curves


def _cut(curves: Array, steps: int) -> np.ndarray:
    return np.asarray(curves)[:, : steps // EVALUATE_EVERY]


def draw(problem: Problem, key: Array) -> Data:
    """Training and test part of one seed."""
    keys = jax.random.split(key, 4)
    train = jax.random.uniform(keys[0], (NUM_TRAIN, 2), minval=-2, maxval=2)
    test = jax.random.uniform(keys[1], (NUM_TEST, 2), minval=-2, maxval=2)
    targets = problem.truth(test).sample(keys[3])
    true_nll = problem.truth(test).nll(targets).mean()
    return Data(train, problem.truth(train).sample(keys[2]), test, targets, true_nll)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _train(task, problem, longest, steps, end, rates, seeds) -> Array:
    """Trains for `steps`; the held-out NLL above the truth's, nan after the last step.

    Every rate and seed is a run. Shape (rates, seeds, evaluations).
    """
    run_rate, run_seed = (x.ravel() for x in jnp.meshgrid(rates, seeds, indexing="ij"))
    data = jax.vmap(lambda seed: draw(problem, jax.random.key(seed)))(run_seed)
    keys = jax.vmap(lambda seed: jax.random.key(seed + 2))(run_seed)
    runs = Run(Settings(jnp.full(run_rate.shape, end), run_rate), keys)
    params = jax.vmap(lambda seed: _initial(problem, jax.random.key(seed + 1)))(run_seed)

    def batch(index, key, data):
        rows = jax.random.randint(jax.random.fold_in(key, index), (BATCH_SIZE,), 0, NUM_TRAIN)
        return Batch(data.train_inputs[rows], data.train_targets[rows])

    def excess(params, data):
        dist = _network(problem, params, data.test_inputs)
        return dist.nll(data.test_targets).mean() - data.true_nll

    def chunk(number, carry):
        state, curve = carry
        indices = number * EVALUATE_EVERY + jnp.arange(EVALUATE_EVERY)
        batches = jax.vmap(lambda index: jax.vmap(functools.partial(batch, index))(keys, data))
        state, _ = train_on_batches(task, state, runs, batches(indices))
        return state, curve.at[:, number].set(jax.vmap(excess)(state.kept, data))

    curve = jnp.full((len(run_seed), longest // EVALUATE_EVERY), jnp.nan)
    first = start(task, params, None, runs), curve
    curve = lax.fori_loop(0, steps // EVALUATE_EVERY, chunk, first)[1]
    return curve.reshape(len(rates), len(seeds), -1)


def _network_of(problem: Problem) -> Apply:
    return plain_network(functools.partial(_network, problem))


def _network(problem: Problem, params: Any, inputs: Array) -> Any:
    hidden = inputs
    for weights, bias in params[:-1]:
        hidden = jnp.tanh(hidden @ weights + bias)
    weights, bias = params[-1]
    return problem.distribution(hidden @ weights + bias)


def _initial(problem: Problem, key: Array) -> Any:
    """LeCun initialisation; the last layer starts small, around the problem's own start."""
    sizes = (2, WIDTH, WIDTH, problem.num_outputs)
    keys = jax.random.split(key, 3)
    params = [
        (jax.random.normal(k, (a, b)) / np.sqrt(a), jnp.zeros(b))
        for k, a, b in zip(keys, sizes, sizes[1:], strict=False)
    ]
    weights, bias = params[-1]
    params[-1] = (0.1 * weights, bias + jnp.asarray(problem.start or 0.0))
    return params


RECIPE_TRAINERS: dict[str, Callable[[Problem, int], Trainer]] = {
    "bare": functools.partial(fisher8_trainer, optimizer=_bare),
    "network": network_trainer,
}
