"""How wide predictions are among the data, from the rows that members held out.

A member stops where its held-out NLL is lowest, so its variance covers its own errors on new rows,
what the members disagree about included. The mean of the members has not even that error: with `d`
the disagreement relative to the members' variances, its squared error is `1 - d` of theirs (the
ambiguity decomposition). The variance of a mixture has two parts, the members' variances, which
are therefore multiplied by `1 - 2 d`, and the disagreement `d`. Where that would leave less than
half of the variance to the members, the other half is disagreement, and their locations move
towards each other until it is.

The disagreement about new rows is larger than about rows that members trained on. A row that one
of two trained on has the mean of both, and held-out rows have such pairs. No targets are used.

The further a row is from others, the less of all this is done: predictions far from the data
stay those of the plain mixture.

Errors that are often tiny and seldom huge ask for other tails. Every Gaussian becomes an equal
mixture of a few, of the same mean variance, whose widths spread as the held-out errors say.

Log-variances grow linearly beyond the data, and variances without any bound. No member may be less
certain than the range of all targets.

Reference:
    Krogh and Vedelsby, Neural network ensembles, cross validation, and active learning, NeurIPS
    1994 (the ambiguity decomposition).
"""

from statistics import NormalDist

import chex
import jax
import numpy as np

from fisher8_jax.artifacts import TargetScaler
from fisher8_jax.estimator._epistemic import MOST_ROWS, Knowledge, learn_knowledge, predict_tangents
from fisher8_jax.estimator._estimator_checks import as_targets
from fisher8_jax.estimator._memory import Memory
from fisher8_jax.estimator._network import DenseNetwork
from fisher8_jax.estimator._prediction import in_blocks, predict_member
from fisher8_jax.estimator._training import Rows
from fisher8_jax.estimator._widths import Calibration
from fisher8_jax.families import Family, Gaussian

# So many held-out rows tell the calibration.
_MOST_ROWS = 2000

# More disagreement than this, relative to the members' variances, is not believed: on average, and
# of a single row, which must not speak for all others.
_MOST_DISAGREEMENT, _MOST_OF_ROW = 0.4, 3.0

# A Gaussian becomes so many, if their widths spread at least so much. So many exactly normal errors
# are added to the held-out ones, so that few rows do not make tails.
_PARTS, _SMALLEST_SPREAD, _NORMAL_ERRORS = 4, 0.35, 30
_SPREADS, _LOG_SCALES = np.arange(0, 2.41, 0.1), np.arange(-1, 1.01, 0.1)


