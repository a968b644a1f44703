"""How a network is trained: which gradient, and how long a step along it is.

    method = Method(NetworkNaturalGradient(damping=0.3), KLRadius(0.1))
    state = method.init(params, num_steps=1000)
    state, info = method.update(network, state, batch)

`Method.update` is the one training step of this package: `fit`, the estimator and loops of your own
call it. It is a pure function, to be compiled and mapped by the caller.
"""

import dataclasses
from typing import Any, Literal, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from fisher8_jax._internal.checks import check_number
from fisher8_jax.curvature import GradientState
from fisher8_jax.families import Family
from fisher8_jax.training._data import Data, Params, Variables
from fisher8_jax.training._description import Description, in_words, register_description
from fisher8_jax.training._gradients import (
    Gradient,
    NetworkNaturalGradient,
    OutputNaturalGradient,
    Point,
)
from fisher8_jax.training._lengths import KLRadius, LearningRate, Length
from fisher8_jax.training._networks import Network, apply_network

_FISHER8 = OutputNaturalGradient()

# Of the default for first-order gradients, see `fisher8_optimizer`.
_MAX_CHANGE = 0.3


class TrainingState(NamedTuple):
    """What a step changes; in a training of several runs every leaf has the runs as first axis.

    Attributes:
        params: the parameters.
        variables: the network's other variables; None if it has none.
        optimizer: the state of the Optax optimizer.
        gradient: what the gradient keeps from step to step; None for most.
        step: the number of steps made.
        num_steps: the number of steps over which the schedule runs.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.training import Method
        >>> state = Method().init(jnp.zeros(3), num_steps=100)
        >>> print(state.step, state.num_steps)
        0 100
    """

    params: Params
    variables: Variables
    optimizer: chex.ArrayTree
    gradient: GradientState | None
    step: Array
    num_steps: Array


class StepInfo(NamedTuple):
    """What is known of a step: its loss, the predictions before it, its KL divergence."""

    loss: Array
    dist: Family
    step_kl: Array
    """nan where the length is no KL radius."""


