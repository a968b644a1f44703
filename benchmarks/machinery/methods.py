"""The table of methods: what each makes of a network's outputs, and how it is trained.

A method is a link (from outputs to a distribution), an objective (a loss with the state and
randomness it may need) and, for some, a severed trunk or a KL radius at the end of the optimiser.
Adding a row here adds it to every experiment; the training loop knows none of them by name.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax.numpy as jnp
from jax import Array

from fisher8_jax import Family, Gaussian
from fisher8_jax.losses import Objective, make_objective

Link = Callable[..., Family]


@dataclasses.dataclass(frozen=True)
class Method:
    """One way to train a mean and a variance.

    Args:
        label: its name in tables and figures.
        link: the distribution from the network's outputs, of which the first is the mean's.
        objective: the loss; see `fisher8_jax.losses.make_objective`.
        outputs: how many outputs per target the link takes.
        severs_trunk: only the first output trains the trunk.
        max_kl: the KL radius at the end of the optimiser, None for none.
        radius_mode: 'cap' bounds the optimiser's step, 'target' replaces the learning rate.
    """

    label: str
    link: Link
    objective: Objective
    outputs: int = 2
    severs_trunk: bool = False
    max_kl: float | None = None
    radius_mode: Literal["target", "cap"] = "cap"


def unit_variance_link(mean: Array, raw: Array) -> Gaussian:
    """The second output is not used: the variance is 1."""
    return Gaussian(mean, jnp.zeros_like(mean))


def collier_link(mean: Array, factor: Array, raw_diagonal: Array) -> Gaussian:
    """What is predicted at temperature 0: the latent itself."""
    return Gaussian.from_latent(mean, factor, raw_diagonal)


def _make(label: str, link: Link, loss: str, hyperparameters: Any = None, **fields: Any) -> Method:
    return Method(label, link, make_objective(loss, **(hyperparameters or {})), **fields)


_STD, _VARIANCE = Gaussian.from_softplus_std, Gaussian.from_softplus_variance

# The first five are the published ones, each with its authors' head.
METHODS = {
    "unit_variance": _make("Unit variance", unit_variance_link, "unit_variance"),
    "nll": _make("NLL", _STD, "gaussian_nll"),
    "beta_nll": _make("beta-NLL 0.5", _VARIANCE, "beta_nll", {"beta": 0.5}),
    "faithful": _make("Faithful", _STD, "faithful", severs_trunk=True),
    "fisher8": _make("Fisher8", _STD, "fisher8"),
    "fisher8_radius": _make("Fisher8 + KL radius", _STD, "fisher8", max_kl=0.01),
    "beta_nll_1": _make("beta-NLL 1.0", _VARIANCE, "beta_nll", {"beta": 1.0}),
    "natural_nll": _make("Natural NLL", Gaussian.from_natural, "natural_nll"),
    "natural_gradient": _make("Natural gradient", _STD, "natural_gradient"),
    "collier": _make("Collier, tau 0", collier_link, "collier", outputs=3),
    "trustable": _make("Trustable", _STD, "trustable", {"step_size": 0.1}),
}


def with_fields(method: Method, **fields: Any) -> Method:
    """`method` with some fields replaced, for instance another link or radius."""
    return dataclasses.replace(method, **fields)