def calibrate(
    network: DenseNetwork,
    likelihood: type[Family],
    params: chex.ArrayTree,
    memory: Memory,
    scaler: TargetScaler,
    knowledge: tuple[Knowledge, np.ndarray],
) -> Calibration:
    """The calibration of an ensemble; none where the family has no `variance_field`.

    Args:
        network: of all members.
        likelihood: what they predict.
        params: members first, with every run of a method beside each other.
        memory: rows, and which of them each run held out.
        scaler: of the targets.
        knowledge: what `know` returns.
    """
    targets = len(knowledge[1])
    if likelihood.variance_field is None:
        return Calibration.none(targets)
    folds, members = len(memory.held_out), len(params[-1]["bias"])
    held_out = memory.held_out[:, : max(1, _MOST_ROWS // folds)]
    places, fold = held_out.reshape(-1), np.repeat(np.arange(folds), held_out.shape[1])
    rows = Rows(*(column[places] for column in memory.rows))
    if not len(places):
        return Calibration.none(targets)
    moments = [
        in_blocks(
            predict_member, network, jax.tree.map(lambda leaf, m=m: leaf[m], params), rows.inputs
        )
        for m in range(members)
    ]
    means, variances = (
        np.stack(column).reshape(members, len(places), targets)
        for column in zip(*moments, strict=True)
    )
    own = np.arange(members)[:, None] % folds == fold
    weights = (rows.where * as_targets(rows.weights, rows.where)).reshape(-1, targets)
    values = np.where(rows.where, (rows.targets - scaler.shift) / scaler.scale, 0.0)
    values = values.reshape(-1, targets)
    columns = []
    for target in range(targets):
        center, noise = (
            np.average(x[..., target], axis=0, weights=own) for x in (means, variances)
        )
        noise = np.maximum(noise, np.finfo(np.float32).tiny)
        distances = (means[..., target] - means[..., target].mean(axis=0)) ** 2
        disagreement = 0.5 * (distances.mean(axis=0) + np.average(distances, axis=0, weights=own))
        ratios = np.minimum(disagreement / noise, _MOST_OF_ROW)
        ratio = _average(ratios, weights[:, target])
        factor, closeness = narrow(ratio, _unfamiliarity(knowledge, target))
        errors = (values[:, target] - center) / np.sqrt(noise)
        spread = find_spread(errors, weights[:, target]) if likelihood is Gaussian else 0.0
        columns.append((factor, closeness, spread))
    found = np.array(columns, np.float32).T
    return Calibration(found[0], found[1], _tails(found[2]), _log_extent(memory.rows, scaler))


def narrow(disagreement: float, unfamiliarity: float) -> tuple[float, float]:
    """The factor of the members' variances, and that of the distances between their locations.

    Args:
        disagreement: on average, relative to the members' variances.
        unfamiliarity: the part of it that is left out on an average row.
    """
    ratio = min(disagreement / max(1 - unfamiliarity, 1e-3), _MOST_DISAGREEMENT)
    total = 1 - ratio
    if ratio <= 0.5 * total:
        return total - ratio, 1.0
    return 0.5 * total, float(np.sqrt(0.5 * total / ratio))


def find_spread(errors: np.ndarray, weights: np.ndarray) -> float:
    """The spread of the log-variances under which standardised errors are most likely.

    Their size on average is left open, within bounds: it is not that of the mixture.
    """
    known = np.isfinite(errors) & (weights > 0)
    normal = _normal_quantiles(31)
    squares = np.concatenate([errors[known], normal]) ** 2
    total = weights[known].sum()
    counts = weights[known] * known.sum() / (total if total > 0 else 1)
    counts = np.concatenate([counts, np.full(len(normal), _NORMAL_ERRORS / len(normal))])

    def lowest_nll(spread: float) -> float:
        """Of all sizes; the axes are sizes, parts and errors."""
        log_variance = np.log(_parts(np.array([spread]))) + _LOG_SCALES[:, None, None]
        parts = -0.5 * (squares * np.exp(-log_variance) + log_variance)
        most = parts.max(axis=1)
        density = most + np.log(np.exp(parts - most[:, None]).sum(axis=1))
        return -float(np.max(density @ counts))

    found = [lowest_nll(spread) for spread in _SPREADS]
    spread = float(_SPREADS[int(np.argmin(found))])
    return spread if spread >= _SMALLEST_SPREAD else 0.0


def _log_extent(rows: Rows, scaler: TargetScaler) -> np.ndarray:
    """The logarithm of the range of every target in units of training, at least 0."""
    values = ((rows.targets - scaler.shift) / scaler.scale).reshape(len(rows.targets), -1)
    where = (rows.where * as_targets(rows.weights, rows.where) > 0).reshape(values.shape)
    high = np.max(values, axis=0, where=where, initial=-np.inf)
    low = np.min(values, axis=0, where=where, initial=np.inf)
    return np.log(np.maximum(high - low, 1)).astype(np.float32)


def _tails(spread: np.ndarray) -> np.ndarray:
    """The variances of the parts of each member, (parts, targets); one part without any spread."""
    return _parts(spread) if spread.any() else np.ones((1, len(spread)), np.float32)


def _parts(spread: np.ndarray) -> np.ndarray:
    nodes = _normal_quantiles(_PARTS).astype(spread.dtype)
    parts = np.exp(nodes[:, None] * spread)
    return parts / parts.mean(axis=0)


def _normal_quantiles(number: int) -> np.ndarray:
    """Of the middles of so many equal parts."""
    middles = (np.arange(number) + 0.5) / number
    return np.array([NormalDist().inv_cdf(middle) for middle in middles])


def _unfamiliarity(knowledge: tuple[Knowledge, np.ndarray], target: int) -> float:
    """That of training rows, each left out, on average; see `_widths`."""
    rows, level = knowledge[1][target], float(knowledge[0].level[target])
    known = rows[np.isfinite(rows)].astype(np.float64)
    return float(np.mean(known / (known + level))) if len(known) and level > 0 else 0.0


def _average(values: np.ndarray, weights: np.ndarray) -> float:
    return float(np.average(values, weights=weights)) if weights.any() else 0.0


def know(network: DenseNetwork, params: chex.ArrayTree, rows: Rows) -> tuple[Knowledge, np.ndarray]:
    """What one member does not know, and the posterior variance of rows that are left out.

    Args:
        network: of all members.
        params: of one member, with its own variances.
        rows: of the table.
    """
    step = -(-len(rows.inputs) // MOST_ROWS)
    inputs, is_present = rows.inputs[::step], rows.where[::step]
    found = in_blocks(predict_tangents, network, params, inputs)
    weights = is_present * as_targets(rows.weights[::step], is_present)
    weights = len(rows.inputs) / len(inputs) * weights.reshape(len(inputs), -1)
    return learn_knowledge(found, inputs, weights)
