"""Training by evidence: the prior's precisions are learned with the weights.

Every step solves, for a batch of `B` of `N` rows,

    (R' R / B + floor + precision / N) step = gradient of (mean NLL + penalty / N)

exactly, in the space of outputs. So the prior is the weight decay and, with a floor for the noise
of a batch, the damping. The floor rises tenfold: with little damping the first steps find what
many outputs must learn together, with more the last ones do not follow the noise of their batches.
In the second half of the training the precisions move towards MacKay's fixed point. No rows are
held out.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from chex import ArrayTree
from jax import Array
from jax.scipy.linalg import cho_solve

from fisher8_jax._internal.checks import check_count, check_positive
from fisher8_jax._internal.sharding import check_outside_shard_map
from fisher8_jax.optimizers import network_max_kl
from fisher8_jax.posterior._arithmetic import arithmetic, cast, to_host
from fisher8_jax.posterior._dual import by_output, by_row, group_grams, whiten
from fisher8_jax.posterior._network import Network, PredictOne
from fisher8_jax.posterior._outputs import outputs_of
from fisher8_jax.posterior._prior import (
    Groups,
    Prior,
    log_precisions,
    means_of,
    resolve,
    squared_distances,
)
from fisher8_jax.posterior._setting import check_data, examine
from fisher8_jax.posterior._tuning import update_by_part

# The first precision, for every row, as good as none: a prior lets groups die that have not learned
# yet, as the evidence would let them.
_START = 1e-5

# The first half of the training learns without it. In the second half the precisions are updated
# after every part; `e` times in each is enough for any size, and no jump.
_PARTS = 20
_MAX_STEP = 1.0

# The first floor of the damping over the last.
_FIRST_DAMPING = 0.1


class TrainedByEvidence(NamedTuple):
    """A network and the prior that its training ended with.

    Attributes:
        params: the last parameters.
        prior: with the learned precisions; hand it to `fit_posterior(..., tune=False)`.
        nll: the mean NLL of the batch in every step.
        precisions: the precisions of every group after each of up to twenty parts of the
            training, `(parts, groups)`.

    Example:
        >>> from fisher8_jax.posterior import TrainedByEvidence
        >>> TrainedByEvidence._fields
        ('params', 'prior', 'nll', 'precisions')
    """

    params: ArrayTree
    prior: Prior
    nll: np.ndarray
    precisions: np.ndarray


def train_by_evidence(
    predict_one: PredictOne,
    params: ArrayTree,
    inputs: ArrayTree,
    targets: Array,
    *,
    steps: int = 1000,
    batch_size: int = 64,
    prior: Prior | None = None,
    damping: float = 0.1,
    max_kl: float | None = None,
    seed: int = 0,
) -> TrainedByEvidence:
    """Trains a network together with the precisions of its prior, without held-out rows.

    Only the number of steps has to be chosen: the first half learns with next to no prior, in the
    second half the precisions move towards the maximum of the evidence. Long training overfits far
    less than without a prior; with ReLU units it may still end behind a shorter one.

    Args:
        predict_one: see `fit_posterior`.
        params: the first parameters; inputs and targets should be standardised.
        inputs: of the training rows.
        targets: of the training rows.
        steps: how many batches.
        batch_size: rows of a batch.
        prior: groups, mean and the first precisions, which should be weak; by default the number
            of rows over 100,000 for each leaf.
        damping: what the noise of a batch asks for beyond the prior in the last step; the first has
            a tenth of it.
        max_kl: no step moves the predictions of its batch by more nats, which fall to 0 over the
            steps; None for `network_max_kl(steps)`.
        seed: decides the order of the rows.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.posterior import fit_posterior, train_by_evidence
        >>> def predict_one(params, x):
        ...     return Gaussian(x @ params["slope"], params["log_variance"])
        >>> x = jax.random.normal(jax.random.key(0), (200, 3))
        >>> y = x[:, 0] + 0.5 * jax.random.normal(jax.random.key(1), (200,))
        >>> start = {"slope": jnp.zeros(3), "log_variance": jnp.zeros(())}
        >>> trained = train_by_evidence(predict_one, start, x, y, steps=100)
        >>> posterior = fit_posterior(
        ...     predict_one, trained.params, x, y, prior=trained.prior, tune=False
        ... )
        >>> print(trained.params["slope"].round(1))
        [1. 0. 0.]
    """
    check_outside_shard_map("train_by_evidence")
    check_count("steps", steps)
    check_count("batch_size", batch_size)
    check_positive("damping", damping)
    if max_kl is not None:
        check_positive("max_kl", max_kl)
    radius = float(network_max_kl(steps)) if max_kl is None else max_kl
    prior = Prior(precision=_START * len(targets)) if prior is None else prior
    dtype = jnp.zeros(()).dtype.name
    params, inputs, targets = (cast(tree, dtype) for tree in (params, inputs, targets))
    check_data(params, inputs, targets)
    groups = resolve(prior, params, examine(predict_one, params, inputs, targets).reached)
    size = min(batch_size, len(targets))
    batches = _batches(len(targets), size, steps, seed)
    progress = _Progress(params, jnp.zeros((), jnp.int32))
    log_precision = cast(to_host(log_precisions(prior, groups)), dtype)
    rule = _Rule(predict_one, groups, len(targets), steps, damping, radius)
    means = means_of(prior, groups, params)
    data, nll, history = (inputs, targets, means), [], []
    parts = np.array_split(batches, min(_PARTS, steps))
    for part in parts:
        progress, values = _train(rule, progress, log_precision, data, part)
        nll.append(values)
        # The last parameters are those of the last precisions.
        if len(parts) // 2 <= len(nll) < len(parts):
            log_precision = _updated(rule, progress.params, prior, log_precision, data)
        history.append(log_precision)
    precision = dict(zip(groups.names, np.exp(log_precision).tolist(), strict=True))
    learned = Prior(precision, prior.groups, prior.mean)
    return TrainedByEvidence(
        progress.params, learned, np.concatenate(nll), np.exp(np.stack(history))
    )


class _Rule(NamedTuple):
    """What stays the same in all steps; hashable."""

    predict_one: PredictOne
    groups: Groups
    rows: int
    steps: int
    damping: float
    max_kl: float


class _Progress(NamedTuple):
    """Parameters, and how many steps were made."""

    params: ArrayTree
    step: Array


Data = tuple[ArrayTree, Array, list[Array]]


@functools.partial(jax.jit, static_argnums=0)
def _train(
    rule: _Rule, progress: _Progress, log_precision: Array, data: Data, batches: Array
) -> tuple[_Progress, Array]:
    def one(progress: _Progress, places: Array) -> tuple[_Progress, Array]:
        batch = jax.tree.map(lambda x: x[places], data[:2])
        step, value = _step(rule, progress, log_precision, batch, data[2])
        params = jax.tree.map(jnp.subtract, progress.params, step)
        return _Progress(params, progress.step + 1), value

    return jax.lax.scan(one, progress, batches)


def _step(
    rule: _Rule,
    progress: _Progress,
    log_precision: Array,
    batch: tuple[ArrayTree, Array],
    means: list[Array],
) -> tuple[ArrayTree, Array]:
    """The step of the module's docstring, within the radius; zeros for fixed leaves."""
    inputs, targets = batch
    network = Network(progress.params, rule.predict_one, rule.groups.leaves)
    dist, rows = network.rows(inputs)
    seen, groups = outputs_of(dist, targets), rule.groups
    remaining = 1 - progress.step / rule.steps
    decay = jnp.exp(log_precision) / rule.rows
    damping = rule.damping * _FIRST_DAMPING**remaining + decay
    white = whiten(rows, seen.root)
    grams = group_grams(white, white, groups.of_leaf, len(groups.names))
    batch_size = seen.nll.shape[0]
    scaled = jnp.tensordot(1 / damping, grams, 1) / batch_size
    factor = jnp.linalg.cholesky(scaled + jnp.eye(scaled.shape[0], dtype=scaled.dtype))
    pulls = [  # what the penalty alone asks for
        (decay / damping)[group] * (leaf - mean)
        for group, leaf, mean in zip(groups.of_leaf, network.uncertain(), means, strict=True)
    ]
    moved = by_output(jnp.einsum("iab,ia->ib", seen.root, network.push(pulls, inputs)))
    solution = cho_solve((factor, True), by_output(seen.score) - moved) / batch_size
    back = jnp.einsum("iab,ib->ia", seen.root, by_row(solution, batch_size))
    pulled = network.pull(back, inputs)
    leaves = [
        pull + part / damping[group]
        for pull, part, group in zip(pulls, pulled, groups.of_leaf, strict=True)
    ]
    movement = moved + scaled @ solution * batch_size
    divergence = 0.5 * jnp.sum(jnp.square(movement)) / batch_size
    length = remaining * jnp.minimum(1, jnp.sqrt(rule.max_kl / divergence))
    length = jnp.where(jnp.isfinite(divergence), length, 0)
    return network.spread([jnp.where(length == 0, 0, length * leaf) for leaf in leaves]), jnp.mean(
        seen.nll
    )


def _updated(rule: _Rule, params: ArrayTree, prior: Prior, log_precision: Any, data: Data) -> Any:
    """One small step of the precisions, by the evidence of some rows in float64."""
    with arithmetic("float64"):
        wide, inputs, targets = (cast(tree, "float64") for tree in (params, *data[:2]))
        network = Network(wide, rule.predict_one, rule.groups.leaves)
        squares = squared_distances(prior, rule.groups, wide)
        updated = update_by_part(
            (network, inputs, targets),
            rule.groups,
            cast(log_precision, "float64"),
            squares,
            _MAX_STEP,
        )
    return to_host(updated).astype(log_precision.dtype)


def _batches(rows: int, size: int, steps: int, seed: int) -> np.ndarray:
    """Row numbers of every batch: all rows in a new order, again and again."""
    random = np.random.default_rng(seed)
    epochs = math.ceil(steps * size / rows)
    order = np.concatenate([random.permutation(rows) for _ in range(epochs)])
    return order[: steps * size].reshape(steps, size)
