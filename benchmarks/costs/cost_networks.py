"""Networks of five kinds whose steps are timed: dense, recurrent, attention, convolutional."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from benchmarks.costs.overhead import apply_dense, dense, small_cnn, small_mlp
from fisher8_jax import Gaussian


class Case(NamedTuple):
    """A network as a function of one example, its parameters and one batch."""

    name: str
    apply: Callable[[Any, Array], Array]  # a batch of rows to (rows, 2 targets)
    params: Any
    inputs: Array
    inner: int  # steps per timed call

    def predict(self, params: Any, inputs: Array) -> Gaussian:
        mean, log_variance = jnp.split(self.apply(params, inputs), 2, axis=-1)
        return Gaussian(mean, log_variance)

    def predict_one(self, params: Any, example: Array) -> Gaussian:
        return jax.tree.map(lambda leaf: leaf[0], self.predict(params, example[None]))

    @property
    def targets(self) -> Array:
        shape = jax.eval_shape(self.predict, self.params, self.inputs).mean.shape
        return jnp.asarray(np.random.default_rng(1).normal(size=shape), jnp.float32)

    @property
    def row_numbers(self) -> int:
        size = sum(leaf.size for leaf in jax.tree.leaves(self.params))
        return 2 * self.targets.size * size


def small_dense(rng: np.random.Generator) -> Case:
    problem = small_mlp(rng)
    return Case(problem.name, problem.apply, problem.params, problem.inputs, 200)


def large_dense(rng: np.random.Generator) -> Case:
    layers = dense(rng, 64, 1024, 1024, 1024, 2)
    return Case("MLP 3x1024, batch 256", apply_dense, layers, _draw(rng, 256, 64), 8)


def convolutional(rng: np.random.Generator) -> Case:
    problem = small_cnn(rng)
    return Case(problem.name, problem.apply, problem.params, problem.inputs, 2)


def mlp(
    rng: np.random.Generator, batch: int = 32, width: int = 50, targets: int = 1, depth: int = 2
) -> Case:
    layers = dense(rng, 8, *[width] * depth, 2 * targets)
    inner = min(200, max(10, 2**20 // (batch * width * targets**2)))
    return Case("", apply_dense, layers, _draw(rng, batch, 8), inner)


def recurrent(rng: np.random.Generator) -> Case:
    """A gated recurrent unit of 64 units over 50 steps."""
    units, features = 64, 8
    params = {
        "inputs": _kernel(rng, features, 3 * units),
        "state": _kernel(rng, units, 3 * units),
        "bias": jnp.zeros((1, 3 * units), jnp.float32),
        "head": dense(rng, units, 2),
    }

    def apply(params: Any, x: Array) -> Array:
        def cell(state: Array, now: Array) -> tuple[Array, None]:
            given = jnp.split(now @ params["inputs"] + params["bias"], 3, -1)
            kept = jnp.split(state @ params["state"], 3, -1)
            reset, update = (
                jax.nn.sigmoid(a + b) for a, b in zip(given[:2], kept[:2], strict=True)
            )
            new = jnp.tanh(given[2] + reset * kept[2])
            return (1 - update) * new + update * state, None

        start = jnp.zeros((x.shape[0], units), x.dtype)
        return apply_dense(params["head"], lax.scan(cell, start, jnp.swapaxes(x, 0, 1))[0])

    return Case("GRU, 50 steps, batch 64", apply, params, _draw(rng, 64, 50, features), 4)


def transformer(rng: np.random.Generator) -> Case:
    """Four layers of width 128 with four heads, 64 tokens, one output for the sequence."""
    width, heads, tokens = 128, 4, 64

    def layer() -> dict[str, Array]:
        return {
            "attend": _kernel(rng, width, 3 * width),
            "join": _kernel(rng, width, width),
            "up": _kernel(rng, width, 4 * width),
            "down": _kernel(rng, 4 * width, width),
            "scale": jnp.ones((1, 1, width), jnp.float32),
            "bias": jnp.zeros((1, 1, 4 * width), jnp.float32),
        }

    params = {
        "embed": _kernel(rng, 8, width),
        "place": 0.1 * _draw(rng, 1, tokens, width),
        "layers": [layer() for _ in range(4)],
        "head": dense(rng, width, 2),
    }

    def attend(layer: dict[str, Array], x: Array) -> Array:
        parts = (x @ layer["attend"]).reshape(*x.shape[:2], heads, -1)
        query, key, value = jnp.split(parts, 3, -1)
        scores = jnp.einsum("bthd,bshd->bhts", query, key) * (width / heads) ** -0.5
        mixed = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), value)
        return mixed.reshape(x.shape) @ layer["join"]

    def apply(params: Any, x: Array) -> Array:
        x = x @ params["embed"] + params["place"]
        for layer in params["layers"]:
            x = x + attend(layer, jax.nn.standardize(x) * layer["scale"])
            hidden = jax.nn.gelu(jax.nn.standardize(x) @ layer["up"] + layer["bias"])
            x = x + hidden @ layer["down"]
        return apply_dense(params["head"], x.mean(1))

    inputs = _draw(rng, 32, tokens, 8)
    return Case("transformer 4x128, 64 tokens, batch 32", apply, params, inputs, 2)


def residual(rng: np.random.Generator) -> Case:
    """Three residual blocks of two convolutions with 16 channels on images of 28x28."""
    channels = 16

    def kernel(inputs: int) -> Array:
        return _draw(rng, 3, 3, inputs, channels) * (9 * inputs) ** -0.5

    def block() -> dict[str, Array]:
        scales = {f"scale{i}": jnp.ones((1, 1, 1, channels), jnp.float32) for i in (1, 2)}
        return {"first": kernel(channels), "second": kernel(channels)} | scales

    params = {
        "stem": kernel(1),
        "blocks": [block() for _ in range(3)],
        "head": dense(rng, channels, 2),
    }

    def convolve(x: Array, kernel: Array) -> Array:
        numbers = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)

    def normalize(x: Array, scale: Array) -> Array:
        return jax.nn.standardize(x, axis=(1, 2, 3)) * scale

    def apply(params: Any, x: Array) -> Array:
        x = convolve(x, params["stem"])
        for block in params["blocks"]:
            hidden = jax.nn.relu(normalize(convolve(x, block["first"]), block["scale1"]))
            x = jax.nn.relu(x + normalize(convolve(hidden, block["second"]), block["scale2"]))
        return apply_dense(params["head"], x.mean((1, 2)))

    return Case("ResNet 28x28, batch 64", apply, params, _draw(rng, 64, 28, 28, 1), 2)


NETWORKS = {
    "mlp-2x50": small_dense,
    "mlp-3x1024": large_dense,
    "gru": recurrent,
    "transformer": transformer,
    "cnn": convolutional,
    "resnet": residual,
}


def _draw(rng: np.random.Generator, *shape: int) -> Array:
    return jnp.asarray(rng.normal(size=shape), jnp.float32)


def _kernel(rng: np.random.Generator, inputs: int, outputs: int) -> Array:
    return _draw(rng, inputs, outputs) * inputs**-0.5
