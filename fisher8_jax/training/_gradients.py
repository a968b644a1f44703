"""The gradients that a method can follow: of a loss, at the output, of the whole network."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import chex
import jax
from jax import Array

from fisher8_jax._internal.checks import check_choice, check_number, check_positive
from fisher8_jax.curvature import (
    Auto,
    Blocks,
    ConjugateGradients,
    Direct,
    GradientState,
    network_gradient,
)
from fisher8_jax.families import Family
from fisher8_jax.losses import LOSSES
from fisher8_jax.training._data import Data, Params, Variables
from fisher8_jax.training._description import STATIC, Description, in_words, register_description
from fisher8_jax.training._networks import Network, apply_network

Loss: TypeAlias = str | Callable[..., Array]


class Point(NamedTuple):
    """Where a gradient is computed."""

    params: Params
    variables: Variables
    state: GradientState | None
    """What the gradient keeps from step to step; None for most."""


class Pass(NamedTuple):
    """What one pass through the network found."""

    loss: Array
    gradient: Params
    dist: Family
    variables: Variables
    state: GradientState | None
    step_kl: Array | None = None
    """By how much a step of minus the gradient moves the predictions, if that is known."""


@register_description
@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class LossGradient(Description):
    """The plain gradient of a loss.

    Args:
        loss: a name in `fisher8_jax.losses.LOSSES`, or a function
            `loss(dist, targets, *, where, weights)` with one value per element.
        hyperparameters: further keywords of the loss, pairs of a name and a number.
        penalty: a scalar of the parameters that is added to the mean loss; None for none.

    Example:
        >>> from fisher8_jax.training import LossGradient
        >>> LossGradient("beta_nll", hyperparameters=(("beta", 0.5),)).loss
        'beta_nll'
    """

    loss: Loss = dataclasses.field(default="nll", metadata=STATIC)
    hyperparameters: tuple[tuple[str, float], ...] = dataclasses.field(default=(), metadata=STATIC)
    penalty: Callable[[Params], Array] | None = dataclasses.field(default=None, metadata=STATIC)

    def __post_init__(self) -> None:
        _loss_function(self.loss, self.hyperparameters)

    def __str__(self) -> str:
        return f"gradient of {_name(self.loss)}"

    def init(self, params: Params) -> None:
        """Nothing is kept from step to step."""

    def compute(self, network: Network, at: Point, batch: Data, key: Array | None) -> Pass:
        """Loss and gradient on a batch."""
        loss = _loss_function(self.loss, self.hyperparameters)
        return _differentiate(loss, self.penalty, network, at, batch, key)


@register_description
@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class OutputNaturalGradient(Description):
    """The natural gradient at the network's output: Fisher8 on the NLL.

    Example:
        >>> from fisher8_jax.training import OutputNaturalGradient
        >>> OutputNaturalGradient()
        OutputNaturalGradient()
    """

    def __str__(self) -> str:
        return "output natural gradient"

    def init(self, params: Params) -> None:
        """Nothing is kept from step to step."""

    def compute(self, network: Network, at: Point, batch: Data, key: Array | None) -> Pass:
        """Loss and gradient on a batch."""
        return _differentiate(LOSSES["fisher8"], None, network, at, batch, key)


@register_description
@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class NetworkNaturalGradient(Description):
    """The parameter-space natural gradient of the NLL: that of the whole network.

    It differentiates the network one example at a time, so batch statistics and dropout have no
    part in it, and a network with variables is refused.

    Args:
        damping, solver: see `network_gradient`.
        momentum: how much of a step the next one begins with, see `GradientState`; None for none.

    Example:
        >>> from fisher8_jax.training import NetworkNaturalGradient
        >>> NetworkNaturalGradient(damping=1.0)
        NetworkNaturalGradient(damping=1.0)
    """

    damping: chex.Numeric = 0.3
    momentum: chex.Numeric | None = None
    solver: Auto | Direct | ConjugateGradients | Blocks | Literal["auto"] = dataclasses.field(
        default="auto", metadata=STATIC
    )

    def __post_init__(self) -> None:
        check_positive("damping", self.damping)
        if self.momentum is not None:
            check_number("momentum", self.momentum, at_least=0, below=1)

    def __str__(self) -> str:
        momentum = "" if self.momentum is None else f", momentum {in_words(self.momentum)}"
        return f"network natural gradient, damping {in_words(self.damping)}{momentum}"

    def init(self, params: Params) -> GradientState | None:
        """What the gradient keeps from step to step."""
        if self.momentum is None:
            return None
        return GradientState.zeros(params, momentum=self.momentum)

    def compute(self, network: Network, at: Point, batch: Data, key: Array | None) -> Pass:
        """Loss and natural gradient on a batch."""
        _check_no_variables(at.variables)

        def predict_one(params: Params, example: chex.ArrayTree) -> Family:
            rows = jax.tree.map(lambda leaf: leaf[None], example)
            dist, _ = apply_network(network, params, at.variables, rows)
            return jax.tree.map(lambda leaf: leaf[0], dist)

        found = network_gradient(
            predict_one,
            at.params,
            batch.inputs,
            batch.targets,
            damping=self.damping,
            where=batch.where,
            weights=batch.weights,
            solver=self.solver,
            state=at.state,
        )
        dist = found.curvature.dist
        return Pass(found.value, found.gradient, dist, at.variables, found.state, found.step_kl)


Gradient: TypeAlias = LossGradient | OutputNaturalGradient | NetworkNaturalGradient


def _differentiate(
    loss: Callable[..., Array],
    penalty: Callable[[Params], Array] | None,
    network: Network,
    at: Point,
    batch: Data,
    key: Array | None,
) -> Pass:
    def loss_of(params: Params) -> tuple[Array, tuple[Family, Variables]]:
        dist, new = apply_network(network, params, at.variables, batch.inputs, key=key, train=True)
        values = loss(dist, batch.targets, where=batch.where, weights=batch.weights)
        mean = values.mean(where=batch.where)
        return mean if penalty is None else mean + penalty(params), (dist, new)

    (value, (dist, variables)), gradient = jax.value_and_grad(loss_of, has_aux=True)(at.params)
    return Pass(value, gradient, dist, variables, None)


def _loss_function(
    loss: Loss, hyperparameters: tuple[tuple[str, float], ...]
) -> Callable[..., Array]:
    if isinstance(loss, str):
        check_choice("loss", loss, LOSSES)
        _check_hyperparameters(loss, [name for name, _ in hyperparameters])
        loss = LOSSES[loss]
    if not callable(loss):
        raise TypeError(
            f"`loss` must be a name in `losses.LOSSES` or a function, got {type(loss).__name__}."
        )
    return functools.partial(loss, **dict(hyperparameters)) if hyperparameters else loss


def _check_hyperparameters(loss: str, given: list[str]) -> None:
    """Rejects names that are no keyword of the loss beside mask and weights."""
    parameters = inspect.signature(LOSSES[loss]).parameters.values()
    known = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} - {"where", "weights"}
    if unknown := sorted(set(given) - known):
        listing = ", ".join(sorted(known)) or "none"
        raise TypeError(f"`{loss}` has no hyper-parameter {', '.join(unknown)}; it has: {listing}.")


def _name(loss: Loss) -> str:
    return loss if isinstance(loss, str) else getattr(loss, "__name__", "a loss of your own")


def _check_no_variables(variables: Variables) -> None:
    if jax.tree.leaves(variables):
        raise ValueError(
            "`NetworkNaturalGradient` differentiates one example at a time, without dropout or "
            "batch statistics, but the network has variables. Use layer normalisation, or "
            "`OutputNaturalGradient()`."
        )
