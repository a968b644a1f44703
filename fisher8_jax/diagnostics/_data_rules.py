"""Rules of the doctor about the data themselves: missing, not finite, of another scale."""

import numpy as np

from fisher8_jax.diagnostics._findings import Finding
from fisher8_jax.diagnostics._scores import Column
from fisher8_jax.diagnostics._training_rules import scale_finding
from fisher8_jax.families import Predictive

# Faults for which targets of another scale are a likely cause, though no record speaks of them.
_SCALE_EXPLAINS = {"non_finite_predictions", "mean_uninformative", "mean_off", "collapsed"}


def judge_data(column: Column) -> list[Finding]:
    """Is there anything to judge, and is all of it finite?"""
    found = []
    if column.used == 0:
        sentence = "There is nothing to judge: no row is left, or `where` leaves out all of them."
        advice = "Pass held-out rows, and a `where` that is True for those with a target."
        found.append(Finding("no_data", "error", sentence, {"rows": 0.0}, advice))
    if column.bad_targets:
        sentence = f"{column.bad_targets} of {column.used} targets are not finite numbers."
        advice = (
            "Mark missing targets by `where=jnp.isfinite(targets)`, here and in training; the "
            "other findings leave them out."
        )
        figures = {"not_finite": float(column.bad_targets), "targets": float(column.used)}
        found.append(Finding("non_finite_targets", "error", sentence, figures, advice))
    if column.bad_predictions:
        sentence = f"{column.bad_predictions} of {column.used} predictions are not finite."
        advice = (
            "Look for nan in the inputs and targets; if there are none, lower the learning rate, "
            "scale the targets, or use `fisher8_nll`, which does not overflow at small variances."
        )
        figures = {"not_finite": float(column.bad_predictions), "predictions": float(column.used)}
        found.append(Finding("non_finite_predictions", "error", sentence, figures, advice))
    return found


def judge_scale_of_given_targets(
    columns: list[Column], dist: Predictive, codes: set[str]
) -> list[Finding]:
    """Without a record: could the scale of these targets have caused what was found?"""
    if not dist.is_location_scale or not codes & _SCALE_EXPLAINS:
        return []
    targets = np.concatenate([c.targets for c in columns] or [np.zeros(0)])
    targets = targets[np.isfinite(targets)]
    if targets.size < 2 or targets.std() == 0:
        return []
    mean, std = float(targets.mean()), float(targets.std())
    return scale_finding(mean, std, "these targets, if they are trained on as they are, are")
