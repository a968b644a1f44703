"""The posterior of a trained network, linearised at its parameters."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array as AnyArray  # of NumPy or of JAX
from chex import ArrayTree
from jax import Array

from fisher8_jax._internal.checks import check_count, check_positive
from fisher8_jax._internal.sharding import check_outside_shard_map, with_auto_axes
from fisher8_jax._internal.trees import register_tree
from fisher8_jax.ensembles import Mixture
from fisher8_jax.families import Family, LocationScale
from fisher8_jax.posterior._arithmetic import arithmetic, cast, in_chunks, is_traced
from fisher8_jax.posterior._dual import Dual
from fisher8_jax.posterior._evidence import Evidence
from fisher8_jax.posterior._network import Network
from fisher8_jax.posterior._outputs import from_vectors, outputs_of, vectors_of
from fisher8_jax.posterior._predictive import PosteriorPredictive, closed_form, sampled
from fisher8_jax.posterior._primal import Primal
from fisher8_jax.posterior._report import Report

_SAMPLES = 64

# Nats a row that a Newton step may move predictions beyond what noise explains.
_CONVERGED = 0.05


@register_tree
@dataclasses.dataclass(frozen=True, repr=False)
class Posterior:
    """What a network knows after training; made by `fit_posterior`.

    Methods take inputs like those of training. Outside `jax.jit` they work in float64 and on some
    rows at a time; inside, in the arithmetic of the program around, on all rows at once.

    Attributes:
        network: the prediction function and its parameters.
        system: the training rows in one of two forms.
        factor: the Cholesky factor for these precisions.
        log_precision: of the prior, the logarithm of one number per group.
        evidence: at these precisions.
        nll: of the training rows at the parameters, summed.
        inputs: of the rows that the posterior was computed from.
        targets: of these rows.
        report: names of the groups, and how it was computed.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.posterior import fit_posterior
        >>> predict_one = lambda params, x: Gaussian(params * x, jnp.zeros(()))
        >>> x = jnp.array([1.0, 2.0])
        >>> posterior = fit_posterior(predict_one, jnp.array(3.0), x, 3 * x, tune=False)
        >>> dist = posterior.predict(jnp.array([0.0, 6.0]))
        >>> print(dist.mean, dist.aleatoric, dist.epistemic)  # precision 1 + 1^2 + 2^2 = 6
        [ 0. 18.] [1. 1.] [0. 6.]
    """

    network: Network
    system: Dual | Primal
    factor: AnyArray
    log_precision: AnyArray
    evidence: Evidence
    nll: AnyArray
    inputs: ArrayTree
    targets: AnyArray
    report: Report = dataclasses.field(metadata={"static": True})

    @property
    def params(self) -> ArrayTree:
        """The parameters at which the network was linearised."""
        return self.network.params

    @property
    def log_evidence(self) -> float:
        """The logarithm of the marginal likelihood, in nats."""
        return float(self.evidence.log_evidence)

    @property
    def precision(self) -> dict[str, float]:
        """The prior's precision of each group."""
        values = np.exp(np.asarray(self.log_precision, float))
        return dict(zip(self.report.groups, values.tolist(), strict=True))

    @property
    def effective_parameters(self) -> dict[str, float]:
        """How many parameters of each group the rows have determined."""
        values = np.asarray(self.evidence.effective, float)
        return dict(zip(self.report.groups, values.tolist(), strict=True))

    @functools.cached_property
    def step_kl(self) -> float:
        """By how many nats a row a Newton step on the NLL would move the predictions of the rows.

        The prior is around the parameters. At an optimum it is at most about the effective number
        of parameters over the number of rows; far more says that the parameters have not
        converged, for instance because training stopped early. Then the covariance is that of
        another place than the optimum's, and the mean has not settled: see `max_kl` of `predict`.
        """
        with arithmetic(self.report.dtype, self):
            return float(self._newton_step()[1])

    @property
    def is_converged(self) -> bool:
        """Whether `step_kl` is that of an optimum."""
        effective = sum(self.effective_parameters.values())
        return self.step_kl <= effective / self.report.rows + _CONVERGED

    def predict(
        self,
        inputs: ArrayTree,
        *,
        samples: int | None = None,
        key: Array | None = None,
        max_kl: float | None = None,
    ) -> PosteriorPredictive | Mixture:
        """The predictive distribution of targets at new inputs.

        Args:
            inputs: like those of training, any number of rows.
            samples: how many draws of the outputs to mix. None takes a mixture over quantiles of
                the log-scale for a location-scale family, and 64 draws for any other.
            key: for the draws, `jax.random.key(0)` if None.
            max_kl: for parameters that stopped early. The outputs first move towards the optimum
                of the linearised network on the posterior's rows, the prior around the parameters,
                by at most so many nats a row; 0.1 is a good value. None leaves them.

        Returns:
            A `Predictive` with `aleatoric` and `epistemic`, which add up to its variance.
        """
        if samples is not None:
            check_count("samples", samples)
        dist, covariance = self._outputs(inputs)
        if max_kl is not None:
            check_positive("max_kl", max_kl)
            dist = self._towards_optimum(dist, inputs, max_kl)
        return self.predictive(dist, covariance, samples=samples, key=key)

    def predictive(
        self, dist: Family, covariance: Array, *, samples: int | None, key: Array | None
    ) -> PosteriorPredictive | Mixture:
        """The predictive of normal outputs: `predict`, for outputs that are known already."""
        narrow = jnp.zeros(()).dtype.name  # what the program around works in
        with arithmetic(self.report.dtype, dist, covariance):
            found: PosteriorPredictive | Mixture
            if samples is None and isinstance(dist, LocationScale):
                found = _closed(dist, covariance)
            else:
                key = jax.random.key(0) if key is None else key
                found = _sampled(dist, covariance, key, samples or _SAMPLES)
        return found if is_traced(found) else jax.tree.map(jnp.asarray, cast(found, narrow))

    def output_covariance(self, inputs: ArrayTree) -> Array:
        """The covariance of the outputs of every row, `(rows, p, p)`.

        The outputs are all coordinates of the predicted distribution, in the order of `to_vector`.
        """
        return self._outputs(inputs)[1]

    def joint_covariance(self, inputs: ArrayTree, others: ArrayTree | None = None) -> Array:
        """The covariance of the outputs at several inputs, `(rows, p, rows of others, p)`.

        Args:
            inputs: like those of training.
            others: likewise; `inputs` if None.
        """
        with arithmetic(self.report.dtype, self, inputs, others):
            inputs = self._cast(inputs)
            others = inputs if others is None else self._cast(others)
            return self._give(_joint(self.system, self.state, inputs, others))

    def sample_params(self, key: Array, samples: int) -> ArrayTree:
        """Parameters drawn from the posterior, stacked along a new first axis.

        They belong into the linearised network: far from the data a draw of the network itself is
        another, cruder function. See `sample_functions`.
        """
        check_count("samples", samples)
        with arithmetic(self.report.dtype, self):
            steps = self._draw(key, samples)
            moved = [
                leaf[None] + step
                for leaf, step in zip(self.network.uncertain(), steps, strict=True)
            ]
            every, structure = jax.tree.flatten(self.params)
            stacked = [jnp.broadcast_to(leaf, (samples, *np.shape(leaf))) for leaf in every]
            for index, leaf in zip(self.network.leaves, moved, strict=True):
                stacked[index] = leaf
            return self._give(jax.tree.unflatten(structure, stacked))

    def sample_functions(self, key: Array, inputs: ArrayTree, samples: int) -> Family:
        """Draws of the network as a function: predictions with the draws as a new first axis.

        The same key draws the same functions whatever the inputs.
        """
        check_count("samples", samples)
        with arithmetic(self.report.dtype, self, inputs):
            steps = self._draw(key, samples)
            return self._give(_functions(self.network, steps, self._cast(inputs)))

    def describe(self) -> str:
        """How it was computed, the evidence, and a table of the groups."""
        return self.report.describe(self)

    def __repr__(self) -> str:
        return f"Posterior({self.report.headline()})"

    def _outputs(self, inputs: ArrayTree) -> tuple[Family, Array]:
        check_outside_shard_map("Posterior.predict")
        if is_traced(inputs):
            return with_auto_axes(self._outputs_of, inputs)
        return self._outputs_of(inputs)

    def _outputs_of(self, inputs: ArrayTree) -> tuple[Family, Array]:
        with arithmetic(self.report.dtype, self, inputs):
            inputs = self._cast(inputs)
            _check_has_rows(inputs)
            system = self.system
            network, upper, log_precision = self.network, self.factor.T, self.log_precision
            if not is_traced(self, inputs):  # once, not for every chunk
                upper = np.ascontiguousarray(upper)
                system, (network, upper) = system.to_predict(), jax.device_put((network, upper))
            found = in_chunks(
                lambda x: _covariance(system, network, upper, log_precision, x),
                inputs,
                self.report.chunk,
            )
            return self._give(found)

    def _towards_optimum(self, dist: Family, inputs: ArrayTree, max_kl: float) -> Family:
        with arithmetic(self.report.dtype, self, inputs):
            function = functools.partial(_moved, self.network, self.newton_step(max_kl))
            part = (self._cast(inputs), self._cast(dist))
            return self._give(in_chunks(lambda x: function(*x), part, self.report.chunk))

    def newton_step(self, max_kl: float) -> list[Array]:
        """A step of the uncertain leaves towards the optimum, of at most `max_kl` nats a row."""
        step, divergence = self._newton_step()
        length = jnp.sqrt(max_kl / jnp.maximum(divergence, max_kl))
        return [length * leaf for leaf in step]

    def _newton_step(self) -> tuple[list[Array], Array]:
        return _optimum(self.system, self.state, self.inputs, self.targets)

    def _draw(self, key: Array, samples: int) -> list[Array]:
        keys = jax.random.split(key, samples)
        return _draws(self.system, self.state, self.inputs, keys)

    @property
    def state(self) -> tuple[Network, Array, Array]:
        """The network, the factor and the log-precisions: what a form's methods are given."""
        return self.network, self.factor, self.log_precision

    def _cast(self, inputs: ArrayTree) -> ArrayTree:
        return cast(inputs, self.report.dtype)

    def _give(self, tree: Any) -> Any:
        """Results leave as NumPy arrays of the arithmetic they were computed in."""
        return tree if is_traced(tree) else jax.tree.map(np.asarray, tree)


