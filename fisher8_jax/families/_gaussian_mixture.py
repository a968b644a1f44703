"""A mixture of Gaussians with the natural gradient of expectation-maximisation."""

import math
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import logsumexp, ndtr
from jax.typing import ArrayLike

from fisher8_jax._internal.bisection import smallest_float, tail_reaches
from fisher8_jax._internal.deviance import exp_excess
from fisher8_jax._internal.numerics import HALF_LOG_2PI, Scaled, multiply_by_exp
from fisher8_jax.families._categorical import fisher_logits, logits_norm_sq, natural_logits
from fisher8_jax.families._contract import Family, family
from fisher8_jax.families._fisher_factor import block_diagonal, diagonal_factor, multinomial_factor
from fisher8_jax.families._quadrature import gauss_legendre
from fisher8_jax.families._targets import expand_units

# A divergence integrates each component up to here, cut at these places of every component.
_REACH, _CUTS, _NODES_PER_CUT = 9.0, (-6.0, -3.0, -1.0, 1.0, 3.0, 6.0), 10


@family
class GaussianMixture(Family):
    """`sum_k w_k N(mean_k, exp(log_variance_k))` with weights `w = softmax(logits)`.

    The Fisher information of a mixture has no closed form. This family uses that of the *complete*
    data, target and component together, as natural-gradient EM does. It is block diagonal, at least
    as large as the mixture's own, and its inverse is in closed form:

        F    = diag(w) - w w',              w_k / variance_k,   w_k / 2
        F^-1 = C diag(1/w) C (C centres),   variance_k / w_k,   2 / w_k

    With the responsibilities `r_k` the natural gradient of the NLL is, up to a shift of the logits,

        logits:                   -r_k / w_k
        component_means:          r_k / w_k * (mean_k - targets)
        component_log_variances:  r_k / w_k * (1 - z_k^2)

    A unit step of it, averaged over data, is the EM update to first order. `fisher_norm_sq` is the
    complete-data form as well: an upper bound of twice the local divergence of the mixtures, so a
    KL radius measured by it is kept by the mixtures too. `kl` is that of the mixtures.

    Args:
        logits: predicted logits of the weights, shape `batch_shape + (components,)`.
        component_means: predicted means, the same shape. Start them apart from each other.
        component_log_variances: predicted logarithms of the variances, the same shape.

    Example:
        >>> import jax.numpy as jnp
        >>> dist = GaussianMixture(jnp.zeros(2), jnp.array([-1.0, 1.0]), jnp.zeros(2))
        >>> dist.mean, dist.variance
        (Array(0., dtype=float32), Array(2., dtype=float32))

    Reference:
        Chen, Bayrooti and Morad (2026), Learning Mixture Density via Natural Gradient Expectation
        Maximization, arXiv 2602.10602.
    """

    logits: Array
    component_means: Array
    component_log_variances: Array

    units = "shift and scale"
    shared_norms = ("logits", "component_means", "component_log_variances")

    @property
    def batch_shape(self) -> tuple[int, ...]:
        shapes = {name: x.shape for name, x in self.parameters().items()}
        if len(set(shapes.values())) > 1 or not shapes["logits"]:
            listing = ", ".join(f"`{name}` {shape}" for name, shape in shapes.items())
            raise ValueError(
                f"All fields must have the same shape, batch + (components,), got {listing}."
            )
        return shapes["logits"][:-1]

    @property
    def log_weights(self) -> Array:
        """`log_softmax(logits)`."""
        return jax.nn.log_softmax(self.logits, axis=-1)

    @property
    def weights(self) -> Array:
        """`softmax(logits)`."""
        return jax.nn.softmax(self.logits, axis=-1)

    @property
    def mean(self) -> Array:
        """`sum_k w_k mean_k`."""
        return jnp.sum(self.weights * self.component_means, axis=-1)

    @property
    def variance(self) -> Array:
        """The variance within components plus that between them."""
        between = jnp.square(self.component_means - self.mean[..., None])
        within = jnp.exp(self.component_log_variances)
        return jnp.sum(self.weights * (within + between), axis=-1)

    def _log_joint(self, targets: Array) -> Array:
        """`ln(w_k N(targets; k))`; targets have a last axis of length 1."""
        z = multiply_by_exp(targets - self.component_means, -0.5 * self.component_log_variances)
        nll = 0.5 * (self.component_log_variances + jnp.square(z)) + HALF_LOG_2PI
        return self.log_weights - nll

    def nll(self, targets: Array, *, constant: bool = True) -> Array:
        """`-ln sum_k w_k N(targets; k)`; `constant=False` leaves out `ln(2 pi)/2`."""
        values = -logsumexp(self._log_joint(targets[..., None]), axis=-1)
        return values if constant else values - HALF_LOG_2PI

    def natural(self, cotangent: Self) -> Self:
        """The inverse of the complete-data Fisher information times `cotangent`."""
        log_w = self.log_weights
        return type(self)(
            natural_logits(log_w, cotangent.logits),
            multiply_by_exp(cotangent.component_means, self.component_log_variances - log_w),
            multiply_by_exp(2 * cotangent.component_log_variances, -log_w),
        )

    def natural_score(self, targets: Array) -> dict[str, Scaled]:
        """`r_k / w_k` times the natural gradient of each component, in logarithms."""
        targets = targets[..., None]
        log_w = self.log_weights
        log_joint = self._log_joint(targets)
        log_ratio = log_joint - logsumexp(log_joint, axis=-1, keepdims=True) - log_w
        residual = self.component_means - targets
        z = multiply_by_exp(residual, -0.5 * self.component_log_variances)
        # One scale for all components, because the logits are centred across them.
        top = jnp.max(log_ratio, axis=-1, keepdims=True)
        ratio = jnp.exp(log_ratio - top)
        centred = jnp.mean(ratio, axis=-1, keepdims=True) - ratio
        # z^2 may overflow where the responsibility is 0: its product with it is 0.
        spread = jnp.where(ratio == 0, 0, ratio * (1 - jnp.square(jnp.where(ratio == 0, 0, z))))
        return {
            "logits": Scaled(centred, jnp.broadcast_to(top, centred.shape)),
            "component_means": Scaled(residual, log_ratio),
            "component_log_variances": Scaled(spread, jnp.broadcast_to(top, spread.shape)),
        }

    def fisher(self, tangent: Self) -> Self:
        """The complete-data information times `tangent`."""
        log_w = self.log_weights
        return type(self)(
            fisher_logits(self.weights, tangent.logits),
            multiply_by_exp(tangent.component_means, log_w - self.component_log_variances),
            0.5 * multiply_by_exp(tangent.component_log_variances, log_w),
        )

    def fisher_norm_sq(self, tangent: Self) -> Array:
        """The quadratic form of the complete-data information, an upper bound of the mixture's."""
        means = multiply_by_exp(tangent.component_means, -0.5 * self.component_log_variances)
        parts = jnp.square(means) + 0.5 * jnp.square(tangent.component_log_variances)
        weights = self.weights
        return logits_norm_sq(weights, tangent.logits) + jnp.sum(weights * parts, axis=-1)

    def fisher_factor(self) -> Array:
        """Of the complete-data information: one block per field, two of them diagonal."""
        log_w = self.log_weights
        diagonal = jnp.concatenate(
            [0.5 * (log_w - self.component_log_variances), 0.5 * (log_w - math.log(2))], axis=-1
        )
        entries = diagonal_factor(*jnp.moveaxis(jnp.exp(diagonal), -1, 0))
        return block_diagonal(multinomial_factor(log_w), entries)

    def kl(self, other: Self) -> Array:
        """`KL(self || other)` by quadrature, component by component in its own units.

        The integral over a component is cut where any component of either mixture bends, so that
        narrow ones within wide ones are resolved; its relative error is about 1e-5.
        """
        p, q = self, other
        cuts = lax.stop_gradient(_cuts(p, q))
        nodes, weights = gauss_legendre(_NODES_PER_CUT)
        length = cuts[..., 1:] - cuts[..., :-1]
        z = cuts[..., :-1, None] + _outer(length, nodes)
        weight = _outer(length, weights).reshape(*z.shape[:-2], -1)
        z = z.reshape(weight.shape)  # batch, components, nodes
        std = jnp.exp(0.5 * p.component_log_variances)[..., None]
        targets = (p.component_means[..., None] + std * z)[..., None]

        def log_density(dist: Self) -> Array:
            lead = jax.tree.map(lambda x: x[..., None, None, :], dist)
            return logsumexp(lead._log_joint(targets), axis=-1)

        ratio = log_density(p) - log_density(q)
        # E[q/p - 1] is 0. Added where both have the same shape, it leaves a sum of positive terms.
        is_close = _are_close(p, q)[..., None, None]
        excess = exp_excess(-jnp.where(is_close, ratio, 0))
        mass = weight * jnp.exp(-0.5 * jnp.square(z) - HALF_LOG_2PI)
        inner = jnp.sum(jnp.where(mass > 0, mass * jnp.where(is_close, excess, ratio), 0), axis=-1)
        return jnp.maximum(jnp.sum(p.weights * inner, axis=-1), 0)

    def cdf(self, targets: Array) -> Array:
        """`sum_k w_k Phi(z_k)`."""
        return jnp.minimum(self._tails(targets)[0], 1)  # a sum of roundings may exceed 1

    def _tails(self, targets: Array) -> tuple[Array, Array]:
        scale = -0.5 * self.component_log_variances
        z = multiply_by_exp(targets[..., None] - self.component_means, scale)
        weights = self.weights
        return jnp.sum(weights * ndtr(z), axis=-1), jnp.sum(weights * ndtr(-z), axis=-1)

    def quantile(self, probability: Array) -> Array:
        """By bisection of the cdf; `probability` broadcasts against the batch."""
        end = jnp.full_like(probability, jnp.finfo(probability.dtype).max)
        values = smallest_float(lambda x: tail_reaches(self._tails(x), probability), -end, end)
        values = jnp.where(probability <= 0, -jnp.inf, values)
        values = jnp.where(probability >= 1, jnp.inf, values)
        return jnp.where((probability >= 0) & (probability <= 1), values, jnp.nan)

    def draw(self, key: Array) -> Array:
        """A component, then a draw from it."""
        component_key, noise_key = jax.random.split(key)
        component = jax.random.categorical(component_key, self.logits)[..., None]

        def pick(x: Array) -> Array:
            return jnp.take_along_axis(x, component, axis=-1)[..., 0]

        std = jnp.exp(0.5 * pick(self.component_log_variances))
        noise = jax.random.normal(noise_key, std.shape, std.dtype)
        return pick(self.component_means) + std * noise

    def unscale(self, shift: ArrayLike | None, scale: ArrayLike | None) -> Self:
        """Every component in the other units."""
        shift, scale = (x[..., None] for x in expand_units(shift, scale, self.mean))
        log_scale = jnp.log(jnp.abs(scale)).astype(self.component_log_variances.dtype)
        means = self.component_means * scale + shift
        return type(self)(self.logits, means, self.component_log_variances + 2 * log_scale)

    def scale_variance(self, factor: Array) -> Self:
        """All components stretched around the mean of the mixture."""
        root = jnp.sqrt(factor).astype(self.component_means.dtype)
        return self.unscale((1 - root) * self.mean, root)

    def crps(self, targets: Array) -> Array:
        """The closed form of Grimit et al. (2006) over components and pairs of them."""
        variances = jnp.exp(self.component_log_variances)
        means, weights = self.component_means, self.weights
        to_target = jnp.sum(weights * _absolute_mean(targets[..., None] - means, variances), -1)
        pairs = _absolute_mean(
            means[..., :, None] - means[..., None, :],
            variances[..., :, None] + variances[..., None, :],
        )
        products = weights[..., :, None] * weights[..., None, :]
        return to_target - 0.5 * jnp.sum(products * pairs, (-2, -1))


