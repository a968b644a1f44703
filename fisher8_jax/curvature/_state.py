"""What one step of the natural gradient hands to the next: momentum and second moments.

Second moments give the damping a size of its own for every parameter.

Damping by the identity treats all parameters alike. A scale `D` gives each its own: the system is
`(J' F J / n + damping D) d = gradient`. For a kernel, `D` must be a product of one factor for its
last axis and one for all others; then activations and deltas are divided by their factors before
their products are taken, and everything stays exact.
"""

import math
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from chex import ArrayTree, Numeric
from jax import Array

from fisher8_jax._internal.checks import check_number
from fisher8_jax._internal.numerics import all_finite, at_least_float32


class FactoredScale(NamedTuple):
    """The positive numbers `row[..., None] * column`, in the shape of a kernel.

    Attributes:
        row: one factor for each entry of all axes but the last.
        column: one factor for each entry of the last axis.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.curvature import FactoredScale
        >>> FactoredScale(jnp.array([1.0, 2.0]), jnp.array([1.0, 10.0])).full()
        Array([[ 1., 10.],
               [ 2., 20.]], dtype=float32)
    """

    row: Array
    column: Array

    def full(self) -> Array:
        """All entries."""
        return self.row[..., None] * self.column.reshape((1,) * self.row.ndim + (-1,))


Scale = Array | FactoredScale


def is_scale(node: object) -> bool:
    return isinstance(node, FactoredScale)


def scale_leaves(scale: ArrayTree, params: ArrayTree, name: str = "damping_scale") -> list[Scale]:
    """The scales of all leaves in order, checked against the parameters."""
    structures = [jax.tree.structure(tree, is_leaf=is_scale) for tree in (params, scale)]
    if len(set(structures)) > 1:
        raise ValueError(
            f"`{name}` must be a tree like `params` with an array or a `FactoredScale` for "
            f"every leaf, got {structures[1]} for {structures[0]}."
        )
    leaves = jax.tree.leaves(scale, is_leaf=is_scale)
    for leaf, param in zip(leaves, jax.tree.leaves(params), strict=True):
        shape = (*leaf.row.shape, *leaf.column.shape) if is_scale(leaf) else jnp.shape(leaf)
        if shape != jnp.shape(param):
            raise ValueError(
                f"Every leaf of `{name}` must have the shape of its parameter, "
                f"{jnp.shape(param)}, got {shape}."
            )
    return leaves


def full_scale(scale: Scale) -> Array:
    """All entries of a scale."""
    return scale.full() if isinstance(scale, FactoredScale) else scale


class SecondMoments(NamedTuple):
    """Running means of squared gradients, for each row and column of every kernel.

    What Adafactor keeps. Its roots as `damping_scale` join two methods: with large damping the step
    is that of Adam, with small damping that of the natural gradient.

    Attributes:
        means: a tree like the parameters, of `FactoredScale` for leaves with two axes or more.
        weight: how much of the means is data, `1 - decay^steps`.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.curvature import SecondMoments
        >>> moments = SecondMoments.zeros({"bias": jnp.zeros(2)})
        >>> moments = moments.add({"bias": jnp.array([3.0, -4.0])}, decay=0.99)
        >>> [f"{size:.2f}" for size in moments.damping_scale()["bias"]]
        ['3.00', '4.00']

    Reference:
        Shazeer and Stern, Adafactor: adaptive learning rates with sublinear memory cost, ICML 2018,
        algorithm 1.
    """

    means: ArrayTree
    weight: Array

    @classmethod
    def zeros(cls, params: ArrayTree) -> Self:
        """Before the first gradient."""

        def zero(leaf: Array) -> Scale:
            leaf = at_least_float32(jnp.asarray(leaf))
            if leaf.ndim < 2:
                return jnp.zeros_like(leaf)
            rows = jnp.zeros(leaf.shape[:-1], leaf.dtype)
            return FactoredScale(rows, jnp.zeros(leaf.shape[-1], leaf.dtype))

        dtypes = [jnp.result_type(leaf) for leaf in jax.tree.leaves(params)]
        return cls(jax.tree.map(zero, params), jnp.zeros((), jnp.result_type(jnp.float32, *dtypes)))

    def add(self, gradients: ArrayTree, *, decay: float | Array = 0.99) -> Self:
        """With one more gradient; one that is not finite counts as none."""
        finite = all_finite(gradients)
        new = jnp.where(finite, 1 - decay, 0)

        def blend(mean: Array, value: Array) -> Array:
            return jnp.where(finite, mean + new * (value - mean), mean)

        def accumulate(mean: Scale, gradient: Array) -> Scale:
            square = jnp.square(at_least_float32(gradient))
            if not isinstance(mean, FactoredScale):
                return blend(mean, square)
            others = tuple(range(square.ndim - 1))
            return FactoredScale(
                blend(mean.row, square.mean(-1)), blend(mean.column, square.mean(others))
            )

        means = jax.tree.map(accumulate, self.means, gradients, is_leaf=is_scale)
        return type(self)(means, self.weight + new * (1 - self.weight))

    def damping_scale(self, *, smallest: float = 1e-6) -> ArrayTree:
        """`D`: the root of the second moment, at least `smallest` of the leaf's root mean square.

        Ones before the first gradient.
        """

        def root(mean: Scale) -> Scale:
            if not isinstance(mean, FactoredScale):
                return _root(mean, jnp.mean(mean), self.weight, smallest)
            average = jnp.mean(mean.row)
            row = _root(mean.row, average, self.weight, smallest)
            weight = _at_least(self.weight).astype(average.dtype)
            typical = jnp.where(average > 0, jnp.sqrt(average / weight), 1)
            column = _root(mean.column, average, self.weight, smallest)
            return FactoredScale(row / typical, column)

        return jax.tree.map(root, self.means, is_leaf=is_scale)


