"""What new users get wrong, made on purpose: how a prediction is read, scaled or trained.

The truth is `sin(2 a) + b / 2` with noise that grows with the second input; the networks have two
layers of 32 tanh units and are trained by Adam on the plain NLL. Each draw gives predictions of new
rows, their targets, and the inputs that the network saw.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from fisher8_jax import Gaussian

Draw = tuple[Gaussian, Array, Array]
_Made = Callable[[np.random.Generator, int], Draw]


def truth(rng: np.random.Generator, points: int) -> tuple[np.ndarray, ...]:
    """Inputs, mean, standard deviation and targets."""
    x = rng.uniform(-2, 2, (points, 2))
    mean, std = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1], np.exp(0.7 * x[:, 1] - 1)
    return x, mean, std, mean + std * rng.normal(size=points)


def _single(values: np.ndarray) -> Array:
    """In the precision that networks compute in."""
    return jnp.asarray(values, jnp.float32)


def _draw(mean: np.ndarray, log_variance: np.ndarray, targets: np.ndarray, x: np.ndarray) -> Draw:
    return Gaussian(_single(mean), _single(log_variance)), _single(targets), _single(x)


def read_as(log_variance: Callable[[np.ndarray], np.ndarray]) -> _Made:
    """The right mean, and a log-variance that something was taken for."""

    def draw(rng: np.random.Generator, points: int) -> Draw:
        x, mean, std, targets = truth(rng, points)
        return _draw(mean, log_variance(std), targets, x)

    return draw


def swapped_outputs(rng: np.random.Generator, points: int) -> Draw:
    """`Gaussian(log_variance, mean)`."""
    dist, targets, x = read_as(lambda std: 2 * np.log(std))(rng, points)
    return Gaussian(dist.log_variance, dist.mean), targets, x


def std_left_behind(rng: np.random.Generator, points: int) -> Draw:
    """The mean was brought back to the targets' units, the standard deviation was not."""
    x, mean, std, targets = truth(rng, points)
    return _draw(50 + 8 * mean, 2 * np.log(std), 50 + 8 * targets, x)


def of_log_targets(rng: np.random.Generator, points: int) -> Draw:
    """The predictions are of the targets' logarithms."""
    dist, targets, x = read_as(lambda std: 2 * np.log(std))(rng, points)
    return dist, jnp.exp(targets), x


def shuffled_rows(rng: np.random.Generator, points: int) -> Draw:
    """Targets in another order than the predictions."""
    dist, targets, x = read_as(lambda std: 2 * np.log(std))(rng, points)
    return dist, targets[rng.permutation(points)], x


def constant_mean(rng: np.random.Generator, points: int) -> Draw:
    """The best one, with a variance that covers for it."""
    x, mean, std, targets = truth(rng, points)
    flat = np.full(points, targets.mean())
    return _draw(flat, np.log(std**2 + mean.var()), targets, x)


def other_noise(standard: Callable[[np.random.Generator, int], np.ndarray], factor: float) -> _Made:
    """Errors of another shape, and a variance that is right on average."""

    def draw(rng: np.random.Generator, points: int) -> Draw:
        x, mean, std, _ = truth(rng, points)
        targets = mean + std * standard(rng, points)
        return _draw(mean, np.log(factor * std**2), targets, x)

    return draw


def skewed(rng: np.random.Generator, points: int) -> np.ndarray:
    """An exponential variable, of mean 0 and variance 1."""
    return rng.exponential(size=points) - 1


def two_groups(rng: np.random.Generator, points: int) -> np.ndarray:
    """Two peaks, of mean 0 and variance 1."""
    return 0.95 * rng.choice([-1, 1], points) + np.sqrt(1 - 0.95**2) * rng.normal(size=points)


def student_t(rng: np.random.Generator, points: int) -> np.ndarray:
    """Three degrees of freedom, of variance 3."""
    return rng.standard_t(3, size=points)


