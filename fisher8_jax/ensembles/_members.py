"""Members of an ensemble side by side: stacked trees and one `vmap`.

Everything of one member (parameters, optimiser state, key) is a tree; an ensemble is the same tree
with the members as first axis of every leaf. A function of one member becomes one of all by
`jax.vmap`, so a training loop written for one network trains an ensemble unchanged.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import chex
import jax
import jax.numpy as jnp
from jax import Array

from fisher8_jax._internal.checks import check_count
from fisher8_jax.ensembles._mixture import Mixture
from fisher8_jax.families import Family

Tree = TypeVar("Tree")


def init_members(init: Callable[[Array], Tree], key: Array, members: int) -> Tree:
    """`init(key)` for each of `members` keys split from `key`, stacked.

    Args:
        init: the state of one member from a key.
        key: a key of `jax.random`.
        members: how many.

    Returns:
        One tree whose leaves have the members as first axis.

    Example:
        >>> import jax
        >>> params = init_members(lambda key: jax.random.normal(key, (3,)), jax.random.key(0), 5)
        >>> params.shape
        (5, 3)
    """
    return jax.vmap(init)(jax.random.split(key, check_count("members", members)))


def predict_members(
    predict: Callable[[chex.ArrayTree, Array], Family], params: chex.ArrayTree, inputs: Array
) -> Mixture:
    """The predictive mixture of stacked `params`.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> predict = lambda slope, x: Gaussian(slope * x, jnp.zeros_like(x))
        >>> predict_members(predict, jnp.array([1.0, 3.0]), jnp.array([1.0, 2.0])).mean
        Array([2., 4.], dtype=float32)
    """
    if len(jax.tree.leaves(params)[0]) == 1:
        one = predict(take_member(params, 0), inputs)
        return Mixture(jax.tree.map(lambda leaf: leaf[None], one))
    return Mixture(jax.vmap(predict, in_axes=(0, None))(params, inputs))


def stack_members(trees: Sequence[Tree]) -> Tree:
    """One tree with the given ones along a new first axis of every leaf.

    Example:
        >>> import jax.numpy as jnp
        >>> stack_members([{"w": jnp.zeros(3)}, {"w": jnp.ones(3)}])["w"].shape
        (2, 3)
    """
    if not trees:
        raise ValueError("`trees` must hold at least one member, got none.")
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def take_member(tree: Tree, index: int) -> Tree:
    """One member of a stacked tree.

    Example:
        >>> import jax.numpy as jnp
        >>> take_member({"w": jnp.arange(6.0).reshape(2, 3)}, 1)["w"]
        Array([3., 4., 5.], dtype=float32)
    """
    return jax.tree.map(lambda leaf: leaf[index], tree)
