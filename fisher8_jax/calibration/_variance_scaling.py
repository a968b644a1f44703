"""One factor on every predicted variance of a target."""

import dataclasses
from typing import Self, TypeVar

import jax.numpy as jnp
from jax import Array

from fisher8_jax._internal.trees import register_tree
from fisher8_jax._points import Axis, check_calibrated_shape, plain_mean, prepare, reduce
from fisher8_jax.families import Predictive

SomePredictive = TypeVar("SomePredictive", bound=Predictive)


@register_tree
@dataclasses.dataclass(frozen=True)
class VarianceScaling:
    """Multiplies every predicted variance by `factor`, one number per target; means stay.

    Args:
        factor: the shape of the predictions, with length 1 on the axes of the examples.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> held_out = Gaussian(jnp.zeros(2), jnp.zeros(2))
        >>> calibrator = VarianceScaling.fit(held_out, jnp.array([-2.0, 2.0]))
        >>> calibrator.factor
        Array([4.], dtype=float32)
        >>> round(float(calibrator.apply(Gaussian(jnp.zeros(5), jnp.zeros(5))).variance[0]), 4)
        4.0

    Reference:
        Laves, Ihler, Fast, Kahrs and Ortmaier, Well-calibrated regression uncertainty in medical
        imaging with deep learning, MIDL 2020 (sigma scaling).
    """

    factor: Array

    @classmethod
    def fit(
        cls,
        dist: Predictive,
        targets: Array,
        *,
        axis: Axis = 0,
        where: Array | None = None,
    ) -> Self:
        """The factor `mean(z^2)` of held-out predictions, which minimises the Gaussian NLL.

        For other families it is the factor that makes the variance right on average.

        Args:
            dist: predictions on data that the network was not trained on.
            targets: the observed values.
            axis: the axis or axes of the examples; every other coordinate gets its own factor.
            where: boolean, False for padding and missing targets.

        Returns:
            The calibrator; its factor is nan without any point or with a non-finite prediction.
        """
        points = prepare(dist, targets, where, axis)
        factor = reduce(points, plain_mean(jnp.square(points.z)))
        return cls(jnp.expand_dims(factor, points.axes))

    def apply(self, dist: SomePredictive) -> SomePredictive:
        """`dist` with the scaled variance, of the same class.

        Args:
            dist: new predictions of the same model, with any number of examples.

        Returns:
            `dist.scale_variance(factor)`: a Gaussian with a shifted log-variance, a Gamma with
            another concentration. Where a family has no such member (a Poisson's variance is its
            mean), an error says what to use instead.
        """
        factor = check_calibrated_shape("factor", self.factor, dist.batch_shape)
        return dist.scale_variance(factor)
