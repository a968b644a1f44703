"""What the network would have predicted for each training row if it had not seen it.

With `B` the block of a row in `A^-1`, the covariance of its whitened outputs given all rows is
`I - B`. Taking the row away again leaves, for the linearised network,

    C' = L^-T (B^-1 - I) L^-1,    outputs' = outputs + C' gradient,

where `F = L L'` is the row's Fisher information and `gradient` that of its NLL. That holds at an
optimum. Damped steps of training end before it, and follow a row less: the shift of the outputs is
then that under a stronger prior, their covariance is not. Directions of the outputs that change
nothing (a constant added to all logits) are left out.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from chex import ArrayTree
from jax import Array

from fisher8_jax._internal.batching import one_matrix_at_a_time
from fisher8_jax._internal.checks import check_level, check_number
from fisher8_jax._internal.sharding import check_outside_shard_map
from fisher8_jax._internal.trees import register_tree
from fisher8_jax.ensembles import Mixture
from fisher8_jax.families import Family
from fisher8_jax.posterior._arithmetic import arithmetic, cast, in_chunks, to_host
from fisher8_jax.posterior._dual import Dual
from fisher8_jax.posterior._network import Network
from fisher8_jax.posterior._outputs import from_vectors, outputs_of, vectors_of
from fisher8_jax.posterior._posterior import Posterior
from fisher8_jax.posterior._predictive import PosteriorPredictive
from fisher8_jax.posterior._primal import Primal

# Below this part of the largest, a singular value of the Fisher root counts as 0.
_SINGULAR = 1e-9


@register_tree
@dataclasses.dataclass(frozen=True, repr=False)
class LeaveOneOut:
    """Predictions of every training row without that row; made by `leave_one_out`.

    Attributes:
        outputs: the network's outputs without the row, as a distribution of its family.
        covariance: of these outputs, `(rows, p, p)`.
        predictive: both as one distribution of the target.
        targets: of the rows.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.posterior import fit_posterior, leave_one_out
        >>> predict_one = lambda params, x: Gaussian(params * x, jnp.zeros(()))
        >>> x, y = jnp.ones(3), jnp.array([1.0, 2.0, 3.0])
        >>> found = leave_one_out(fit_posterior(predict_one, jnp.array(1.5), x, y, tune=False))
        >>> print(3 * found.outputs.mean)  # the sum of the others over 1 + 2, times 3
        [5. 4. 3.]
    """

    outputs: Family
    covariance: Array
    predictive: PosteriorPredictive | Mixture
    targets: Array

    @property
    def nll(self) -> Array:
        """Of every row, one value per element: an estimate of the NLL on new rows."""
        return self.predictive.nll(self.targets)

    @property
    def pit(self) -> Array:
        """The predictive cdf at the target: uniform if intervals are honest."""
        return self.predictive.cdf(self.targets)


def leave_one_out(
    posterior: Posterior,
    *,
    damping: float = 0.0,
    samples: int | None = None,
    key: Array | None = None,
) -> LeaveOneOut:
    """Leave-one-out of all rows of a posterior in closed form, without any refit.

    Exact for a network that is linear in its uncertain parameters, a Gaussian family of known
    noise and parameters at the maximum of the posterior; for others the first-order answer. The
    prior's precisions stay as they are.

    Args:
        posterior: of `fit_posterior`.
        damping: for parameters that damped steps have not brought to an optimum; 0.01 after
            `train_by_evidence`. For the shift of the outputs the number of rows times as much is
            added to all precisions.
        samples: see `Posterior.predict`.
        key: see `Posterior.predict`.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.posterior import fit_posterior, leave_one_out
        >>> predict_one = lambda params, x: Gaussian(params * x, jnp.zeros(()))
        >>> x, y = jnp.ones(3), jnp.array([1.0, 2.0, 3.0])
        >>> found = leave_one_out(fit_posterior(predict_one, jnp.array(1.5), x, y, tune=False))
        >>> print(found.nll.round(2))
        [1.23 1.23 2.56]
    """
    check_number("damping", damping, at_least=0)
    return _without_each(posterior, damping, samples, key)[0]


def jackknife_intervals(
    posterior: Posterior, inputs: ArrayTree, coverage: float = 0.9
) -> tuple[np.ndarray, np.ndarray]:
    """Intervals from the leave-one-out residuals of all rows, in the manner of the jackknife+.

    With `mean_i(x)` the prediction at `x` without row `i`, and the residual of row `i` in units of
    its own predicted standard deviation, the ends are quantiles over the rows of
    `mean_i(x) -+ residual_i std(x)`. No distribution of the noise is assumed.

    Args:
        posterior: of `fit_posterior`; the family must have scalar targets.
        inputs: like those of training.
        coverage: strictly between 0 and 1.

    Returns:
        The lower and the upper ends, of the shape of the predictions.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.posterior import fit_posterior, jackknife_intervals
        >>> predict_one = lambda params, x: Gaussian(params * x, jnp.zeros(()))
        >>> x = jnp.linspace(-1, 1, 50)
        >>> posterior = fit_posterior(predict_one, jnp.array(0.0), x, jnp.sin(99 * x), tune=False)
        >>> lower, upper = jackknife_intervals(posterior, jnp.zeros(1), 0.8)
        >>> print(lower.round(1), upper.round(1))
        [-0.9] [0.9]

    Reference:
        Barber et al., Predictive inference with the jackknife+, Annals of Statistics 2021.
    """
    check_level("coverage", coverage)
    found, influence = _without_each(posterior)
    rank = math.ceil(round(coverage * (len(influence) + 1), 9))  # 0.9 of 10 is 9
    if rank > len(influence):
        fewest = math.ceil(round(coverage / (1 - coverage), 9))
        raise ValueError(
            f"`coverage` {coverage} needs at least {fewest} rows, the posterior has "
            f"{len(influence)}."
        )
    if found.outputs.event_shape:
        raise TypeError("`jackknife_intervals` needs a family of scalar targets.")
    residual = np.abs(np.asarray(found.predictive.z_score(found.targets)))
    std = np.asarray(posterior.predict(inputs).std)
    dtype = posterior.report.dtype
    with arithmetic(dtype):
        given = cast((inputs, std, residual), dtype)
        state = posterior.system, posterior.state, posterior.inputs, influence
        ends = in_chunks(
            lambda part: _ends(*state, given[2], part, rank), given[:2], posterior.report.chunk
        )
    return ends


def _without_each(
    posterior: Posterior,
    damping: float = 0.0,
    samples: int | None = None,
    key: Array | None = None,
) -> tuple[LeaveOneOut, np.ndarray]:
    """Leave-one-out, and what a row's absence does elsewhere: `C(x, x_i)` times the influence."""
    check_outside_shard_map("leave_one_out")
    dtype = posterior.report.dtype
    with arithmetic(dtype, posterior):
        network, data = posterior.network, (posterior.inputs, posterior.targets)
        whitened = _covered(posterior)
        damped = _covered(_damped(posterior, damping)) if damping else whitened
        rows = (*data, whitened, damped)
        found = in_chunks(lambda part: _remove(network, *part), rows, posterior.report.chunk)
    dist, covariance, influence = found
    predictive = posterior.predictive(dist, covariance, samples=samples, key=key)
    narrow = jnp.zeros(()).dtype.name
    outputs, targets = jax.tree.map(jnp.asarray, cast((dist, posterior.targets), narrow))
    return LeaveOneOut(outputs, covariance, predictive, targets), influence


