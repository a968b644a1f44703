"""Data-parallel training on every device of every host; one program, only the mesh grows.

On a cluster that JAX knows (TPU pods, Slurm, Open MPI) start on every host

    python -m examples.multihost

Elsewhere give the address of the first process, the number of processes and the index of this one:

    python -m examples.multihost 10.0.0.1:1234 2 0
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from fisher8_jax import Gaussian, fisher8_nll
from fisher8_jax.optimizers import fisher8_optimizer

STEPS, GLOBAL_BATCH, FEATURES = 30, 64, 4


def predict(params, inputs):
    """A dense network; parameters are copied to every device, rows are spread."""
    hidden = jax.nn.silu(inputs @ params["w1"] + params["b1"])
    mean, log_variance = jnp.moveaxis(hidden @ params["w2"] + params["b2"], -1, 0)
    return Gaussian(mean, log_variance)


def make_step(mesh: Mesh):
    """The compiled step: nothing in it knows how many devices there are."""
    optimizer = fisher8_optimizer(STEPS)
    copied, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))

    def step(params, state, inputs, targets):
        def loss(params):
            return fisher8_nll(predict(params, inputs), targets).mean()

        value, gradients = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(
            gradients, state, params, predict=lambda p: predict(p, inputs)
        )
        return optax.apply_updates(params, updates), state, value

    compiled = jax.jit(
        step,
        in_shardings=(copied, copied, rows, rows),
        out_shardings=copied,
        donate_argnums=(0, 1),
    )
    return optimizer, compiled


def global_batch(mesh: Mesh, step: int):
    """Every host makes the rows of its own devices; here from one generator for a fair test."""
    rng = np.random.default_rng(step)
    inputs = rng.normal(size=(GLOBAL_BATCH, FEATURES)).astype(np.float32)
    noise = rng.normal(size=GLOBAL_BATCH).astype(np.float32)
    targets = np.sin(inputs[:, 0]) + 0.1 * noise
    sharding = NamedSharding(mesh, P("data"))
    return tuple(
        jax.make_array_from_callback(array.shape, sharding, array.__getitem__)
        for array in (inputs, targets)
    )


def initial_params(mesh: Mesh):
    """The same parameters on every device, from one seed."""
    rng = np.random.default_rng(0)
    params = {
        "w1": rng.normal(size=(FEATURES, 16)).astype(np.float32),
        "b1": np.zeros((1, 16), np.float32),
        "w2": 0.1 * rng.normal(size=(16, 2)).astype(np.float32),
        "b2": np.zeros((1, 2), np.float32),
    }
    return jax.device_put(params, NamedSharding(mesh, P()))


def main(*arguments: str) -> None:
    """Trains and prints the result of this process as JSON."""
    if arguments:
        address, count, index = arguments
        jax.distributed.initialize(address, num_processes=int(count), process_id=int(index))
    else:
        jax.distributed.initialize()
    automatic = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=automatic)
    optimizer, step = make_step(mesh)
    params = initial_params(mesh)
    state = jax.jit(optimizer.init, out_shardings=NamedSharding(mesh, P()))(params)
    losses = []
    for number in range(STEPS):
        params, state, value = step(params, state, *global_batch(mesh, number))
        losses.append(float(value))
    local = jax.tree.map(lambda leaf: np.asarray(leaf.addressable_data(0)).tolist(), params)
    print(json.dumps({"devices": jax.device_count(), "losses": losses, "params": local}))


if __name__ == "__main__":
    main(*sys.argv[1:])
