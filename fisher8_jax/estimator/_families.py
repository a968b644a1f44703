"""The likelihoods that the estimator knows by name, and the units in which each is trained."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from fisher8_jax.artifacts import TargetScaler
from fisher8_jax.estimator._checks import as_targets
from fisher8_jax.families import (
    Bernoulli,
    Beta,
    Family,
    Gamma,
    Gaussian,
    Laplace,
    LogNormal,
    NegativeBinomial,
    Poisson,
    StudentT,
    StudentTLearnedDf,
    VonMises,
    Weibull,
    ZeroInflatedPoisson,
)

Units = Literal["standard", "scaled", "turned", "own"]

# So many different whole numbers may as well be measurements.
_MANY_VALUES = 50


class Likelihood(NamedTuple):
    """One row of the table.

    Args:
        family: the class.
        units: 'standard' trains on shifted and scaled targets, 'scaled' on targets divided by their
            mean, 'turned' on angles from their mean direction, 'own' on the targets themselves.
        start: the first value of a raw output from the mean of the targets, by its name.
        automatic: whether `family='auto'` tries it where its support fits.
        width: the raw output that sets the variance alone, and how much it grows where the
            logarithm of the variance grows by 1; None where the variance is left as it is.
    """

    family: type[Family]
    units: Units
    start: tuple[tuple[str, Callable[[np.ndarray], np.ndarray]], ...] = ()
    automatic: bool = True
    width: tuple[str, float] | None = None


def _log(mean: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(mean, 1e-3))


def _logit(mean: np.ndarray) -> np.ndarray:
    inside = np.clip(mean, 1e-3, 1 - 1e-3)
    return np.log(inside) - np.log1p(-inside)


LIKELIHOODS = {
    "gaussian": Likelihood(Gaussian, "standard", width=("log_variance", 1.0)),
    "student_t": Likelihood(StudentT, "standard", width=("log_scale", 0.5)),
    "student_t_learned_df": Likelihood(StudentTLearnedDf, "standard", automatic=False),
    "laplace": Likelihood(Laplace, "standard", width=("log_scale", 0.5)),
    "log_normal": Likelihood(LogNormal, "scaled"),
    "gamma": Likelihood(Gamma, "scaled"),
    "weibull": Likelihood(Weibull, "scaled", automatic=False),
    "poisson": Likelihood(Poisson, "own", (("log_rate", _log),)),
    "negative_binomial": Likelihood(NegativeBinomial, "own", (("log_mean", _log),)),
    "zero_inflated_poisson": Likelihood(ZeroInflatedPoisson, "own", (("log_rate", _log),)),
    "beta": Likelihood(Beta, "own", (("logit_mean", _logit),)),
    "bernoulli": Likelihood(Bernoulli, "own", (("logit", _logit),)),
    # Angles are real numbers, too; that they go round nobody can tell from the data.
    "von_mises": Likelihood(VonMises, "turned", automatic=False),
}


def choose_likelihoods(
    family: Any, targets: np.ndarray, where: np.ndarray
) -> dict[str, Likelihood]:
    """The likelihoods to train, by name.

    Args:
        family: a name, 'auto', or a class.
        targets: float64.
        where: False for missing targets.
    """
    if isinstance(family, str) and family == "auto":
        return _automatic(targets[where])
    if isinstance(family, str) and family in LIKELIHOODS:
        chosen = {family: LIKELIHOODS[family]}
    elif inspect.isclass(family) and issubclass(family, Family):
        chosen = {name_of(family): _of_class(family)}
    else:
        raise ValueError(
            f"`family` must be 'auto', a class of `fisher8_jax.families`, or one of "
            f"{', '.join(map(repr, LIKELIHOODS))}, got {family!r}."
        )
    ((name, likelihood),) = chosen.items()
    check_support(name, likelihood.family, targets[where])
    return chosen


def find_likelihood(name: str, family: Any) -> Likelihood:
    """The row of the table called `name`, or one made for the class `family`."""
    return LIKELIHOODS[name] if name in LIKELIHOODS else _of_class(family)


def name_of(family: type[Family]) -> str:
    """The name in the table, or that of the class itself."""
    names = [name for name, likelihood in LIKELIHOODS.items() if likelihood.family is family]
    return names[0] if names else family.__name__


def fit_units(
    units: Units, targets: np.ndarray, where: np.ndarray, weights: np.ndarray
) -> TargetScaler:
    """Shift and scale in float64, right for targets of any size.

    Squares of 1e160 and of 1e-170 leave the range of float64, so the spread is brought to unit size
    before it is squared.
    """
    one, zero = np.ones(targets.shape[1:]), np.zeros(targets.shape[1:])
    if units == "own":
        return TargetScaler(zero, one)
    weights = np.where(where, as_targets(weights, targets), 0.0)
    if units == "turned":
        angles = np.where(where, targets, 0.0)
        sine, cosine = (np.sum(weights * part, axis=0) for part in (np.sin(angles), np.cos(angles)))
        return TargetScaler(np.arctan2(sine, cosine), one)
    total = weights.sum(axis=0)
    first = np.take_along_axis(targets, np.argmax(weights > 0, axis=0)[None], axis=0)[0]
    base = first if units == "standard" else zero
    distance = np.where(weights > 0, targets - base, 0.0)
    size = np.max(np.abs(distance), axis=0)
    size = np.where(size == 0, 1.0, size)
    relative = distance / size
    mean = (weights * relative).sum(axis=0) / total
    if units == "scaled":
        return TargetScaler(zero, size * np.where(mean > 0, mean, 1.0))
    spread = np.sqrt((weights * (relative - mean) ** 2).sum(axis=0) / total)
    # By its values, because rounding leaves a constant column a tiny spread.
    is_constant = ~np.any(distance != 0, axis=0)
    return TargetScaler(base + size * mean, np.where(is_constant, 1.0, size * spread))


def _automatic(targets: np.ndarray) -> dict[str, Likelihood]:
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
        name: likelihood
        for name, likelihood in LIKELIHOODS.items()
        if likelihood.automatic and likelihood.family.support in supports
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


def _of_class(family: type[Family]) -> Likelihood:
    name = name_of(family)
    if name in LIKELIHOODS:
        return LIKELIHOODS[name]
    fields = dataclasses.fields(family)
    required = [f.name for f in fields if f.metadata.get("static") and _has_no_default(f)]
    if required:
        raise ValueError(
            f"`family` {family.__name__} needs a value for {', '.join(required)}, which the "
            "estimator cannot know. Use `fisher8_jax.training.fit` with a network of your own."
        )
    units: dict[str, Units] = {"shift and scale": "standard", "scale": "scaled", "none": "own"}
    return Likelihood(family, units[family.units])


def _has_no_default(field: dataclasses.Field) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def check_support(name: str, family: type[Family], targets: np.ndarray) -> None:
    """Says which targets have no likelihood, in the words of the family."""
    inside = {
        "real": np.isfinite(targets),
        "angles": np.isfinite(targets),
        "positive": targets > 0,
        "unit interval": (targets > 0) & (targets < 1),
        "closed unit interval": (targets >= 0) & (targets <= 1),
        "counts": (targets >= 0) & (targets == np.floor(targets)),
    }.get(family.support)
    if inside is None:
        raise ValueError(
            f"`family` {name!r} predicts {family.support}, which is no regression target."
        )
    if not inside.all():
        outside = targets[~inside]
        raise ValueError(
            f"`family` {name!r} has no likelihood for {len(outside)} of {len(targets)} targets, "
            f"the first of them {outside[0]:g}: its support is {family.support!r}. Choose another, "
            "or 'auto'."
        )
