"""One call for all metrics."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fisher8_jax._internal.checks import check_count, check_level, check_levels
from fisher8_jax._points import (
    INTERVAL_LEVELS,
    Axis,
    Points,
    Statistic,
    count,
    mean_per_level,
    plain_mean,
    prepare,
    root_mean_square,
    row_sums,
)
from fisher8_jax.families import Predictive
from fisher8_jax.metrics._bootstrap import Bootstrap, bootstrap_bounds
from fisher8_jax.metrics._calibration_error import (
    PIT_BINS,
    ece_from_shares,
    pit_statistic,
    quantile_statistic,
)
from fisher8_jax.metrics._evaluation import Evaluation
from fisher8_jax.metrics._intervals import central_intervals
from fisher8_jax.metrics._scores import nll_statistic


def evaluate(
    dist: Predictive,
    targets: Array,
    *,
    axis: Axis = 0,
    where: Array | None = None,
    levels: tuple[float, ...] = INTERVAL_LEVELS,
    constant: bool = True,
    bootstrap: Bootstrap | None = None,
) -> Evaluation:
    """All metrics of a set of predictions as one record, which prints as a table.

    Args:
        dist: the predicted distributions, in the units in which to score.
        targets: observed values, exactly the shape of the predictions.
        axis: the axis or axes of the examples, None for all; see `rmse`.
        where: boolean, False for padding and missing targets; see `rmse`.
        levels: nominal levels of the central intervals, by default 50 %, 68.3 % (one standard
            deviation), 90 % and 95 %.
        constant: whether the NLL has its constant; see `nll`.
        bootstrap: if given, every metric gets a bootstrap interval over the examples. With several
            axes the first one named is resampled, so that the pixels of an image stay together.

    Returns:
        The record. Under `vmap` its fields get the mapped axis in front.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> dist = Gaussian(jnp.zeros(2), jnp.zeros(2))
        >>> record = evaluate(dist, jnp.array([-1.0, 1.0]), levels=(0.5,))
        >>> print(record)
        points                           2
        non-finite                       0
        RMSE                             1
        MAE                              1
        NLL (with constant)          1.419
        CRPS                        0.6024
        ECE (10 PIT bins)              0.4
        quantile calibration error  0.1421
        mean z^2                         1
        sharpness                        1
        coverage 50 %                    0
        width 50 %                   1.349
        interval score 50 %          2.651
    """
    # Checked before jit, so that the error points at the caller's own line.
    points = prepare(dist, targets, where, axis)
    levels = check_levels(levels)
    if bootstrap is not None:
        check_count("bootstrap.resamples", bootstrap.resamples)
        check_level("bootstrap.confidence", bootstrap.confidence)
    fields = (points.dist, points.targets, points.mask)
    return _evaluate(*fields, bootstrap, axes=points.axes, levels=levels, constant=bool(constant))


@functools.partial(jax.jit, static_argnames=("axes", "levels", "constant"))
def _evaluate(dist, targets, mask, bootstrap, *, axes, levels, constant) -> Evaluation:
    points = Points(dist, targets, mask, axes)
    statistics = _statistics(points, levels, constant)
    sums = {name: row_sums(points, s.elements) for name, s in statistics.items()}
    rows = {name: row for name, (row, _) in sums.items()}
    counts = sums["rmse"][1]

    def finish(means: dict[str, Array]) -> dict[str, Array]:
        metrics = {name: statistics[name].finish(mean) for name, mean in means.items()}
        shares = metrics.pop("pit")
        return metrics | {"ece": ece_from_shares(shares), "pit_histogram": shares[..., :PIT_BINS]}

    totals = jnp.sum(counts, axis=0)
    metrics = finish({name: jnp.sum(row, axis=0) / totals for name, row in rows.items()})
    number, broken = count(points), count(points, ~points.finite)

    def record(metrics: dict[str, Any], **more: Any) -> Evaluation:
        return Evaluation(number, broken, **metrics, levels=levels, constant=constant, **more)

    if bootstrap is None or not axes:
        return record(metrics)
    bounds = bootstrap_bounds(bootstrap, rows, counts, finish)
    lower, upper = (record(_unless_nan(bound, metrics)) for bound in bounds)
    return record(metrics, lower=lower, upper=upper, confidence=bootstrap.confidence)


def _statistics(points: Points, levels: tuple[float, ...], constant: bool) -> dict[str, Statistic]:
    dist, targets, or_nan = points.dist, points.targets, points.or_nan
    residual, interval = dist.residual(targets), central_intervals(dist, levels)

    covered = interval.contains(targets) & points.finite[..., None]

    def per_level(values: Array) -> Statistic:
        return mean_per_level(jnp.where(points.finite[..., None], values, jnp.nan))

    return {
        "rmse": root_mean_square(points, residual),
        "mae": plain_mean(jnp.abs(residual)),
        "nll": nll_statistic(points, constant=constant),
        "crps": plain_mean(or_nan(dist.crps(targets))),
        "pit": pit_statistic(points),
        "quantile_calibration_error": quantile_statistic(points),
        "mean_z_squared": plain_mean(jnp.square(points.z)),
        "sharpness": root_mean_square(points, or_nan(dist.std)),
        "coverage": mean_per_level(points.share(covered)),
        "interval_width": per_level(interval.width),
        "interval_score": per_level(interval.score(targets)),
    }


def _unless_nan(bound: dict[str, Array], metrics: dict[str, Array]) -> dict[str, Array]:
    """No interval around a value that does not exist."""
    return {name: jnp.where(jnp.isnan(metrics[name]), jnp.nan, bound[name]) for name in bound}
