"""Why the change helps or not: its parts one by one, in the program's own network and data.

Fisher8 changes a gradient in two ways (natural at the outputs, unit norms). Around it: the pull of
the log-variance, networks of their own for mean and log-variance, a decay of the rate, another
optimiser. Each variant changes one thing; all have the same rates and the same batches.
"""

import functools
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax

from benchmarks.experiments.adoption.loops import Network
from benchmarks.experiments.adoption.plan import CAUSE_RATES, LOOKS
from fisher8_jax import Gaussian


class Variant(NamedTuple):
    """One way to train.

    Args:
        natural: the natural gradient at the outputs, otherwise that of the NLL.
        unit_norms: both parts divided by their norms over the batch.
        pull: a factor of the log-variance's part.
        is_shared: one network for both outputs, otherwise one for each.
        optimizer: "adam", "decayed" (Adam, rate to 0), "clipped" (the same on gradients whose
            arrays are clipped to a norm of 1.5, as in bayesflow) or "normalised" (no scaling of its
            own: steps of the length of the rate, with momentum, rate to 0).
    """

    natural: bool = True
    unit_norms: bool = True
    pull: float = 1.0
    is_shared: bool = True
    optimizer: str = "adam"


_NLL = Variant(natural=False, unit_norms=False)
_TENTH = Variant(pull=0.1)
VARIANTS = {
    "NLL": _NLL,
    "unit norms only": Variant(natural=False),
    "natural only": Variant(unit_norms=False),
    "Fisher8": Variant(),
    "NLL, tenth": _NLL._replace(pull=0.1),
    "Fisher8, tenth": _TENTH,
    "NLL, own networks": _NLL._replace(is_shared=False),
    "Fisher8, own networks": Variant(is_shared=False),
    "Fisher8, tenth, own networks": _TENTH._replace(is_shared=False),
    "NLL, rate to 0": _NLL._replace(optimizer="decayed"),
    "Fisher8, rate to 0": Variant(optimizer="decayed"),
    "Fisher8, tenth, rate to 0": _TENTH._replace(optimizer="decayed"),
    "NLL, clipped, rate to 0": _NLL._replace(optimizer="clipped"),
    "Fisher8, clipped, rate to 0": Variant(optimizer="clipped"),
    "Fisher8, tenth, clipped, rate to 0": _TENTH._replace(optimizer="clipped"),
    "NLL, normalised SGD": _NLL._replace(optimizer="normalised"),
    "Fisher8, normalised SGD": Variant(optimizer="normalised"),
    "Fisher8, tenth, normalised SGD": _TENTH._replace(optimizer="normalised"),
}


class Program(Protocol):
    """What the study needs of a program: its network and data, without its loop."""

    network: Network
    axis: int | tuple[int, ...]
    has_members: bool
    """Whether the first axis of the parameters counts trainings of their own."""

    def start(self, seed: int) -> Any:
        """First parameters."""

    def rows(self, seed: int) -> dict[str, Any]:
        """Data by "train", which `network.draw` reads, "validation" and "test"."""

    def predict(self, params: Any, inputs: Any) -> Gaussian:
        """Of many inputs, and of all members."""

    def score(self, dist: Gaussian, targets: jax.Array) -> jax.Array:
        """The mean NLL."""


def scores(program: Program, name: str, job: dict[str, Any]) -> dict[str, list]:
    """NLL of validation and test of one variant, (seeds, rates, evaluations)."""
    variant = VARIANTS[name]
    one = functools.partial(_train, program, variant, job["steps"])
    train = jax.jit(jax.vmap(one, (None, None, None, 0)))
    found, rates = [], jnp.array(CAUSE_RATES)
    for seed in range(job["seeds"]):
        params = [program.start(seed)]
        if not variant.is_shared:
            params.append(program.start(1000 + seed))
        found.append(train(params, program.rows(seed), jax.random.key(seed), rates))
    return {
        part: [[[_number(x) for x in row] for row in one[part].tolist()] for one in found]
        for part in found[0]
    }


def _number(value: float) -> float | None:
    return round(value, 5) if jnp.isfinite(value) else None


def _train(program, variant, steps, params, rows, key, rate):
    optimizer = _optimizer(variant.optimizer, rate, steps)
    assert steps % LOOKS == 0, "evaluations are equally far apart"

    def advance(params, state, key):
        def step(carry, key):
            params, state = carry
            inputs, targets = program.network.draw(key, rows["train"])
            gradient = _gradient(program, variant, params, inputs, targets)
            updates, state = optimizer.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, state), jax.random.split(key, steps // LOOKS))[0]

    init: Any = optimizer.init
    train: Any = advance
    if program.has_members:
        init, train = jax.vmap(init), jax.vmap(advance, (0, 0, None))

    def look(carry, key):
        params, state = train(*carry, key)
        found = {}
        for part in ("validation", "test"):
            inputs, targets = rows[part]
            dists = [program.predict(one, inputs) for one in params]
            found[part] = program.score(_joined(dists), targets)
        return (params, state), found

    return jax.lax.scan(look, (params, init(params)), jax.random.split(key, LOOKS))[1]


def _joined(dists: list[Gaussian]) -> Gaussian:
    """The mean of the first network, the log-variance of the last."""
    return Gaussian(dists[0].mean, dists[-1].log_variance)


def _gradient(program, variant, params, inputs, targets):
    def predict(params):
        one = jax.vmap(program.network.predict_one, (None, 0))
        return _joined([one(some, inputs) for some in params])

    dist, back = jax.vjp(predict, params)
    cotangent = jax.grad(lambda dist: dist.nll(targets).mean())(dist)
    if variant.natural:
        cotangent = dist.natural(cotangent)
    if variant.unit_norms:
        cotangent = jax.tree.map(functools.partial(_unit, axis=program.axis), cotangent)
    weaker = variant.pull * cotangent.log_variance
    return back(Gaussian(cotangent.mean, weaker))[0]


def _unit(part, axis):
    norm = jnp.sqrt(jnp.sum(jnp.square(part), axis=axis, keepdims=True))
    return part / jnp.maximum(norm, 1e-12)


def _optimizer(name, rate, steps):
    def decayed(count):
        return rate * (1 - count / steps)

    if name == "adam":
        return optax.adam(rate)
    if name == "decayed":
        return optax.adam(decayed)
    if name == "clipped":
        clip = optax.stateless(lambda g, _: jax.tree.map(_clipped, g))
        return optax.chain(clip, optax.adam(decayed))
    length = optax.stateless(lambda g, _: jax.tree.map(lambda leaf: leaf / _norm(g), g))
    return optax.chain(length, optax.trace(0.9), optax.scale_by_learning_rate(decayed))


def _clipped(array):
    return array * jnp.minimum(1, 1.5 / _norm(array))


def _norm(gradient):
    return jnp.maximum(optax.tree.norm(gradient), 1e-12)
