"""Small networks of every kind, one example at a time: `name -> (predict_one, params, inputs)`."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fisher8_jax import Gaussian

ROWS = 6


def _draw(seed, *shape, scale=None):
    fan_in = np.prod(shape[:-1]) if len(shape) > 1 else 4
    values = np.random.default_rng(seed).normal(size=shape)
    return jnp.asarray(values * (fan_in**-0.5 if scale is None else scale))


def _head(params, hidden):
    return Gaussian(*(hidden @ params["head"] + params["head_bias"]))


def _with_head(width, **params):
    return params | {"head": _draw(90, width, 2), "head_bias": _draw(91, 2)}


def mlp():
    def predict_one(params, x):
        hidden = jax.nn.silu(x @ params["first"] + params["first_bias"])
        hidden = jax.nn.gelu(params["second"] @ hidden)  # the other side, as in Equinox
        return _head(params, hidden)

    params = _with_head(
        6, first=_draw(1, 3, 5), first_bias=_draw(2, 5), second=_draw(3, 6, 5), unused=_draw(4, 2)
    )
    return predict_one, params, _draw(5, ROWS, 3)


def global_variance():
    """An output that no example has a part in, through a function of a parameter alone."""

    def predict_one(params, x):
        return Gaussian(x @ (params["slope"] * params["gain"]), jnp.tanh(params["log_variance"]))

    params = {"slope": _draw(6, 3), "gain": _draw(7, 3), "log_variance": jnp.asarray(0.4)}
    return predict_one, params, _draw(8, ROWS, 3)


def _conv(x, kernel, **options):
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x[None], kernel, dimension_numbers=numbers, **options)[0]


def _normalise(x, scale, shift):
    centred = x - x.mean((0, 1), keepdims=True)
    return (
        centred * lax.rsqrt(jnp.square(centred).mean((0, 1), keepdims=True) + 1e-3) * scale + shift
    )


def cnn():
    """Strided and depthwise convolutions, normalisation, a residual, pooling."""

    @jax.jit
    def predict_one(params, x):
        x = _conv(x, params["strided"], window_strides=(2, 1), padding="SAME")
        x = jax.nn.relu(_normalise(x, params["scale"][None, None], params["shift"][None, None]))
        mixed = _conv(
            x, params["depthwise"], window_strides=(1, 1), padding="SAME", feature_group_count=3
        )
        x = x + _conv(jnp.tanh(mixed), params["pointwise"], window_strides=(1, 1), padding="VALID")
        x = lax.reduce_window(x, -jnp.inf, lax.max, (2, 2, 1), (2, 2, 1), "VALID")
        x = _conv(
            x,
            params["dilated"],
            window_strides=(1, 1),
            padding=((1, 1), (2, 0)),
            rhs_dilation=(2, 1),
        )
        return _head(params, x.mean((0, 1)))

    params = _with_head(
        4,
        strided=_draw(10, 3, 3, 2, 3),
        scale=1 + _draw(11, 3, scale=0.1),
        shift=_draw(12, 3, scale=0.1),
        depthwise=_draw(13, 3, 3, 1, 3),
        pointwise=_draw(14, 1, 1, 3, 3),
        dilated=_draw(15, 2, 2, 3, 4),
    )
    return predict_one, params, _draw(16, ROWS, 8, 6, 2, scale=1.0)


def gru():
    """A recurrent cell under `scan` with rematerialisation."""

    def predict_one(params, x):
        @jax.checkpoint
        def cell(state, token):
            both = jnp.concatenate([state, token])
            reset, update = jnp.split(jax.nn.sigmoid(both @ params["gates"] + params["bias"]), 2)
            new = jnp.tanh(jnp.concatenate([reset * state, token]) @ params["candidate"])
            return update * state + (1 - update) * new, None

        state, _ = lax.scan(cell, params["start"], x)
        return _head(params, state)

    params = _with_head(
        4,
        gates=_draw(20, 6, 8),
        bias=_draw(21, 8),
        candidate=_draw(22, 6, 4),
        start=_draw(23, 4),
    )
    return predict_one, params, _draw(24, ROWS, 5, 2, scale=1.0)


def attention():
    """Embedded tokens, two heads, a stack of layers under `scan`, a masked mean."""

    def predict_one(params, tokens):
        x = params["embedding"][tokens] + params["place"]

        def layer(x, kernels):
            q, k, v = jnp.einsum("td,ndhe->nthe", x, kernels["qkv"])
            scores = jax.nn.softmax(jnp.einsum("the,she->hts", q, k))
            mixed = jnp.einsum("hts,she->the", scores, v)
            return x + jnp.einsum("the,hed->td", mixed, kernels["out"]), None

        x, _ = layer(x, jax.tree.map(lambda leaf: leaf[0], params["layers"]))
        x, _ = lax.scan(layer, x, params["layers"])
        return _head(params, x.mean(0))

    params = _with_head(
        4,
        embedding=_draw(30, 7, 4),
        place=_draw(31, 5, 4),
        layers={"qkv": _draw(32, 2, 3, 4, 2, 2), "out": _draw(33, 2, 2, 2, 4)},
    )
    tokens = np.random.default_rng(34).integers(0, 7, (ROWS, 5))
    return predict_one, params, jnp.asarray(tokens)


def tied():
    """One kernel used twice the same way, one also transposed."""

    def predict_one(params, x):
        hidden = jnp.tanh(x @ params["square"])
        hidden = jnp.tanh(hidden @ params["square"])
        code = jnp.tanh(hidden @ params["code"])
        return _head(params, jnp.tanh(code @ params["code"].T))

    params = _with_head(4, square=_draw(40, 4, 4), code=_draw(41, 4, 3))
    return predict_one, params, _draw(42, ROWS, 4, scale=1.0)


def custom_rules():
    """Functions with derivative rules of their own, of parameters and of data."""

    @jax.custom_vjp
    def halve(x, kernel):
        return x @ kernel

    halve.defvjp(
        lambda x, kernel: (x @ kernel, (x, kernel)),
        lambda kept, g: (g @ kept[1].T, 0.5 * jnp.outer(kept[0], g)),  # not the derivative
    )

    def predict_one(params, x):
        hidden = jnp.tanh(halve(x, params["halved"])) * jax.nn.softplus(params["gain"])
        hidden = hidden + lax.stop_gradient(params["gain"])
        branches = (lambda kernel: jnp.tanh(hidden @ kernel), lambda kernel: hidden @ kernel)
        hidden = lax.cond(x[0] > 0, *branches, params["branched"])
        return _head(params, hidden)

    params = _with_head(4, halved=_draw(50, 3, 5), gain=_draw(51, 5), branched=_draw(52, 5, 4))
    return predict_one, params, _draw(53, ROWS, 3, scale=1.0)


NETWORKS = {
    make.__name__: make for make in (mlp, global_variance, cnn, gru, attention, tied, custom_rules)
}
