"""The natural gradient of a whole network with every matrix written out, for comparison only."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree


def coordinates(dist):
    """All coordinates of every element, batch_shape + (p,), field by field."""
    ndim = len(dist.batch_shape)
    return jnp.concatenate(
        [leaf.reshape(*leaf.shape[:ndim], -1) for leaf in jax.tree.leaves(dist)], axis=-1
    )


def dense_fisher(dist):
    """The Fisher information of every element: the inverse of what `natural` multiplies by."""
    ndim = len(dist.batch_shape)
    leaves, structure = jax.tree.flatten(dist)
    columns = []
    for index, leaf in enumerate(leaves):
        for entry in np.ndindex(leaf.shape[ndim:]):
            unit = [jnp.zeros_like(other) for other in leaves]
            unit[index] = unit[index].at[(..., *entry)].set(1.0)
            columns.append(coordinates(dist.natural(jax.tree.unflatten(structure, unit))))
    return jnp.linalg.inv(jnp.stack(columns, -1))


def dense_natural_gradient(
    predict_one,
    params,
    inputs,
    targets,
    damping,
    *,
    where=None,
    weights=None,
    scale=1.0,
    return_matrix=False,
):
    """`(J' F J / n + damping scale)^-1` times the gradient of the mean NLL, as one flat vector."""
    params, inputs, targets = cast_floats((params, inputs, targets), jnp.float64)
    flat, unravel = ravel_pytree(params)

    def predict(flat):
        return jax.vmap(predict_one, (None, 0))(unravel(flat), inputs)

    @jax.jit  # one program, because hundreds of small ones take minutes
    def pieces(flat):
        dist = predict(flat)
        mask = (
            jnp.ones(dist.batch_shape)
            if where is None
            else jnp.broadcast_to(where, dist.batch_shape).astype(float)
        )
        weight = mask if weights is None else mask * jnp.broadcast_to(weights, mask.shape)
        count = jnp.maximum(mask.sum(), 1)

        def loss(flat):
            values = predict(flat).nll(targets)
            return jnp.sum(jnp.where(mask > 0, values * weight, 0)) / count

        jacobian = jax.jacobian(lambda f: coordinates(predict(f)))(flat)
        fisher = dense_fisher(dist) * weight[..., None, None] / count
        return jacobian, fisher, jax.grad(loss)(flat)

    jacobian, fisher, gradient = map(np.asarray, pieces(flat))
    jacobian = jacobian.reshape(-1, fisher.shape[-1], flat.size)
    fisher = fisher.reshape(-1, *fisher.shape[-2:])
    matrix = np.einsum("eip,eij,ejq->pq", jacobian, fisher, jacobian, optimize=True)
    damped = matrix + damping * np.diag(np.broadcast_to(scale, flat.shape))
    return damped if return_matrix else np.linalg.solve(damped, gradient)


def relative_error(tree, reference):
    """The distance of a gradient from the reference, in units of its length."""
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]).astype(np.float64)
    return np.linalg.norm(flat - reference) / np.linalg.norm(reference)


def cast_floats(tree, dtype):
    """All floating-point leaves in another type, by NumPy: JAX compiles a cast for every shape."""

    def cast(leaf):
        leaf = np.asarray(leaf)
        return jnp.asarray(leaf, dtype if np.issubdtype(leaf.dtype, np.floating) else None)

    return jax.tree.map(cast, tree)