@register_description
@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Method(Description):
    """A gradient and a step length: everything that tells one way to train from another.

    Numbers are traced: methods of the same structure share compiled programs, and a method whose
    numbers are arrays of length `runs` gives every run of `fit(..., runs=...)` its own.

    Args:
        gradient: `LossGradient`, `OutputNaturalGradient` (Fisher8) or `NetworkNaturalGradient`.
        length: `LearningRate`, `KLRadius`, or any Optax transformation, which then sets direction
            and length alike; by default a KL radius. The defaults for an `OutputNaturalGradient`
            are those of `fisher8_optimizer`, for a `NetworkNaturalGradient` those of
            `network_optimizer`.
        momentum: the decay of the gradients' running mean (Nesterov's); None for none. By default
            0.9, and none for an Optax transformation or a `NetworkNaturalGradient`, which have
            their own.
        second_moment: the decay of the squared gradients' running mean, by whose root the step is
            divided as in Adam; None for none. By default 0.999 with a learning rate and 0.99 with
            a KL radius, and none as above.

    Example:
        >>> import jax.numpy as jnp, numpy as np
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.training import Data, KLRadius, LossGradient, LearningRate, Method
        >>> Method(LossGradient("nll"), LearningRate(0.003), momentum=None)
        Method(gradient=LossGradient(), length=LearningRate(rate=0.003), second_moment=0.999)
        >>> method = Method(length=KLRadius(0.1))
        >>> state = method.init(jnp.zeros(()), num_steps=10)
        >>> batch = Data(jnp.ones(4), jnp.full(4, 3.0))
        >>> network = lambda slope, x: Gaussian(slope * x, jnp.zeros_like(x))
        >>> state, info = method.update(network, state, batch)
        >>> print(f"{state.params:.3f}, moved {info.step_kl:.2f} nats")
        0.447, moved 0.10 nats
    """

    gradient: Gradient = _FISHER8
    length: Length | None = None
    momentum: chex.Numeric | Literal["auto"] | None = "auto"
    second_moment: chex.Numeric | Literal["auto"] | None = "auto"

    def __post_init__(self) -> None:
        if not isinstance(self.gradient, Gradient):
            raise TypeError(
                "`gradient` must be `LossGradient`, `OutputNaturalGradient` or "
                f"`NetworkNaturalGradient`, got {self.gradient!r}."
            )
        if self.length is None:
            length = KLRadius(max_change=None if self._is_network else _MAX_CHANGE)
            object.__setattr__(self, "length", length)
        if not isinstance(self.length, Length):
            raise TypeError(
                "`length` must be `LearningRate`, `KLRadius` or an Optax transformation, got "
                f"{self.length!r}."
            )
        for name, default in self._defaults().items():
            if isinstance(getattr(self, name), str) and getattr(self, name) == "auto":
                object.__setattr__(self, name, default)
            elif getattr(self, name) is not None:
                check_number(name, getattr(self, name), at_least=0, below=1)
        self._check_parts()

    def __str__(self) -> str:
        parts = [str(self.gradient), "Optax" if self._is_optax else str(self.length)]
        for name, default in self._defaults().items():
            value = getattr(self, name)
            if value is None and default is not None:
                parts.append(f"no {name.replace('_', ' ')}")
            elif value is not None and (default is None or not np.array_equal(value, default)):
                parts.append(f"{name.replace('_', ' ')} {in_words(value)}")
        return ", ".join(parts)

    def init(
        self, params: Params, num_steps: int | Array, variables: Variables = None
    ) -> TrainingState:
        """The state before the first step.

        Args:
            params: the first parameters.
            num_steps: the number of steps over which the schedule runs.
            variables: the network's other variables, see `nnx_network`; None if it has none.
        """
        params = jax.tree.map(jnp.asarray, params)
        num_steps = jnp.asarray(num_steps, jnp.int32)
        optimizer = self.optimizer(num_steps).init(params)
        gradient, step = self.gradient.init(params), jnp.zeros((), jnp.int32)
        return TrainingState(params, variables, optimizer, gradient, step, num_steps)

    def update(
        self, network: Network, state: TrainingState, batch: Data, *, key: Array | None = None
    ) -> tuple[TrainingState, StepInfo]:
        """One training step.

        Args:
            network: `(params, inputs) -> distribution`, or with variables `(params, variables,
                inputs, *, key, train) -> (distribution, variables)`.
            state: from `init` or the step before.
            batch: the examples.
            key: for this step alone, for networks and losses that draw random numbers.

        Returns:
            The new state, and what is known of the step.
        """
        at = Point(state.params, state.variables, state.gradient)
        found = self.gradient.compute(network, at, batch, key)

        def predict(params: Params) -> Family:
            variables, inputs = state.variables, batch.inputs
            return apply_network(network, params, variables, inputs, key=key, train=True)[0]

        # Any link of a user's own may change the direction, so its divergence is measured anew.
        step_kl = None if self._is_optax else found.step_kl
        updates, optimizer = self.optimizer(state.num_steps).update(
            found.gradient,
            state.optimizer,
            state.params,
            predict=predict,
            where=batch.where,
            step_kl=step_kl,
        )
        new = state._replace(
            params=optax.apply_updates(state.params, updates),
            variables=found.variables,
            # Numbers that are traced arrays would widen the state of narrow parameters.
            optimizer=jax.tree.map(cast_like, optimizer, state.optimizer),
            gradient=found.state,
            step=state.step + 1,
        )
        measured = optax.tree_utils.tree_get(optimizer, "quadratic_kl", jnp.nan)
        return new, StepInfo(found.loss, found.dist, jnp.asarray(measured, jnp.float32))

    def optimizer(self, num_steps: int | Array) -> optax.GradientTransformationExtraArgs:
        """The Optax optimizer behind the gradient, for a training of `num_steps` steps."""
        if self._is_optax:
            return optax.with_extra_args_support(self.length)
        if isinstance(self.gradient, NetworkNaturalGradient) and isinstance(self.length, KLRadius):
            has_momentum = self.gradient.momentum is not None
            return self.length.network_optimizer(num_steps, has_momentum=has_momentum)
        assert isinstance(self.length, LearningRate | KLRadius)
        return self.length.optimizer(num_steps, self.momentum, self.second_moment)

    @property
    def _is_network(self) -> bool:
        return isinstance(self.gradient, NetworkNaturalGradient)

    @property
    def _is_optax(self) -> bool:
        return isinstance(self.length, optax.GradientTransformation)

    def _defaults(self) -> dict[str, float | None]:
        if self._is_optax or self._is_network:
            return {"momentum": None, "second_moment": None}
        second = 0.999 if isinstance(self.length, LearningRate) else 0.99
        return {"momentum": 0.9, "second_moment": second}

    def _check_parts(self) -> None:
        has_own = self.momentum is not None or self.second_moment is not None
        if has_own and (self._is_optax or self._is_network):
            raise ValueError(
                "`momentum` and `second_moment` must be left out with an Optax transformation or a "
                "`NetworkNaturalGradient`, which have their own."
            )
        if self._is_network and getattr(self.length, "max_change", None) is not None:
            raise ValueError(
                "`max_change` of the `KLRadius` must be None with a `NetworkNaturalGradient`."
            )


def cast_like(new: Array, old: Array) -> Array:
    """`new` in the dtype of `old`; nothing to compile where nothing is to be cast."""
    return new if new.dtype == old.dtype else new.astype(old.dtype)


def with_runs(method: Method, runs: int) -> Method:
    """The method with an axis of `runs` in front of every number."""

    def spread(path: Any, leaf: Any) -> Array:
        if np.shape(leaf) not in ((), (runs,)):
            raise ValueError(
                f"`method` must have one number or one for each of {runs} runs, got shape "
                f"{np.shape(leaf)} at {jax.tree_util.keystr(path)}."
            )
        # With NumPy, so that nothing is compiled.
        return jnp.asarray(np.full(runs, np.asarray(leaf), jnp.result_type(float)))

    return jax.tree_util.tree_map_with_path(spread, method)