def missed_noise(rng: np.random.Generator, points: int) -> Draw:
    """The noise depends on both inputs, its prediction on the second."""
    x, mean, std, _ = truth(rng, points)
    other = np.exp(0.7 * x[:, 0])
    targets = mean + std * other * rng.normal(size=points)
    log_variance = 2 * np.log(std) + np.log(np.mean(other**2))
    return _draw(mean, log_variance, targets, x)


def placeholders(value: float, share: float) -> _Made:
    """Missing targets that a file writes as a number."""

    def draw(rng: np.random.Generator, points: int) -> Draw:
        x, mean, std, targets = truth(rng, points)
        targets = np.where(rng.random(points) < share, value, 10 + targets)
        return _draw(10 + mean, 2 * np.log(std), targets, x)

    return draw


def _network(params: dict[str, Array], x: Array) -> Gaussian:
    hidden = jnp.tanh(x @ params["first"] + params["first_bias"])
    hidden = jnp.tanh(hidden @ params["second"] + params["second_bias"])
    mean, log_variance = jnp.moveaxis(hidden @ params["head"] + params["bias"], -1, 0)
    return Gaussian(mean, log_variance)


def _line(params: dict[str, Array], x: Array) -> Gaussian:
    mean, log_variance = jnp.moveaxis(x @ params["first"][:, :2] + params["bias"], -1, 0)
    return Gaussian(mean, log_variance)


@functools.partial(jax.jit, static_argnames=("predict", "steps", "rate"))
def _train(
    predict: Callable[[dict[str, Array], Array], Gaussian],
    key: Array,
    x: Array,
    y: Array,
    *,
    steps: int,
    rate: float,
) -> dict[str, Array]:
    keys = jax.random.split(key, 4)
    params = {
        "first": jax.random.normal(keys[0], (2, 32)) / jnp.sqrt(2),
        "first_bias": jnp.zeros((1, 32)),
        "second": jax.random.normal(keys[1], (32, 32)) / jnp.sqrt(32),
        "second_bias": jnp.zeros((1, 32)),
        "head": 0.1 * jax.random.normal(keys[2], (32, 2)) / jnp.sqrt(32),
        "bias": jnp.zeros((1, 2)),
    }
    optimizer = optax.adam(optax.cosine_decay_schedule(rate, steps))

    def step(
        carry: tuple[dict[str, Array], optax.OptState], key: Array
    ) -> tuple[tuple[dict[str, Array], optax.OptState], None]:
        params, state = carry
        rows = jax.random.randint(key, (64,), 0, len(x))
        gradient = jax.grad(lambda p: predict(p, x[rows]).nll(y[rows]).mean())(params)
        updates, state = optimizer.update(gradient, state)
        return (optax.apply_updates(params, updates), state), None

    keys = jax.random.split(keys[3], steps)
    return jax.lax.scan(step, (params, optimizer.init(params)), keys)[0][0]


def trained(
    *,
    rows: int = 600,
    steps: int = 1500,
    rate: float = 0.01,
    linear: bool = False,
    leaked: bool = False,
    shuffled: bool = False,
    trained_inputs: Callable[[np.ndarray], np.ndarray] = lambda x: x,
    new_inputs: Callable[[np.ndarray], np.ndarray] = lambda x: x,
    units: Callable[[np.ndarray], np.ndarray] = lambda y: y,
) -> _Made:
    """A network, or a line, that was trained as described and predicts new rows, or leaked ones."""
    predict = _line if linear else _network

    def draw(rng: np.random.Generator, points: int) -> Draw:
        x, _, _, y = truth(rng, rows)
        held_out_x, _, _, held_out_y = truth(rng, points)
        if leaked:
            held_out_x, held_out_y = x, y
        seen = _single(units(rng.permutation(y) if shuffled else y))
        key = jax.random.key(int(rng.integers(2**31)))
        inputs = _single(trained_inputs(x))
        params = _train(predict, key, inputs, seen, steps=steps, rate=rate)
        shown = _single(new_inputs(held_out_x))
        return predict(params, shown), _single(units(held_out_y)), shown

    return draw
