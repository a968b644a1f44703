"""The doctor: from predictions and a training record to what is wrong, in words."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtr, ndtri

from fisher8_jax._checks import check_mask, check_number, check_targets
from fisher8_jax.diagnostics._checks import check_has_batch
from fisher8_jax.diagnostics._findings import Diagnosis, Finding, sorted_by_severity
from fisher8_jax.diagnostics._prediction_rules import PREDICTION_RULES, Predictions
from fisher8_jax.diagnostics._record import TrainingRecord
from fisher8_jax.diagnostics._saturation_rules import judge_saturation
from fisher8_jax.diagnostics._statistics import Thresholds
from fisher8_jax.diagnostics._training_rules import CAUSE_RULES, TRAINING_RULES
from fisher8_jax.metrics._predictive import Predictive, is_finite, standardize, widen
from fisher8_jax.metrics._predictive import log_variance as log_variance_of


def doctor(
    dist: Predictive,
    targets: Array,
    *,
    record: TrainingRecord | None = None,
    unit_variance_mean: Array | None = None,
    where: Array | None = None,
    target_names: Sequence[str] | None = None,
    significance: float = 1e-3,
    material: float = 0.02,
) -> Diagnosis:
    """States what is wrong with predictions and training, with figures and what to change.

    Give it held-out data. A fault is named only if it is significant, each test at level
    `significance` divided by the number of targets, and material: worth at least `material` nats of
    NLL per target. 0.02 nats correspond to standard deviations that are wrong by about 14 %, or to
    a root mean squared error that is 2 % too large. Every target is judged by itself; rows are
    taken to be independent. Not meant for angles and classes, whose variance is of another kind.
    It runs outside `jax.jit`, because its answer is text.

    Args:
        dist: the predictions, points along the first axis, further axes are targets.
        targets: observed values.
        record: notes of the training; without it only the predictions are judged.
        unit_variance_mean: predictions of a fit of the same network with unit variance.
        where: boolean, False for padding and missing targets.
        target_names: one per target, used in the findings.
        significance: probability of a false alarm of each test.
        material: nats per target below which nothing is said.

    Returns:
        The findings; printing them gives the report, and they are false if nothing is wrong.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> mean = jnp.linspace(-2.0, 2.0, 500)
        >>> targets = mean + jax.random.normal(jax.random.key(0), (500,))
        >>> print(doctor(Gaussian(mean, jnp.zeros(500)), targets))
        No fault found.
        >>> doctor(Gaussian(mean, jnp.full(500, 2.0)), targets).codes
        ('variance_inflated',)
    """
    check_has_batch(dist.batch_shape)
    check_number("significance", significance, above=0, at_most=1)
    shape = dist.batch_shape + dist.event_shape
    targets = check_targets(targets, shape)
    if unit_variance_mean is not None:
        unit_variance_mean = check_targets(unit_variance_mean, shape, "unit_variance_mean")
    record = TrainingRecord() if record is None else record
    columns = _columns(dist, targets, unit_variance_mean, where)
    names = _names(columns, target_names)
    limits = Thresholds(significance / max(1, len(columns)), material)
    found = [f for rule in TRAINING_RULES for f in rule(record, limits)]
    for name, (predictions, finite) in zip(names, columns, strict=True):
        about = _about_target(predictions, finite, record, limits)
        found += [dataclasses.replace(finding, target=name) for finding in about]
    if found:
        found += [f for rule in CAUSE_RULES for f in rule(record, limits)]
    return Diagnosis(sorted_by_severity(found))


def _about_target(
    predictions: Predictions, finite: np.ndarray, record: TrainingRecord, limits: Thresholds
) -> list[Finding]:
    found = _judge_finite(finite)
    if predictions.z.size < 2:
        return found
    has_variance = np.isfinite(predictions.log_variance)
    if has_variance.sum() >= 2:
        found += judge_saturation(predictions.log_variance[has_variance], record, limits)
    return found + [f for rule in PREDICTION_RULES for f in rule(predictions, limits)]


def _judge_finite(finite: np.ndarray) -> list[Finding]:
    bad = int(np.sum(~finite))
    if bad == 0:
        return []
    sentence = f"{bad} of {finite.size} predictions are not finite."
    advice = (
        "Look for nan in the inputs and targets; if there are none, lower the learning rate, scale "
        "the targets, or use `fisher8_nll`, which does not overflow at small variances."
    )
    figures = {"not_finite": float(bad), "predictions": float(finite.size)}
    return [Finding("non_finite_predictions", "error", sentence, figures, advice)]


def _columns(
    dist: Predictive, targets: Array, unit_variance_mean: Array | None, where: Array | None
) -> list[tuple[Predictions, np.ndarray]]:
    """For every target its finite predictions, and which of the unmasked ones are finite."""
    dist, targets = widen(dist), widen(targets)
    shape = dist.batch_shape
    mask = jnp.ones(shape, bool) if where is None else check_mask("where", where, shape)
    number = targets[0].size

    def table(values: Array) -> np.ndarray:
        expanded = np.asarray(values).reshape(values.shape + (1,) * (targets.ndim - values.ndim))
        return np.broadcast_to(expanded, targets.shape).reshape(targets.shape[0], number)

    is_sound, arrays = _per_element(dist, targets)
    arrays["unit_variance_mean"] = unit_variance_mean
    is_used, is_sound = table(mask), table(is_sound)
    tables = {n: None if a is None else table(a).astype(np.float64) for n, a in arrays.items()}
    result = []
    for k in range(number):
        rows = is_used[:, k] & is_sound[:, k]
        column = {n: None if t is None else t[rows, k] for n, t in tables.items()}
        result.append((Predictions(**column), is_sound[is_used[:, k], k]))  # type: ignore[arg-type]
    return result


@jax.jit
def _per_element(dist: Predictive, targets: Array) -> tuple[Array, dict[str, Array]]:
    """Which predictions are finite, and what the rules look at."""
    z = standardize(dist, targets)
    if dist.event_shape:
        pit = ndtr(z)  # the marginal of a joint distribution
    else:
        pit = dist.cdf(targets)
        # Where a heavy tail has no variance or mean, normal scores take the place of residuals.
        tiny = jnp.finfo(pit.dtype).eps
        z = jnp.where(jnp.isfinite(dist.variance), z, ndtri(jnp.clip(pit, tiny, 1 - tiny)))
    arrays = {"mean": dist.mean, "log_variance": log_variance_of(dist)}
    return is_finite(dist), {"targets": targets, "z": z, "pit": pit, **arrays}


def _names(columns: Sequence[object], names: Sequence[str] | None) -> list[str | None]:
    if names is None:
        return [None] if len(columns) == 1 else [f"target {k}" for k in range(len(columns))]
    if len(names) != len(columns):
        raise ValueError(
            f"`target_names` must have one name per target: {len(columns)} targets, "
            f"got {len(names)} names."
        )
    return list(names)
