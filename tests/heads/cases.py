"""The same head in both libraries, seen through one function."""

import jax
import jax.numpy as jnp
from flax import nnx as flax_nnx

from fisher8_jax.heads import linen, nnx

FEATURES = 7


def linen_head(**settings):
    """Parameters and `apply(params, features, **call)` of a Linen head."""
    head = linen.DistributionHead(**settings)
    variables = head.init(jax.random.key(3), jnp.ones((1, FEATURES), jnp.float32))
    return variables["params"], lambda p, x, **call: head.apply({"params": p}, x, **call)


def nnx_head(**settings):
    """Parameters and `apply(params, features, **call)` of an NNX head, by the names of Linen."""
    head = nnx.DistributionHead(FEATURES, **settings, rngs=flax_nnx.Rngs(3))
    graph, state = flax_nnx.split(head)
    pure = flax_nnx.to_pure_dict(state)
    params = {**pure["layers"], **pure.get("learned", {})}

    def apply(params, features, **call):
        merged = {
            "layers": {name: params[name] for name in pure["layers"]},
            "learned": {name: params[name] for name in pure.get("learned", {})},
        }
        fresh = flax_nnx.merge(graph, state)
        target = flax_nnx.state(fresh)
        flax_nnx.replace_by_pure_dict(target, {k: v for k, v in merged.items() if v})
        return flax_nnx.merge(graph, target)(features, **call)

    return params, apply


HEADS = {"linen": linen_head, "nnx": nnx_head}
