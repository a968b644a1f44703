"""Everything the conformance suite asks of one family, in one compiled function."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fisher8_jax import fisher8, fisher8_nll
from fisher8_jax._internal.numerics import materialize
from fisher8_jax._internal.trees import array_fields
from fisher8_jax.families import Family
from fisher8_jax.families._contract import dense_fisher
from tests.families.table import CASES, Case

KL_STEP = 1e-3


def flatten(dist: Family) -> jax.Array:
    """The parameters of every element as one vector, shape (batch, parameters)."""
    leaves = [getattr(dist, name) for name in array_fields(dist)]
    return jnp.concatenate([x.reshape(x.shape[0], -1) for x in leaves], axis=1)


def unflatten(like: Family, flat: jax.Array) -> Family:
    """The inverse of `flatten`; `flat` may lack the batch axis."""
    leaves = [getattr(like, name) for name in array_fields(like)]
    sizes = np.cumsum([0] + [int(np.prod(x.shape[1:])) for x in leaves])
    parts = [
        flat[..., a:b].reshape(flat.shape[:-1] + x.shape[1:])
        for a, b, x in zip(sizes, sizes[1:], leaves, strict=False)
    ]
    return jax.tree.unflatten(jax.tree.structure(like), parts)


def expected_information(dist: Family, nodes: jax.Array, probabilities: jax.Array) -> Any:
    """`E[score score']` and `E[Hessian of the NLL]` of every element, by the table's nodes."""

    def element(theta, y, p):
        def nll(theta, y):
            return unflatten(dist, theta).nll(y)

        scores = jax.vmap(jax.grad(nll), (None, 0))(theta, y)
        hessians = jax.vmap(jax.hessian(nll), (None, 0))(theta, y)
        return jnp.einsum("n,ni,nj->ij", p, scores, scores), jnp.einsum("n,nij->ij", p, hessians)

    return jax.vmap(element, (0, 1, 1))(flatten(dist), nodes, probabilities)


def natural_matrices(dist: Family) -> tuple[jax.Array, jax.Array]:
    """The information by polarising `fisher_norm_sq`, and the matrix that `natural` applies."""
    theta = flatten(dist)
    size = theta.shape[1]
    basis = jnp.broadcast_to(jnp.eye(size)[:, None], (size, *theta.shape))

    def square(direction):
        return dist.fisher_norm_sq(unflatten(dist, direction))

    single = jax.vmap(square)(basis)
    double = jax.vmap(jax.vmap(lambda a, b: square(a + b), (None, 0)), (0, None))(basis, basis)
    information = 0.5 * (double - single[:, None] - single[None])
    inverse = jax.vmap(lambda b: flatten(dist.natural(unflatten(dist, b))))(basis)
    return jnp.moveaxis(information, -1, 0), jnp.moveaxis(inverse, (0, 1, 2), (2, 0, 1))


def gradient(dist: Family, targets: jax.Array, loss: Any) -> jax.Array:
    return flatten(jax.grad(lambda d: loss(d, targets))(dist))


def through_op(dist: Family, targets: jax.Array) -> jax.Array:
    return fisher8(dist).nll(targets).mean()


def fused(dist: Family, targets: jax.Array) -> jax.Array:
    return fisher8_nll(dist, targets).mean()


# Compiled once and run once on small arrays: optimising the machine code would cost more than it
# saves.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@functools.partial(jax.jit, compiler_options=QUICK)
def _report(dist: Family, other: Family, targets, nodes, probabilities, key) -> dict[str, Any]:
    theta = flatten(dist)
    size = theta.shape[0]
    direction = jnp.cos(jnp.arange(theta.size, dtype=theta.dtype)).reshape(theta.shape)
    shifts = jnp.stack([KL_STEP * direction, -KL_STEP * direction, jnp.zeros_like(theta)])
    others = jnp.concatenate([theta[None] + shifts, flatten(other)[None]])
    ahead, behind, kl_self, kl_other = jax.vmap(lambda t: dist.kl(unflatten(dist, t)))(others)
    outer, hessian = expected_information(dist, nodes, probabilities)
    information, inverse = natural_matrices(dist)
    cdf = dist.cdf(targets)
    samples = dist.sample(key, (4000,))
    quantiles = jax.vmap(dist.quantile)(jnp.stack([cdf, jnp.full_like(cdf, 0.3)]))
    nll, pull_back = jax.vjp(lambda d: d.nll(targets), dist)
    scores = dist.natural_score(targets).values()
    return {
        "nll": nll,
        "constant": nll - dist.nll(targets, constant=False),
        "outer": outer,
        "hessian": hessian,
        "information": information,
        "inverse": inverse,
        "fisher": dense_fisher(dist),
        "factor": dist.fisher_factor(),
        "round_trip_tangent": flatten(dist.natural(dist.fisher(dist.from_vector(direction)))),
        "kl_small": (ahead + behind) / KL_STEP**2,
        "direction": direction,
        "quadratic": dist.fisher_norm_sq(unflatten(dist, direction)),
        "kl": kl_other,
        "kl_self": kl_self,
        "log_ratio": jax.vmap(lambda y: other.nll(y) - dist.nll(y))(nodes),
        "cdf": cdf,
        "round_trip": quantiles[0],
        "quantiles": quantiles[1],
        "mean": dist.mean,
        "variance": dist.variance,
        "samples": samples,
        "op": gradient(dist, targets, through_op),
        "fused": gradient(dist, targets, fused),
        "score": jnp.concatenate([materialize(s).reshape(size, -1) for s in scores], 1),
        "nll_gradient": flatten(pull_back(jnp.ones_like(nll))[0]),
        "crps": dist.crps(targets),
    }


def shifted(dist: Family) -> Family:
    """Another member of the family, a little away."""
    theta = flatten(dist)
    shift = 0.1 * jnp.sin(1 + jnp.arange(theta.size, dtype=theta.dtype)).reshape(theta.shape)
    return unflatten(dist, theta + shift)


def rounded_pair(case: Case) -> tuple[Family, Family]:
    """The case's distribution and another one, with parameters that bfloat16 can hold."""

    def rounded(dist: Family) -> Family:
        return jax.tree.map(lambda x: x.astype(jnp.bfloat16).astype(jnp.float64), dist)

    dist = jax.tree.map(jnp.asarray, case.dist)
    return rounded(dist), rounded(shifted(dist))


def report_of(case: Case, dist: Family, other: Family) -> dict[str, Any]:
    """All quantities for two distributions of the case's shape; compiled once per family."""
    inputs = map(jnp.asarray, (case.targets, case.nodes, case.probabilities))
    return jax.tree.map(np.asarray, _report(dist, other, *inputs, jax.random.key(0)))


@functools.cache
def report(name: str) -> tuple[Case, dict[str, Any]]:
    """All quantities of one row of the table, computed once per test process."""
    case = CASES[name]
    dist = jax.tree.map(jnp.asarray, case.dist)
    return case, report_of(case, dist, shifted(dist))