def _damped(posterior: Posterior, damping: float) -> Posterior:
    """With the number of rows times `damping` added to all precisions."""
    added = np.log(damping * posterior.report.rows)
    log_precision = np.logaddexp(posterior.log_precision, added).astype(posterior.report.dtype)
    factor = to_host(_factorize(posterior.system, log_precision))
    return dataclasses.replace(posterior, log_precision=log_precision, factor=factor)


def _covered(posterior: Posterior) -> np.ndarray:
    """The covariance of every row's whitened outputs given all rows, `(rows, p, p)`."""
    system = posterior.system
    if isinstance(system, Dual):
        return to_host(_whitened(system, posterior.factor))
    function = functools.partial(_whitened_primal, system, posterior.state)
    data = posterior.inputs, posterior.targets
    return to_host(in_chunks(lambda part: function(*part), data, posterior.report.chunk))


@jax.jit
def _factorize(system: Dual | Primal, log_precision: Array) -> Array:
    return system.factorize(log_precision)


@jax.jit
def _whitened(system: Dual, factor: Array) -> Array:
    return system.whitened_covariance(factor)


@jax.jit
def _whitened_primal(system: Primal, state: Any, inputs: ArrayTree, targets: Array) -> Array:
    network, factor, log_precision = state
    dist, features = system.features(network, inputs)
    covariance = system.covariance(factor, log_precision, features)
    root = outputs_of(dist, targets).root
    return jnp.einsum("iab,iac,icd->ibd", root, covariance, root)


_inverse = one_matrix_at_a_time(jnp.linalg.inv)
_pseudo_inverse = one_matrix_at_a_time(lambda root: jnp.linalg.pinv(root, rtol=_SINGULAR), cost=32)


@jax.jit
def _remove(
    network: Network, inputs: ArrayTree, targets: Array, whitened: Array, damped: Array
) -> tuple[Family, Array, Array]:
    """Outputs, their covariance and the influence, from whitened covariances of all rows."""
    dist = network.predict(inputs)
    seen = outputs_of(dist, targets)
    inverse_root = jax.vmap(_pseudo_inverse)(seen.root)
    eye = jnp.eye(whitened.shape[-1], dtype=whitened.dtype)[None]

    def left(white: Array) -> tuple[Array, Array]:
        inverse = jax.vmap(_inverse)(eye - 0.5 * (white + jnp.swapaxes(white, 1, 2)))
        return inverse, jnp.einsum("iba,ibc,icd->iad", inverse_root, inverse - eye, inverse_root)

    inverse, covariance = left(whitened)
    shift = jnp.einsum("iab,ib->ia", left(damped)[1], seen.gradient)
    influence = jnp.einsum("iab,ibc,ic->ia", seen.root, inverse, seen.score)
    return from_vectors(dist, vectors_of(dist) + shift), covariance, influence


@functools.partial(jax.jit, static_argnums=6)
def _ends(
    system: Any,
    state: Any,
    train: Any,
    influence: Array,
    residual: Array,
    part: Any,
    rank: int,
) -> tuple[Array, Array]:
    """The ends of intervals at some inputs; `part` is these and their standard deviations."""
    inputs, std = part
    network, factor, log_precision = state
    dist, left = system.features(network, inputs)
    _, right = system.features(network, train)
    covariance = system.joint_covariance(factor, log_precision, left, right)
    moved = vectors_of(dist)[None] + jnp.einsum("najb,jb->jna", covariance, influence)
    means = jax.vmap(lambda vector: from_vectors(dist, vector).mean)(moved)
    width = residual[:, None] * std[None]
    low, high = jnp.sort(means - width, 0), jnp.sort(means + width, 0)
    return low[-rank], high[rank - 1]
