"""Odd networks, one example at a time: `name -> (predict_one, params, inputs)`."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.curvature.networks import NETWORKS, ROWS, _draw, _head, _with_head


def weight_normalised():
    """Kernels of unit columns times a learned length, and spectral scaling by a stopped norm."""

    def predict_one(params, x):
        length = jnp.exp(params["log_length"]) / jnp.linalg.norm(params["direction"], axis=0)
        hidden = jnp.tanh(x @ (params["direction"] * length[None]))
        size = lax.stop_gradient(jnp.linalg.norm(params["second"]))
        return _head(params, jax.nn.relu(hidden @ (params["second"] / size)))

    params = _with_head(4, direction=_draw(1, 3, 5), log_length=_draw(2, 5), second=_draw(3, 5, 4))
    return predict_one, params, _draw(4, ROWS, 3, scale=1.0)


def hypernetwork():
    """The kernel of one layer is the output of another that sees the example."""

    def predict_one(params, x):
        kernel = (jnp.tanh(x @ params["hyper"]) @ params["generator"]).reshape(3, 4)
        return _head(params, jnp.tanh(x @ kernel))

    params = _with_head(4, hyper=_draw(5, 3, 3), generator=_draw(6, 3, 12))
    return predict_one, params, _draw(7, ROWS, 3, scale=1.0)


def top_k_experts():
    """Two of four experts for every example, gathered by the router's choice."""

    def predict_one(params, x):
        scores, chosen = lax.top_k(x @ params["router"], 2)
        outputs = jnp.tanh(jnp.einsum("d,edh->eh", x, params["experts"][chosen]))
        return _head(params, jax.nn.softmax(scores) @ outputs)

    params = _with_head(4, router=_draw(8, 3, 4), experts=_draw(9, 4, 3, 4, scale=0.6))
    return predict_one, params, _draw(10, ROWS, 3, scale=1.0)


def ode():
    """Euler steps by `fori_loop`, the field's parameters used in every one."""

    def predict_one(params, x):
        def step(_, state):
            return state + 0.1 * jnp.tanh(state @ params["field"] + params["drift"])

        return _head(params, lax.fori_loop(0, 7, step, x))

    params = _with_head(4, field=_draw(11, 4, 4), drift=_draw(12, 4))
    return predict_one, params, _draw(13, ROWS, 4, scale=1.0)


def film():
    """One input scales and shifts the features of the other; literal factors everywhere."""

    def predict_one(params, example):
        x, context = example
        scale, shift = jnp.split(context @ params["film"], 2)
        features = jax.nn.gelu(x @ params["trunk"])
        return _head(params, 0.5 * jnp.clip((1.0 + scale) * features + shift, -2.0, 2.0))

    params = _with_head(4, film=_draw(14, 2, 8), trunk=_draw(15, 3, 4))
    return predict_one, params, (_draw(16, ROWS, 3, scale=1.0), _draw(17, ROWS, 2, scale=1.0))


def transposed_convolution():
    """Upsampling by a dilated input, and a grouped convolution behind it."""

    def predict_one(params, x):
        numbers = ("NHC", "HIO", "NHC")
        x = lax.conv_transpose(x[None], params["up"], (2,), "SAME", dimension_numbers=numbers)
        x = lax.conv_general_dilated(
            jnp.tanh(x), params["grouped"], (1,), "SAME", dimension_numbers=numbers,
            feature_group_count=2,
        )  # fmt: skip
        return _head(params, jax.nn.silu(x[0]).mean(0))

    params = _with_head(4, up=_draw(18, 3, 2, 4), grouped=_draw(19, 3, 2, 4))
    return predict_one, params, _draw(20, ROWS, 5, 2, scale=1.0)


def gru_of_50_steps():
    def predict_one(params, x):
        def cell(state, token):
            both = jnp.concatenate([state, token])
            update = jax.nn.sigmoid(both @ params["gate"])
            return update * state + (1 - update) * jnp.tanh(both @ params["candidate"]), None

        return _head(params, lax.scan(cell, params["start"], x)[0])

    params = _with_head(4, gate=_draw(21, 5, 4), candidate=_draw(22, 5, 4), start=_draw(23, 4))
    return predict_one, params, _draw(24, ROWS, 50, 1, scale=1.0)


def transformer():
    """Embeddings, causal attention, layer norms with gain and bias, a position's own vector."""

    def norm(x, gain, bias):
        centred = x - x.mean(-1, keepdims=True)
        normed = centred * lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)
        return normed * gain[None] + bias[None]

    def predict_one(params, tokens):
        x = params["embedding"][tokens] + params["position"]
        h = norm(x, params["gain"], params["bias"])
        q, k, v = jnp.split(h @ params["qkv"], 3, axis=-1)
        scores = jnp.where(jnp.tril(jnp.ones((6, 6), bool)), q @ k.T / 2.0, -1e9)
        x = x + jax.nn.softmax(scores) @ v
        h = norm(x, params["gain"], params["bias"])  # the same norm again
        x = x + jax.nn.gelu(h @ params["up"]) @ params["up"].T
        return _head(params, x[-1])

    params = _with_head(
        4,
        embedding=_draw(25, 9, 4),
        position=_draw(26, 6, 4),
        gain=1 + _draw(27, 4, scale=0.1),
        bias=_draw(28, 4, scale=0.1),
        qkv=_draw(29, 4, 12),
        up=_draw(30, 4, 8),
    )
    tokens = np.random.default_rng(31).integers(0, 9, (ROWS, 6))
    return predict_one, params, jnp.asarray(tokens)


def fourier():
    """Complex intermediate results, and a leaf of no entries that is used."""

    def predict_one(params, x):
        spectrum = jnp.fft.fft(x) * (params["filter"] + 1j * params["phase"])
        empty = jnp.sum(params["empty"] @ x[:3])
        return _head(params, jnp.tanh(jnp.fft.ifft(spectrum).real) + empty)

    params = _with_head(
        4, filter=_draw(32, 4, scale=1.0), phase=_draw(33, 4, scale=1.0), empty=jnp.zeros((0, 3))
    )
    return predict_one, params, _draw(34, ROWS, 4, scale=1.0)


ZOO = NETWORKS | {
    make.__name__: make
    for make in (
        weight_normalised,
        hypernetwork,
        top_k_experts,
        ode,
        film,
        transposed_convolution,
        gru_of_50_steps,
        transformer,
        fourier,
    )
}
