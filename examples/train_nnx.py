"""Fisher8 with the KL radius in Flax NNX."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from fisher8_jax.heads.nnx import DistributionHead, predict_fn
from fisher8_jax.optimizers import scale_by_kl_radius


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.hidden = nnx.Linear(2, 32, rngs=rngs)
        self.head = DistributionHead(32, rngs=rngs)

    def __call__(self, inputs, *, natural_gradient=False):
        return self.head(jax.nn.silu(self.hidden(inputs)), natural_gradient=natural_gradient)


@nnx.jit
def train_step(model, optimizer, inputs, targets):
    def loss(model):
        return model(inputs, natural_gradient=True).nll(targets).mean()

    predict = predict_fn(model, inputs)  # before the loss, so that dropout draws the same mask
    value, gradients = nnx.value_and_grad(loss)(model)
    optimizer.update(model, gradients, predict=predict)
    return value


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
    model = Network(nnx.Rngs(0))
    radius = scale_by_kl_radius(optax.polynomial_schedule(0.01, 0.0, 2, steps))
    optimizer = nnx.Optimizer(model, optax.chain(optax.adam(1.0), radius), wrt=nnx.Param)
    values = [float(train_step(model, optimizer, inputs, targets)) for _ in range(steps)]
    return values[0], values[-1]


if __name__ == "__main__":
    print("NLL {:.3f} -> {:.3f}".format(*main()))
