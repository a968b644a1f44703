"""Data-parallel training steps, compiled for the devices at hand, and the collectives in them."""

import itertools
import math
import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from fisher8_jax import Gaussian, fisher8_nll, network_gradient
from fisher8_jax.curvature import Blocks, Direct
from fisher8_jax.optimizers import scale_by_kl_radius

PROGRAMS = ("plain NLL", "Fisher8", "Fisher8, KL radius")
_KINDS = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
_SIZES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "pred": 1, "s64": 8}


class Collective(NamedTuple):
    """One array that crosses between devices."""

    kind: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Numbers in the array."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size of the array."""
        return self.elements * _SIZES[self.dtype]


def read_collectives(program: str) -> list[Collective]:
    """Every array in every collective operation of a compiled program's text (HLO).

    Example:
        >>> read_collectives("%r = (f32[2,3]{1,0}, f32[]) all-reduce(%a, %b), channel_id=1")
        [Collective(kind='all-reduce', dtype='f32', shape=(2, 3)), \
Collective(kind='all-reduce', dtype='f32', shape=())]
    """
    found = []
    for line in program.splitlines():
        match = re.search(rf"= (.*?) ({_KINDS})(-start)?\(", line)
        if match:
            for dtype, shape in re.findall(r"(\w+)\[([\d,]*)\]", match.group(1)):
                dimensions = tuple(int(n) for n in shape.split(",") if n)
                found.append(Collective(match.group(2), dtype, dimensions))
    return found


def collectives_of(name: str, hidden: tuple[int, ...], features: int = 16) -> list[Collective]:
    """What one training step sends when its rows are spread over all devices."""
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    params = _init((features, *hidden, 2))
    optimizer = _optimizer(name)
    rows = 8 * jax.device_count()
    copied, spread = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    step = jax.jit(
        lambda *arguments: _step(name, optimizer, *arguments),
        in_shardings=(copied, copied, spread, spread),
        out_shardings=copied,
    )
    inputs = jax.ShapeDtypeStruct((rows, features), jnp.float32)
    targets = jax.ShapeDtypeStruct((rows,), jnp.float32)
    compiled = step.lower(params, optimizer.init(params), inputs, targets).compile()
    return read_collectives(compiled.as_text() or "")


def network_program(
    widths: tuple[int, ...], rows: int, solver: Direct | Blocks, *, is_mapped: bool = True
) -> Any:
    """The compiled parameter-space gradient of a dense network, its rows spread over all devices.

    Args:
        widths: of inputs, hidden layers and outputs.
        rows: of the whole batch.
        solver: of `network_gradient`.
        is_mapped: whether under `shard_map`; else under `jit` with sharded arrays.
    """
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    kernels = [jax.ShapeDtypeStruct(pair, jnp.float32) for pair in itertools.pairwise(widths)]
    params = [(kernel, jax.ShapeDtypeStruct(kernel.shape[1:], jnp.float32)) for kernel in kernels]

    def predict_one(params: Any, x: jax.Array) -> Gaussian:
        for kernel, bias in params[:-1]:
            x = jnp.tanh(x @ kernel + bias)
        return Gaussian(*(x @ params[-1][0] + params[-1][1]))

    def gradient(params: Any, x: jax.Array, y: jax.Array) -> Any:
        axis_name = "data" if is_mapped else None
        step = network_gradient(predict_one, params, x, y, axis_name=axis_name, solver=solver)
        return step.value, step.gradient, step.step_kl

    if is_mapped:
        specs = (P(), P("data"), P("data"))
        mapped = jax.shard_map(gradient, mesh=mesh, in_specs=specs, out_specs=P())
        program = jax.jit(mapped)
    else:
        copied, spread = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
        places = (copied, spread, spread)
        program = jax.jit(gradient, in_shardings=places, out_shardings=copied)
    inputs = jax.ShapeDtypeStruct((rows, widths[0]), jnp.float32)
    return program.lower(params, inputs, jax.ShapeDtypeStruct((rows,), jnp.float32)).compile()


def _optimizer(name: str) -> optax.GradientTransformationExtraArgs:
    chain = [optax.sgd(0.1), scale_by_kl_radius(0.1)] if "radius" in name else [optax.sgd(0.1)]
    return optax.with_extra_args_support(optax.chain(*chain))


def _init(widths: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(0)
    pairs = itertools.pairwise(widths)
    return [rng.normal(size=pair).astype(np.float32) / math.sqrt(pair[0]) for pair in pairs]


def _predict(params: list[Any], inputs: jax.Array) -> Gaussian:
    hidden = inputs
    for kernel in params[:-1]:
        hidden = jax.nn.relu(hidden @ kernel)
    mean, log_variance = jnp.moveaxis(hidden @ params[-1], -1, 0)
    return Gaussian(mean, log_variance)


def _step(name, optimizer, params, state, inputs, targets):
    def predict(params):
        return _predict(params, inputs)

    def loss(params):
        if name == "plain NLL":
            return predict(params).nll(targets).mean()
        return fisher8_nll(predict(params), targets).mean()

    value, gradients = jax.value_and_grad(loss)(params)
    updates, state = optimizer.update(gradients, state, params, predict=predict)
    return optax.apply_updates(params, updates), state, value
