"""How long a step is: a learning rate, or a KL radius, both falling over the training."""

import dataclasses
import functools
from typing import Any, Literal, TypeAlias

import chex
import optax
from jax import Array

from fisher8_jax._internal.checks import check_choice, check_number, check_positive
from fisher8_jax.optimizers import (
    decay_schedule,
    default_max_change,
    default_max_kl,
    descend,
    network_max_kl,
    network_optimizer,
    scale_by_kl_radius,
)
from fisher8_jax.training._description import STATIC, Description, in_words, register_description


@register_description
@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class LearningRate(Description):
    """A learning rate, which is that of Adam unless the method has no second moments.

    Args:
        rate: the largest one.
        decay: the power of its decay to 0 over the training: 1 is linear, 0 none.
        warm_up: the fraction of the steps in which it grows to `rate`; None for none.

    Example:
        >>> from fisher8_jax.training import LearningRate
        >>> LearningRate(0.003)
        LearningRate(rate=0.003)
    """

    rate: chex.Numeric
    decay: float = dataclasses.field(default=1, metadata=STATIC)
    warm_up: chex.Numeric | None = None

    def __post_init__(self) -> None:
        check_positive("rate", self.rate)
        _check_schedule(self)

    def __str__(self) -> str:
        return f"learning rate {in_words(self.rate)}"

    def optimizer(
        self, num_steps: int | Array, momentum: Any, second_moment: Any
    ) -> optax.GradientTransformationExtraArgs:
        """The Optax optimizer of a training of `num_steps` steps."""
        rate = decay_schedule(self.rate, num_steps, power=self.decay, warm_up=self.warm_up)
        return descend(
            optax.scale_by_schedule(rate), momentum=momentum, second_moment=second_moment
        )


@register_description
@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class KLRadius(Description):
    """Steps that move the predictions of a batch by a given KL divergence.

    Args:
        max_kl: the largest divergence in nats; None for the default of `fisher8_optimizer` or, for
            a `NetworkNaturalGradient`, of `network_optimizer`, which depend on the number of steps.
        decay: the power of the *step's* decay to 0 over the training: 1 is linear (the radius, its
            square, falls with 2), 0 none.
        warm_up: the fraction of the steps in which the step grows to its largest; None for none.
        max_change: `max_change / sqrt(n)` is the part of its own size by which the n-th step may
            move any array of parameters, see `fisher8_optimizer`; None for no bound.
        mode, exact: see `scale_by_kl_radius`.

    Example:
        >>> from fisher8_jax.training import KLRadius
        >>> KLRadius(0.3, warm_up=0.2)
        KLRadius(max_kl=0.3, warm_up=0.2)
    """

    max_kl: chex.Numeric | None = None
    decay: float = dataclasses.field(default=1, metadata=STATIC)
    warm_up: chex.Numeric | None = None
    max_change: chex.Numeric | None = None
    mode: Literal["target", "cap"] = dataclasses.field(default="target", metadata=STATIC)
    exact: bool = dataclasses.field(default=False, metadata=STATIC)

    def __post_init__(self) -> None:
        for name in ("max_kl", "max_change"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        check_choice("mode", self.mode, ("target", "cap"))
        _check_schedule(self)

    def __str__(self) -> str:
        return f"KL radius {'default' if self.max_kl is None else in_words(self.max_kl)}"

    def optimizer(
        self, num_steps: int | Array, momentum: Any, second_moment: Any
    ) -> optax.GradientTransformationExtraArgs:
        """The Optax optimizer of a training of `num_steps` steps, built as `fisher8_optimizer`."""
        radius = scale_by_kl_radius(
            self._radius(default_max_kl(num_steps), num_steps),
            mode=self.mode,
            max_change=self._bound(),
            exact=self.exact,
        )
        return descend(
            radius,
            momentum=momentum,
            second_moment=second_moment,
            protect_units=self.max_change is not None,
        )

    def network_optimizer(
        self, num_steps: int | Array, *, has_momentum: bool
    ) -> optax.GradientTransformationExtraArgs:
        """That for parameter-space natural gradients: `network_optimizer`."""
        default = network_max_kl(num_steps, has_momentum=has_momentum)
        return network_optimizer(
            num_steps,
            max_kl=self._radius(default, num_steps),
            mode=self.mode,
            average=None,
            exact=self.exact,
        )

    def _radius(self, default: Any, num_steps: int | Array) -> optax.Schedule:
        peak = default if self.max_kl is None else self.max_kl
        return decay_schedule(peak, num_steps, power=2 * self.decay, warm_up=self.warm_up)

    def _bound(self) -> optax.Schedule | None:
        if self.max_change is None:
            return None
        return functools.partial(default_max_change, largest=self.max_change)


Length: TypeAlias = LearningRate | KLRadius | optax.GradientTransformation


def _check_schedule(length: Any) -> None:
    check_number("decay", length.decay, at_least=0)
    if length.warm_up is not None:
        check_number("warm_up", length.warm_up, above=0, below=1)
