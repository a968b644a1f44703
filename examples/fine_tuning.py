"""Fine-tuning: a Flax network that knows digits learns how far they are turned, and how sure it is.

A small convolutional network is trained to classify digits of 8x8 pixels. Then it is frozen; a
low-rank adapter of its dense layer and a new head learn the angle of turned digits, in three ways:
Adam on Fisher8, the KL radius, and the natural gradient of the adapter's parameters alone.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from scipy.ndimage import rotate
from sklearn.datasets import load_digits

from fisher8_jax import (
    Gaussian,
    fisher8_nll,
    fisher8_optimizer,
    network_gradient,
    network_optimizer,
)

WIDTH, RANK, BATCH = 64, 4, 64


class Classifier(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.first = nnx.Conv(1, 16, (3, 3), rngs=rngs)
        self.second = nnx.Conv(16, 32, (3, 3), strides=2, rngs=rngs)
        self.dense = nnx.Linear(4 * 4 * 32, WIDTH, rngs=rngs)
        self.head = nnx.Linear(WIDTH, 10, rngs=rngs)

    def __call__(self, images):
        hidden = nnx.relu(self.second(nnx.relu(self.first(images[..., None]))))
        hidden = hidden.reshape(*hidden.shape[:-3], -1)
        return self.head(nnx.relu(self.dense(hidden)))


def turned_digits(seed):
    """Images (rows, 8, 8), their labels, the same images turned, and the angle in units of 45°."""
    digits = load_digits()
    angles = np.random.default_rng(seed).uniform(-1, 1, len(digits.images))
    pairs = zip(digits.images, 45 * angles, strict=True)
    turned = np.array([rotate(image, angle, reshape=False, order=1) for image, angle in pairs])
    images, turned = (x.astype(np.float32) / 16 for x in (digits.images, turned))
    return images, digits.target, turned, angles.astype(np.float32)


def pretrain(images, labels, steps=300):
    """A network that classifies."""
    model = Classifier(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(0.003), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer, rows):
        def loss(model):
            logits = model(images[rows])
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels[rows]).mean()

        optimizer.update(model, nnx.grad(loss)(model))

    for rows in np.random.default_rng(0).integers(0, len(images), (steps, BATCH)):
        step(model, optimizer, rows)
    return model


def adapt(model):
    """The adapter's parameters, and the prediction for images as a function of them alone."""
    rngs = nnx.Rngs(1)
    model.dense = nnx.LoRA(4 * 4 * 32, RANK, WIDTH, base_module=model.dense, rngs=rngs)
    model.head = nnx.Linear(WIDTH, 2, rngs=rngs)
    is_trained = nnx.Any(nnx.LoRAParam, nnx.PathContains("head"))
    graph, adapter, *frozen = nnx.split(model, is_trained, ...)

    def predict(adapter, images):
        outputs = nnx.merge(graph, adapter, *frozen)(images)
        return Gaussian(outputs[..., 0], outputs[..., 1])

    return adapter, predict


def fine_tune(method, adapter, predict, images, angles, steps=150, rate=0.01):
    """The adapter after training by "adam", "radius" or "natural"."""
    optimizers = {
        "adam": optax.adam(optax.linear_schedule(rate, 0, steps)),
        "radius": fisher8_optimizer(steps),
        "natural": network_optimizer(steps),
    }
    optimizer = optax.with_extra_args_support(optimizers[method])

    def step(carry, rows):
        adapter, state = carry
        x, y = images[rows], angles[rows]
        if method == "natural":  # one example at a time; frozen weights are no parameters of it
            natural = network_gradient(predict, adapter, x, y)
            updates, state = optimizer.update(
                natural.gradient, state, adapter, step_kl=natural.step_kl
            )
        else:
            gradient = jax.grad(lambda a: fisher8_nll(predict(a, x), y).mean())(adapter)
            updates, state = optimizer.update(
                gradient, state, adapter, predict=lambda a: predict(a, x)
            )
        return (optax.apply_updates(adapter, updates), state), None

    rows = np.random.default_rng(1).integers(0, len(images), (steps, BATCH))
    train = jax.jit(lambda carry: jax.lax.scan(step, carry, rows)[0])
    return train((adapter, optimizer.init(adapter)))[0]


def main(pretraining=300, steps=150):
    """Held-out error in degrees and NLL of the three ways."""
    images, labels, turned, angles = map(jnp.asarray, turned_digits(0))
    adapter, predict = adapt(pretrain(images, labels, pretraining))
    train, test = slice(0, 1400), slice(1400, None)
    found = {}
    for method in ("adam", "radius", "natural"):
        tuned = fine_tune(method, adapter, predict, turned[train], angles[train], steps)
        dist = predict(tuned, turned[test])
        rmse = 45 * jnp.sqrt(jnp.mean((dist.mean - angles[test]) ** 2))
        found[method] = float(rmse), float(dist.nll(angles[test]).mean())
    return found


if __name__ == "__main__":
    for method, (rmse, nll) in main().items():
        print(f"{method:8} RMSE {rmse:.1f} degrees, NLL {nll:.3f}")