def _root(mean: Array, average: Array, weight: Array, smallest: float) -> Array:
    floor = math.pow(smallest, 2) * average
    root = jnp.sqrt(jnp.maximum(mean, floor) / _at_least(weight).astype(mean.dtype))
    return jnp.where(average > 0, root, 1)


def _at_least(weight: Array) -> Array:
    return jnp.where(weight > 0, weight, 1)


class GradientState(NamedTuple):
    """What `network_gradient` remembers from step to step; begin with `GradientState.zeros`.

    A running sum of natural gradients overshoots, since each of them goes the whole way. Here the
    solve knows the momentum and computes only what is missing to it. The sum is the exact solution
    of the damped problem whose damping pulls to the momentum instead of to zero.

    Attributes:
        momentum: the gradient of the last step, a tree like the parameters; None without momentum.
        decay: how much of it the next step begins with.
        second_moments: running means of squared Fisher8 gradients, whose roots scale the damping;
            None damps by the identity.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian, network_gradient
        >>> from fisher8_jax.curvature import GradientState
        >>> predict_one = lambda params, x: Gaussian(params * x, jnp.zeros(()))
        >>> params, x, y = jnp.ones(()), jnp.ones(3), jnp.zeros(3)
        >>> state = GradientState.zeros(params, momentum=0.9)
        >>> for _ in range(2):  # 1/2 at first: damping 1 stops half-way
        ...     step = network_gradient(predict_one, params, x, y, damping=1.0, state=state)
        ...     state = step.state
        >>> print(f"{step.gradient:.3f}")
        0.725

    Reference:
        Goldshlager, Abrahamsen and Lin, A Kaczmarz-inspired approach to accelerate the optimization
        of neural network wavefunctions (SPRING), 2024.
    """

    momentum: ArrayTree | None = None
    decay: Numeric = 0.0
    second_moments: SecondMoments | None = None

    @classmethod
    def zeros(
        cls, params: ArrayTree, *, momentum: Numeric | None = None, second_moments: bool = False
    ) -> Self:
        """Before the first step.

        Args:
            params: the parameters.
            momentum: how much of a step the next one begins with, below 1; None for no momentum.
            second_moments: True scales the damping by running second moments.
        """
        moments = SecondMoments.zeros(params) if second_moments else None
        if momentum is None:
            return cls(second_moments=moments)
        check_number("momentum", momentum, at_least=0, below=1)
        return cls(jax.tree.map(jnp.zeros_like, params), jnp.asarray(momentum), moments)

    def check(self, params: ArrayTree) -> Self:
        """Returns the state, or says why it does not belong to `params`."""
        if not isinstance(self, GradientState):
            raise TypeError(
                f"`state` must be a `GradientState`, got {type(self).__name__}. Begin with "
                "`GradientState.zeros(params, ...)` and hand on the `state` of every step."
            )
        if self.second_moments is not None:
            scale_leaves(self.second_moments.means, params, "state.second_moments")
        if self.momentum is not None:
            _check_like(self.momentum, params)
        return self

    def initial_step(self) -> ArrayTree | None:
        """The momentum that the next step begins with."""
        if self.momentum is None:
            return None
        return jax.tree.map(lambda leaf: (self.decay * leaf).astype(leaf.dtype), self.momentum)

    def remember(self, gradient: ArrayTree) -> Self:
        """With `gradient` as the momentum; one that is not finite is forgotten."""
        if self.momentum is None:
            return self
        finite = all_finite(gradient)
        kept = jax.tree.map(lambda new, old: jnp.where(finite, new, old), gradient, self.momentum)
        return self._replace(momentum=kept)


def _check_like(momentum: ArrayTree, params: ArrayTree) -> None:
    shapes = [jax.tree.map(jnp.shape, tree) for tree in (momentum, params)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            "`state.momentum` must be a tree like `params`, with the same shapes, got "
            f"{shapes[0]} for {shapes[1]}. Begin with `GradientState.zeros(params, momentum=...)`."
        )
