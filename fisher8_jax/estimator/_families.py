"""The likelihoods that the estimator knows by name, and the units in which targets are trained."""

import dataclasses
import inspect
import re
from typing import Any

import numpy as np

import fisher8_jax.families
from fisher8_jax.artifacts import TargetScaler
from fisher8_jax.estimator._estimator_checks import as_targets
from fisher8_jax.families import (
    Family,
    ScalarFamily,
    StudentTLearnedDf,
    VonMises,
    Weibull,
)

# So many different whole numbers may as well be measurements.
_MANY_VALUES = 50

# All families of scalar targets, such as `student_t`.
LIKELIHOODS: dict[str, type[Family]] = {
    re.sub("(?!^)(?=[A-Z])", "_", name).lower(): family
    for name, family in vars(fisher8_jax.families).items()
    if inspect.isclass(family)
    and issubclass(family, ScalarFamily)
    and not inspect.isabstract(family)
}

# What 'auto' leaves out. That real numbers are angles the data cannot tell; the others cost a
# training each and are seldom the best.
_NOT_AUTOMATIC = (StudentTLearnedDf, Weibull, VonMises)


def choose_likelihoods(
    family: Any, targets: np.ndarray, where: np.ndarray
) -> dict[str, type[Family]]:
    """The likelihoods to train, by name.

    Args:
        family: a name, 'auto', or a class.
        targets: float64.
        where: False for missing targets.
    """
    if isinstance(family, str) and family == "auto":
        return _automatic(targets[where])
    if isinstance(family, str) and family in LIKELIHOODS:
        chosen = LIKELIHOODS[family]
    elif inspect.isclass(family) and issubclass(family, Family):
        _check_static_fields(family)
        chosen = family
    else:
        raise ValueError(
            f"`family` must be 'auto', a class of `fisher8_jax.families`, or one of "
            f"{', '.join(map(repr, LIKELIHOODS))}, got {family!r}."
        )
    name = name_of(chosen)
    check_support(name, chosen, targets, where)
    return {name: chosen}


def find_likelihood(name: str, family: Any) -> type[Family]:
    """The likelihood called `name` in the table, or else the class `family`."""
    found: type[Family] = LIKELIHOODS.get(name, family)
    return found


def name_of(family: type[Family]) -> str:
    """The name in the table, or that of the class itself."""
    names = [name for name, known in LIKELIHOODS.items() if known is family]
    return names[0] if names else family.__name__


def check_support(name: str, family: type[Family], targets: np.ndarray, where: np.ndarray) -> None:
    """Rejects targets that have no likelihood."""
    if family.support == "classes":
        raise ValueError(f"`family` {name!r} predicts classes, which are no regression targets.")
    wrong = family.outside_support(targets, where=where)
    if wrong is not None:
        raise ValueError(f"`family` {name!r} does not fit `y`: {wrong} Choose another, or 'auto'.")


def fit_units(
    units: str, targets: np.ndarray, where: np.ndarray, weights: np.ndarray
) -> TargetScaler:
    """Shift and scale in float64, right for targets of any size.

    Targets of location-scale families are standardised, positive ones divided by their mean, angles
    counted from their mean direction; others are trained on as they are.

    Squares of 1e160 and of 1e-170 leave the range of float64, so the spread is brought to unit size
    before it is squared.
    """
    one, zero = np.ones(targets.shape[1:]), np.zeros(targets.shape[1:])
    if units == "none":
        return TargetScaler(zero, one)
    weights = np.where(where, as_targets(weights, targets), 0.0)
    if units == "shift":
        angles = np.where(where, targets, 0.0)
        sine, cosine = (np.sum(weights * part, axis=0) for part in (np.sin(angles), np.cos(angles)))
        return TargetScaler(np.arctan2(sine, cosine), one)
    total = weights.sum(axis=0)
    first = np.take_along_axis(targets, np.argmax(weights > 0, axis=0)[None], axis=0)[0]
    base = first if units == "shift and scale" else zero
    distance = np.where(weights > 0, targets - base, 0.0)
    size = np.max(np.abs(distance), axis=0)
    size = np.where(size == 0, 1.0, size)
    relative = distance / size
    mean = (weights * relative).sum(axis=0) / total
    if units == "scale":
        return TargetScaler(zero, size * np.where(mean > 0, mean, 1.0))
    spread = np.sqrt((weights * (relative - mean) ** 2).sum(axis=0) / total)
    # By its values, because rounding leaves a constant column a tiny spread.
    is_constant = ~np.any(distance != 0, axis=0)
    return TargetScaler(base + size * mean, np.where(is_constant, 1.0, size * spread))


def _automatic(targets: np.ndarray) -> dict[str, type[Family]]:
    """Counts, shares and positive numbers have families besides those of all numbers."""
    support = _narrowest_support(targets)
    supports: tuple[str, ...] = {
        "counts": ("counts",),
        "closed unit interval": ("closed unit interval",),
        "unit interval": ("unit interval", "real"),
        "positive": ("positive", "real"),
        "real": ("real",),
    }[support]
    # Prices in whole units are whole numbers, too; a density over steps of 1 is a probability.
    if support == "counts" and len(np.unique(targets)) > _MANY_VALUES:
        supports += ("positive", "real") if np.all(targets > 0) else ("real",)
    return {
        name: family
        for name, family in LIKELIHOODS.items()
        if family.support in supports and family not in _NOT_AUTOMATIC
    }


def _narrowest_support(targets: np.ndarray) -> str:
    is_whole = bool(np.all(targets == np.floor(targets)))
    if is_whole and set(np.unique(targets)) == {0.0, 1.0}:
        return "closed unit interval"
    if is_whole and np.all(targets >= 0) and len(np.unique(targets)) > 1:
        return "counts"
    if np.all((targets > 0) & (targets < 1)):
        return "unit interval"
    return "positive" if np.all(targets > 0) else "real"


def _check_static_fields(family: type[Family]) -> None:
    fields = dataclasses.fields(family)
    required = [f.name for f in fields if f.metadata.get("static") and _has_no_default(f)]
    if required:
        raise ValueError(
            f"`family` {family.__name__} needs a value for {', '.join(required)}, which the "
            "estimator cannot know. Use `fisher8_jax.training.fit` with a network of your own."
        )


def _has_no_default(field: dataclasses.Field) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