def _cuts(p: GaussianMixture, q: GaussianMixture) -> Array:
    """Where to cut the line, in the units of each component of p: `batch + (components, cuts)`."""
    means = jnp.concatenate([p.component_means, q.component_means], axis=-1)
    logs = jnp.concatenate([p.component_log_variances, q.component_log_variances], axis=-1)
    half = -0.5 * p.component_log_variances[..., None]
    centres = multiply_by_exp(means[..., None, :] - p.component_means[..., None], half)
    widths = jnp.exp(jnp.minimum(0.5 * logs[..., None, :] + half, 80.0))
    points = (centres[..., None] + _outer(widths, np.array(_CUTS))).reshape(*centres.shape[:-1], -1)
    ends = jnp.broadcast_to(jnp.asarray([-_REACH, _REACH], means.dtype), (*points.shape[:-1], 2))
    return jnp.sort(jnp.clip(jnp.concatenate([points, ends], axis=-1), -_REACH, _REACH), axis=-1)


def _outer(x: Array, row: ArrayLike) -> Array:
    """Products with every entry of `row`, along a new last axis."""
    return x[..., None] * jnp.asarray(row, x.dtype).reshape((1,) * x.ndim + (-1,))


def _are_close(p: GaussianMixture, q: GaussianMixture) -> Array:
    """Whether no component moves by more than half of its size."""
    moved = multiply_by_exp(q.component_means - p.component_means, -0.5 * p.component_log_variances)
    changes = moved, q.logits - p.logits, q.component_log_variances - p.component_log_variances
    return jnp.all(jnp.stack([jnp.max(jnp.abs(x), axis=-1) for x in changes]) < 0.5, axis=0)


def _absolute_mean(mean: Array, variance: Array) -> Array:
    """`E|N(mean, variance)|`."""
    std = jnp.sqrt(variance)
    z = mean / std
    density = jnp.exp(-0.5 * jnp.square(z) - HALF_LOG_2PI)
    return 2 * std * density + mean * (2 * ndtr(z) - 1)