def _check_has_rows(inputs: ArrayTree) -> None:
    shapes = [np.shape(x) for x in jax.tree.leaves(inputs)]
    if not shapes or any(not shape or math.prod(shape[:1]) == 0 for shape in shapes):
        raise ValueError(
            f"`inputs` must be arrays whose first axis is the rows, at least one, got {shapes}."
        )


@jax.jit
def _covariance(
    system: Any, network: Network, upper: Array, log_precision: Array, inputs: ArrayTree
) -> tuple[Family, Array]:
    """Given the transposed factor, which lies in memory as LAPACK wants the factor."""
    dist, features = system.features(network, inputs)
    return dist, system.covariance(upper.T, log_precision, features)


@jax.jit
def _joint(system: Any, state: Any, inputs: ArrayTree, others: ArrayTree) -> Array:
    network, factor, log_precision = state
    left, right = (system.features(network, x)[1] for x in (inputs, others))
    return system.joint_covariance(factor, log_precision, left, right)


@jax.jit
def _draws(system: Any, state: Any, inputs: ArrayTree, keys: Array) -> list[Array]:
    network, factor, log_precision = state
    draw = functools.partial(system.draw, factor, log_precision, network, inputs)
    return jax.lax.map(draw, keys)


@jax.jit
def _optimum(
    system: Any, state: Any, inputs: ArrayTree, targets: Array
) -> tuple[list[Array], Array]:
    """A Newton step, and by how many nats a row it moves the predictions."""
    network, factor, log_precision = state
    seen = outputs_of(network.predict(inputs), targets)
    steps = system.newton_step(factor, log_precision, network, inputs, seen)
    moved = jnp.einsum("iab,ia->ib", seen.root, network.push(steps, inputs))
    return steps, 0.5 * jnp.sum(jnp.square(moved)) / moved.shape[0]


@jax.jit
def _moved(network: Network, steps: list[Array], inputs: ArrayTree, dist: Family) -> Family:
    return from_vectors(dist, vectors_of(dist) + network.push(steps, inputs))


@jax.jit
def _functions(network: Network, steps: list[Array], inputs: ArrayTree) -> Family:
    dist = network.predict(inputs)

    def moved(step: list[Array]) -> Family:
        return from_vectors(dist, vectors_of(dist) + network.push(step, inputs))

    return jax.vmap(moved)(steps)


_closed = jax.jit(closed_form)
_sampled = jax.jit(sampled, static_argnums=3)
