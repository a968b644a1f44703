"""The stereo pair at equal processor time: a prediction for every pixel, so no matrix is formed."""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import Array

from benchmarks.experiments.comparison.plan import SCENE, SceneJob
from benchmarks.experiments.dense.data import Scene, load_scene
from benchmarks.experiments.dense.jobs import CHOSEN, crops, loss_of, normalised, scores_in
from benchmarks.experiments.dense.network import UNet
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.store import Store
from benchmarks.machinery.workers import Report
from fisher8_jax import Gaussian
from fisher8_jax.curvature import ConjugateGradients
from fisher8_jax.training import (
    Data,
    LossGradient,
    Method,
    NetworkNaturalGradient,
    TrainingState,
    nnx_network,
)

RATES = {"adam_nll": (1e-3, 4e-3), "adam_fisher8": (1e-3, 4e-3), "network": (1.0,)}
_COST_STEPS, _COST_ROUNDS = 2, 3

Step = Callable[[TrainingState, Array, Array], TrainingState]


def run_scene(job: SceneJob, report: Report) -> None:
    """Measures the cost of a step, then trains every method for the same time."""
    scene = load_scene(SCENE.seed)
    model = nnx_network(UNet(scene.inputs.shape[-1], SCENE.width, rngs=nnx.Rngs(SCENE.seed)))
    seconds = _costs(scene, model)
    rows = []
    for method, rates in RATES.items():
        steps = max(1, round(SCENE.adam_steps * seconds["adam_nll"] / seconds[method]))
        tried = [_train(scene, model, method, steps, rate) for rate in rates]
        best = min(tried, key=lambda entry: entry["validation"]["nll"])
        rows.append({"method": method, "steps": steps, "seconds_per_step": seconds[method]} | best)
        report(1)
    Store(job.results).write(
        job.cell, spec=job.spec, result={"rows": rows}, provenance=provenance(job.command)
    )


def _make_step(scene: Scene, model: Any, method: str, steps: int) -> Step:
    """One compiled step on crops that a key draws."""
    targets = normalised(scene)[0]
    image, labels, mask = map(jnp.asarray, (scene.inputs, targets, scene.train))

    @jax.jit
    def step(state: TrainingState, key: Array, rate: Array) -> TrainingState:
        inputs, targets, where = crops(key, image, labels, mask)
        chosen, network = _method(method, rate, steps), _network_for(method, model)
        key = jax.random.fold_in(key, state.step)
        return chosen.update(network, state, Data(inputs, targets, where), key=key)[0]

    return step


def _method(method: str, rate: Array | float, steps: int) -> Method:
    if method == "network":
        solver = ConjugateGradients(max_iterations=SCENE.iterations)
        return Method(NetworkNaturalGradient(SCENE.damping, solver=solver))
    loss = loss_of(CHOSEN["nll" if method == "adam_nll" else "fisher8"])
    decay = optax.cosine_decay_schedule(1.0, steps)
    return Method(LossGradient(loss), optax.adam(lambda count: rate * decay(count)))


def _network_for(method: str, model: Any) -> Any:
    """The network; for the parameter-space gradient with its variables as they are."""
    apply, _, variables = model
    if method != "network":
        return apply
    return lambda params, inputs: apply(params, variables, inputs)[0]


def _first(model: Any, method: str, steps: int) -> TrainingState:
    _, params, variables = model
    kept = None if method == "network" else variables
    return _method(method, 1.0, steps).init(params, steps, kept)


def _costs(scene: Scene, model: Any) -> dict[str, float]:
    """Median processor time of a step of every method, in turn."""
    key = jax.random.key(0)
    programs = {}
    for method in RATES:
        step, state = _make_step(scene, model, method, 1000), _first(model, method, 1000)
        programs[method] = functools.partial(step, state, key, jnp.asarray(1e-4))
        jax.block_until_ready(programs[method]())
    taken: dict[str, list[float]] = {method: [] for method in RATES}
    for _ in range(_COST_ROUNDS):
        for method, program in programs.items():
            began = time.process_time()
            for _ in range(_COST_STEPS):
                jax.block_until_ready(program())
            taken[method].append((time.process_time() - began) / _COST_STEPS)
    return {method: float(np.median(values)) for method, values in taken.items()}


def _train(scene: Scene, model: Any, method: str, steps: int, rate: float) -> dict[str, Any]:
    step, state = _make_step(scene, model, method, steps), _first(model, method, steps)
    keys = jax.random.split(jax.random.key(SCENE.seed), steps)
    for index in range(steps):
        state = step(state, keys[index], jnp.asarray(rate))
    _, shift, scale = normalised(scene)
    variables = model[2] if method == "network" else state.variables
    dist = model[0](state.params, variables, jnp.asarray(scene.inputs)[None])[0]
    dist = jax.tree.map(lambda leaf: leaf[0], dist)
    assert isinstance(dist, Gaussian)
    dist = dist.unscale(jnp.asarray(shift), jnp.asarray(scale))
    parts = {"validation": scene.validation, "test": scene.test}
    return {"rate": rate} | {name: scores_in(dist, scene, where) for name, where in parts.items()}
