"""A damping that follows how well the quadratic model of the loss predicts its decrease."""

import jax.numpy as jnp
from chex import Numeric
from jax import Array

from fisher8_jax._internal.checks import check_number, check_positive
from fisher8_jax.curvature._gradient import NetworkGradient


def reduction_ratio(step: NetworkGradient, scale: Numeric, new_value: Array) -> Array:
    """The decrease of the loss over the one that the quadratic model predicts.

        (step.value - new_value) / (scale * step.slope - scale^2 * step.step_kl)

    1 for a loss that is quadratic, with the Fisher information for its Hessian.

    Args:
        step: what `network_gradient` returned; it must know the movement (no weights).
        scale: the factor on the gradient in the step that was made, positive for a descent: the
            value `scale` in the state of the KL radius.
        new_value: the loss of the same batch after the step.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from fisher8_jax import Gaussian, network_gradient
        >>> from fisher8_jax.curvature import reduction_ratio
        >>> predict_one = lambda params, x: Gaussian(params * x, jnp.zeros(()))
        >>> x, y, params = jnp.arange(3.0), jnp.ones(3), jnp.zeros(())
        >>> step = network_gradient(predict_one, params, x, y, damping=1.0)
        >>> moved = jax.vmap(predict_one, (None, 0))(params - 0.5 * step.gradient, x)
        >>> print(f"{reduction_ratio(step, 0.5, moved.nll(y).mean()):.3f}")  # linear: a parabola
        1.000
    """
    if step.slope is None or step.step_kl is None:
        raise ValueError(
            "`step` must know how far it moves the predictions, which is not so with `weights`. "
            "Leave them out, or use a fixed damping."
        )
    expected = scale * step.slope - jnp.square(scale) * step.step_kl
    return (step.value - new_value) / jnp.where(expected == 0, 1, expected)


def adjust_damping(
    damping: Numeric,
    ratio: Array,
    *,
    factor: float = 1.1,
    smallest: float = 1e-3,
    largest: float = 10.0,
) -> Array:
    """The Levenberg-Marquardt rule: less damping where the model was right, more where it was not.

    Divided by `factor` for a ratio above 3/4, multiplied by it for one below 1/4 or not finite.

    Args:
        damping: the damping of the step.
        ratio: from `reduction_ratio`.
        factor: by how much the damping changes.
        smallest: its lower bound.
        largest: its upper bound.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.curvature import adjust_damping
        >>> [f"{adjust_damping(0.1, jnp.asarray(r)):.3f}" for r in (0.9, 0.5, -0.2)]
        ['0.091', '0.100', '0.110']

    Reference:
        Martens and Grosse, Optimizing neural networks with Kronecker-factored approximate
        curvature, ICML 2015, section 6.5.
    """
    check_positive("damping", damping)
    check_number("factor", factor, above=1)
    is_good = ratio > 0.75
    is_fair = is_good | (ratio >= 0.25)
    change = jnp.where(is_good, 1 / factor, jnp.where(is_fair, 1, factor))
    return jnp.clip(damping * change, smallest, largest)
