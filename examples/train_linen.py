"""Fisher8 with the KL radius in Flax Linen, with a TrainState."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from fisher8_jax.heads.linen import DistributionHead, TrainState
from fisher8_jax.optimizers import scale_by_kl_radius


class Network(nn.Module):
    @nn.compact
    def __call__(self, inputs, *, natural_gradient=False):
        features = nn.silu(nn.Dense(32)(inputs))
        return DistributionHead()(features, natural_gradient=natural_gradient)


@jax.jit
def train_step(state, inputs, targets):
    def loss(params):
        return state.apply_fn(params, inputs, natural_gradient=True).nll(targets).mean()

    value, gradients = jax.value_and_grad(loss)(state.params)
    predict = lambda params: state.apply_fn(params, inputs)  # noqa: E731
    return state.apply_gradients(grads=gradients, predict=predict), value


def make_data(rows=256):
    """Inputs (rows, 2) and targets (rows,) whose noise grows with the first input."""
    input_key, noise_key = jax.random.split(jax.random.key(0))
    inputs = jax.random.uniform(input_key, (rows, 2))
    std = 0.1 + 0.4 * inputs[:, 0]
    targets = jnp.sin(4 * inputs[:, 0]) + inputs[:, 1] + std * jax.random.normal(noise_key, (rows,))
    return inputs, targets


def main(steps: int = 200) -> tuple[float, float]:
    """Trains and returns the first and the last NLL."""
    inputs, targets = make_data()
    network = Network()
    radius = scale_by_kl_radius(optax.polynomial_schedule(0.01, 0.0, 2, steps))
    state = TrainState.create(
        apply_fn=network.apply,
        params=network.init(jax.random.key(0), inputs),
        tx=optax.chain(optax.adam(1.0), radius),
    )
    values = []
    for _ in range(steps):
        state, value = train_step(state, inputs, targets)
        values.append(float(value))
    return values[0], values[-1]


if __name__ == "__main__":
    print("NLL {:.3f} -> {:.3f}".format(*main()))
