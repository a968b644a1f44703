"""The doctor: from predictions and a training record to what is wrong, in words."""

import dataclasses
from collections.abc import Sequence

from jax import Array

from fisher8_jax._internal.checks import check_number, check_targets
from fisher8_jax.diagnostics._findings import Diagnosis, Finding, TrainingRecord, sorted_by_severity
from fisher8_jax.diagnostics._input_rules import judge_constant_spread, judge_missed_input
from fisher8_jax.diagnostics._mean_rules import MEAN_RULES
from fisher8_jax.diagnostics._mixed_up import judge_mixed_up_fields
from fisher8_jax.diagnostics._point_rules import (
    judge_data,
    judge_placeholders,
    judge_saturation,
    judge_scale_of_given_targets,
)
from fisher8_jax.diagnostics._scores import Column, columns_of
from fisher8_jax.diagnostics._shape_rules import judge_tails
from fisher8_jax.diagnostics._shares import check_has_batch, check_rows
from fisher8_jax.diagnostics._spread_rules import judge_places, judge_spread
from fisher8_jax.diagnostics._statistics import Thresholds
from fisher8_jax.diagnostics._training_rules import (
    CAUSE_RULES,
    TRAINING_RULES,
    is_constant,
    judge_collapse,
)
from fisher8_jax.families import Predictive

# What a network that does not look at its input would do anyway: a longer or faster training is no
# cure for it.
_EXPLAINED_BY_COLLAPSE = (
    "mean_uninformative",
    "learning_rate_too_low",
    "undertrained",
    "variance_constant",
    "mean_misses_input",
    "input_scale_off",
    "wrong_shape",
)

_SPREAD_RULES = (judge_constant_spread, judge_tails, judge_spread, judge_places)

_MOST_INPUTS = 50


def doctor(
    dist: Predictive,
    targets: Array,
    *,
    record: TrainingRecord | None = None,
    unit_variance_mean: Array | None = None,
    where: Array | None = None,
    inputs: Array | None = None,
    target_names: Sequence[str] | None = None,
    significance: float = 1e-3,
    material: float = 0.02,
) -> Diagnosis:
    """States what is wrong with predictions and training, with figures and what to change.

    Give it held-out data. A fault is named only if it is significant, each test at level
    `significance` divided by the number of targets, and material: worth at least `material` nats of
    NLL per target. 0.02 nats correspond to standard deviations that are wrong by about 14 %, or to
    a root mean squared error that is 2 % too large. Tests are made on randomised quantile
    residuals, so that their level holds for every family. Every target is judged by itself; rows
    are taken to be independent. Statements about the mean leave out angles and classes. It runs
    outside `jax.jit`, because its answer is text.

    Args:
        dist: the predictions, points along the first axis, further axes are targets.
        targets: observed values.
        record: notes of the training; without it only the predictions are judged.
        unit_variance_mean: predictions of a fit of the same network with unit variance.
        where: boolean, False for padding and missing targets.
        inputs: what the predictions were made from, one row per point: lets a constant variance be
            tested against noise that depends on an input. At most 50 columns are looked at.
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
    check_has_batch(_check_dist(dist).batch_shape, may_be_empty=True)
    check_number("significance", significance, above=0, at_most=1)
    shape = dist.batch_shape + dist.event_shape
    targets = check_targets(targets, shape)
    if unit_variance_mean is not None:
        unit_variance_mean = check_targets(unit_variance_mean, shape, "unit_variance_mean")
    record = TrainingRecord() if record is None else record
    rows = None if inputs is None else check_rows(inputs, shape[0])[:, :_MOST_INPUTS]
    columns = columns_of(dist, targets, unit_variance_mean, where, rows)
    names = _names(columns, target_names)
    limits = Thresholds(significance / max(1, len(columns)), material)
    found = judge_collapse([column.points for column in columns], record, limits)
    found += [f for rule in TRAINING_RULES for f in rule(record, limits)]
    for name, column in zip(names, columns, strict=True):
        about = _about_target(column, dist, record, limits)
        found += [dataclasses.replace(finding, target=name) for finding in about]
    return Diagnosis(sorted_by_severity(_with_causes(found, columns, dist, record, limits)))


def _check_dist(dist: object) -> Predictive:
    if not isinstance(dist, Predictive):
        raise TypeError(
            "`dist` must be a predicted distribution, because the doctor judges the spread, too; "
            f"got {type(dist).__name__}. From predicted means and standard deviations: "
            "`Gaussian.from_std(mean, std)`. An estimator gives one by `predict_distribution`."
        )
    return dist


def _about_target(
    column: Column, dist: Predictive, record: TrainingRecord, limits: Thresholds
) -> list[Finding]:
    found = judge_data(column)
    points = column.points
    if points.z.size < 2:
        return found
    placeholders, points = judge_placeholders(points, dist)
    found += placeholders
    if mixed_up := judge_mixed_up_fields(points.with_moments(), dist, limits):
        return found + mixed_up
    if not is_constant(points):
        found += judge_saturation(points.with_moments(), record, limits)
    of_mean = [f for rule in MEAN_RULES for f in rule(points, dist, limits)]
    if any(_is_in_other_units(finding) for finding in of_mean):
        return found + of_mean  # in these units nothing can be said about the spread
    if missed := judge_missed_input(points, dist, limits):
        # Targets and inputs do belong together.
        of_mean = missed + [f for f in of_mean if f.code != "mean_uninformative"]
    of_spread = [f for rule in _SPREAD_RULES for f in rule(points, dist, limits)]
    if of_mean:  # what the mean misses gives the errors its shape
        of_spread = [f for f in of_spread if f.code != "wrong_shape"]
    return found + of_spread + of_mean


def _is_in_other_units(finding: Finding) -> bool:
    return finding.code == "mean_off" and finding.severity == "error"


def _with_causes(
    found: list[Finding],
    columns: list[Column],
    dist: Predictive,
    record: TrainingRecord,
    limits: Thresholds,
) -> list[Finding]:
    """Adds what may have caused the faults, and takes away what one of them explains."""
    # A mean that follows the targets in other units was learnt: the scale did no harm.
    codes = {finding.code for finding in found if not _is_in_other_units(finding)}
    if "collapsed" in codes:
        found = [finding for finding in found if finding.code not in _EXPLAINED_BY_COLLAPSE]
    if not found:
        return found
    causes = [f for rule in CAUSE_RULES for f in rule(record, limits)]
    if record.target_std is None and record.target_mean is None:
        causes += judge_scale_of_given_targets(columns, dist, codes)
    return found + causes


def _names(columns: Sequence[object], names: Sequence[str] | None) -> list[str | None]:
    if names is None:
        return [None] if len(columns) == 1 else [f"target {k}" for k in range(len(columns))]
    if len(names) != len(columns):
        raise ValueError(
            f"`target_names` must have one name per target: {len(columns)} targets, "
            f"got {len(names)} names."
        )
    return list(names)
