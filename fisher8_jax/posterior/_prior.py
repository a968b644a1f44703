"""Gaussian priors of the parameters: one precision for each group of leaves."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from chex import ArrayTree
from jax.tree_util import keystr

from fisher8_jax._internal.checks import check_positive
from fisher8_jax._internal.numerics import at_least_float32


@dataclasses.dataclass(frozen=True)
class Prior:
    """Parameters are independent, normal around `mean` with variance `1 / precision`.

    Args:
        precision: one number for all groups, or a number for each by name. Where the evidence
            chooses it, this is the start.
        groups: 'leaves' gives every parameter leaf a precision of its own, 'one' gives all the
            same. Or a mapping from names to leaves, each leaf a path such as `'encoder/kernel'` or
            its beginning, `'encoder'`. Leaves in no group are fixed at their values.
        mean: a tree like the parameters; zero if None. Pretrained weights to fine-tune from, or the
            parameters of an earlier task.

    Example:
        >>> from fisher8_jax.posterior import Prior
        >>> groups = {"body": ["layers"], "head": ["out"]}
        >>> Prior(precision={"body": 10.0, "head": 1.0}, groups=groups).precision["body"]
        10.0
    """

    precision: float | Mapping[str, float] = 1.0
    groups: Literal["leaves", "one"] | Mapping[str, Sequence[str]] = "leaves"
    mean: ArrayTree | None = None


class Groups(NamedTuple):
    """A prior that has met its parameters.

    Attributes:
        names: of the groups.
        leaves: indices of the leaves that are not fixed.
        of_leaf: the group of each of these.
    """

    names: tuple[str, ...]
    leaves: tuple[int, ...]
    of_leaf: tuple[int, ...]

    def add_up(self, values: Sequence[float]) -> np.ndarray:
        """Sums over the leaves of each group."""
        total = np.zeros(len(self.names))
        np.add.at(total, list(self.of_leaf), np.asarray(values, float))
        return total


def leaf_names(params: ArrayTree) -> list[str]:
    """The paths of all leaves."""
    paths = jax.tree_util.tree_flatten_with_path(params)[0]
    return [keystr(path, simple=True, separator="/") for path, _ in paths]


def resolve(prior: Prior, params: ArrayTree, reached: Sequence[bool]) -> Groups:
    """The groups of a prior; leaves that reach no prediction belong to none."""
    names = leaf_names(params)
    usable = [i for i, is_reached in enumerate(reached) if is_reached]
    if not usable:
        raise ValueError(
            "No parameter reaches the predictions: `predict_one(params, example)` must compute "
            "them from `params`."
        )
    if prior.groups == "one":
        return Groups(("all",), tuple(usable), (0,) * len(usable))
    if prior.groups == "leaves":
        return Groups(tuple(names[i] for i in usable), tuple(usable), tuple(range(len(usable))))
    if not isinstance(prior.groups, Mapping):
        raise ValueError(
            f"`groups` must be 'leaves', 'one' or a mapping from names to leaves, got "
            f"{prior.groups!r}."
        )
    return _named(prior.groups, names, usable)


def _named(wanted: Mapping[str, Sequence[str]], names: list[str], usable: list[int]) -> Groups:
    owner: dict[int, int] = {}
    for group, (title, members) in enumerate(wanted.items()):
        members = (members,) if isinstance(members, str) else members
        for member in members:
            found = [i for i, n in enumerate(names) if n == member or n.startswith(f"{member}/")]
            if not found:
                raise ValueError(
                    f"`groups` names {member!r} in {title!r}, but no parameter has that path. "
                    f"There are: {', '.join(names)}."
                )
            for leaf in found:
                if owner.setdefault(leaf, group) != group:
                    raise ValueError(f"`groups` has the leaf {names[leaf]!r} in two groups.")
    leaves = tuple(leaf for leaf in usable if leaf in owner)
    missing = [title for g, title in enumerate(wanted) if g not in {owner[leaf] for leaf in leaves}]
    if missing or not leaves:
        raise ValueError(
            f"The groups {missing or list(wanted)} of `groups` have no leaf that is "
            "floating-point, not empty and reaches the predictions: leave them out."
        )
    return Groups(tuple(wanted), leaves, tuple(owner[leaf] for leaf in leaves))


def log_precisions(prior: Prior, groups: Groups) -> np.ndarray:
    """The logarithms of the precisions, one for each group."""
    given = prior.precision
    if isinstance(given, Mapping):
        if set(given) != set(groups.names):
            raise ValueError(
                f"`precision` must have a number for each of the groups {list(groups.names)}, got "
                f"{list(given)}."
            )
        values = [given[name] for name in groups.names]
    else:
        values = [given] * len(groups.names)
    for value in values:
        check_positive("precision", value)
        if not np.isfinite(float(value)):
            raise ValueError(
                f"`precision` must be finite, got {value}. To fix leaves at their values leave "
                "them out of `groups`."
            )
    return np.log(np.asarray(values, float))


def squared_distances(prior: Prior, groups: Groups, params: ArrayTree) -> Any:
    """`|params - mean|^2` of every group; NumPy's of NumPy parameters, which compiles nothing."""
    leaves = jax.tree.leaves(params)
    means = [None] * len(leaves) if prior.mean is None else _check_mean(prior.mean, params)
    total: list[Any] = [0.0] * len(groups.names)
    for group, index in zip(groups.of_leaf, groups.leaves, strict=True):
        mean, leaf = means[index], leaves[index]
        if not isinstance(leaf, np.ndarray):
            leaf = at_least_float32(jnp.asarray(leaf))
        total[group] += ((leaf if mean is None else leaf - mean) ** 2).sum()
    return jnp.stack(total) if any(isinstance(t, jax.Array) for t in total) else np.stack(total)


def means_of(prior: Prior, groups: Groups, params: ArrayTree) -> list[Any]:
    """The prior's mean of every leaf that is not fixed."""
    if prior.mean is None:
        return [np.zeros_like(jax.tree.leaves(params)[i]) for i in groups.leaves]
    means = _check_mean(prior.mean, params)
    return [means[i] for i in groups.leaves]


def _check_mean(mean: ArrayTree, params: ArrayTree) -> list[Any]:
    given, wanted = str(jax.tree.structure(mean)), str(jax.tree.structure(params))
    if given != wanted:
        raise ValueError(
            f"`mean` of the prior must be a tree like the parameters, {wanted}, got {given}."
        )
    shapes = zip(leaf_names(params), jax.tree.leaves(mean), jax.tree.leaves(params), strict=True)
    for name, of_mean, of_params in shapes:
        if not isinstance(of_mean, jax.core.Tracer) and not np.isfinite(of_mean).all():
            raise ValueError(f"`mean` of the prior is not finite at {name!r}.")
        if np.shape(of_mean) != np.shape(of_params):
            raise ValueError(
                f"`mean` of the prior has shape {np.shape(of_mean)} at {name!r}, the parameters "
                f"have {np.shape(of_params)}."
            )
    return jax.tree.leaves(mean)
