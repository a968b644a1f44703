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
from benchmarks.experiments.dense.jobs import CHOSEN, crops, normalised, objective_of, scores_in
from benchmarks.experiments.dense.network import UNet
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.step import Batch, Leaves, Run, Task, update
from benchmarks.machinery.store import Store
from benchmarks.machinery.workers import Report
from fisher8_jax import Gaussian, network_gradient, network_optimizer
from fisher8_jax.curvature import ConjugateGradients
from fisher8_jax.training import nnx_network

RATES = {"adam_nll": (1e-3, 4e-3), "adam_fisher8": (1e-3, 4e-3), "network": (1.0,)}
_COST_STEPS, _COST_ROUNDS = 2, 3

Step = Callable[[Leaves, Array, Array, Array], Leaves]


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
    apply, _, variables = model
    targets = normalised(scene)[0]
    image, labels, mask = map(jnp.asarray, (scene.inputs, targets, scene.train))
    if method == "network":
        chosen = objective_of(CHOSEN["nll"])
        natural = functools.partial(_natural, apply, variables)
        task = Task(apply, chosen, lambda *_: network_optimizer(steps), natural=natural)
    else:
        chosen = objective_of(CHOSEN["nll" if method == "adam_nll" else "fisher8"])
        decay = optax.cosine_decay_schedule(1.0, steps)
        task = Task(apply, chosen, lambda rate, _: optax.adam(lambda count: rate * decay(count)))

    @jax.jit
    def step(leaves: Leaves, key: Array, rate: Array, count: Array) -> Leaves:
        inputs, targets, where = crops(key, image, labels, mask)
        batch = Batch(inputs, targets, where=where)
        return update(task, leaves, Run(rate, key), batch, jnp.ones(()), count)[0]

    return step


def _natural(
    apply: Any, variables: Any, params: Any, batch: Batch, settings: Any, state: Any
) -> Any:
    def predict_one(params: Any, example: Array) -> Any:
        return jax.tree.map(lambda leaf: leaf[0], apply(params, variables, example[None])[0])

    return network_gradient(
        predict_one,
        params,
        batch.inputs,
        batch.targets,
        damping=SCENE.damping,
        where=batch.where,
        solver=ConjugateGradients(max_iterations=SCENE.iterations),
    )


def _first(model: Any, method: str, steps: int) -> Leaves:
    _, params, variables = model
    rule = network_optimizer(steps) if method == "network" else optax.adam(lambda count: 1.0)
    return Leaves(params, variables, rule.init(params), ())


def _costs(scene: Scene, model: Any) -> dict[str, float]:
    """Median processor time of a step of every method, in turn."""
    key, count = jax.random.key(0), jnp.zeros((), jnp.int32)
    programs = {}
    for method in RATES:
        step, leaves = _make_step(scene, model, method, 1000), _first(model, method, 1000)
        programs[method] = functools.partial(step, leaves, key, jnp.asarray(1e-4), count)
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
    step, leaves = _make_step(scene, model, method, steps), _first(model, method, steps)
    keys = jax.random.split(jax.random.key(SCENE.seed), steps)
    for index in range(steps):
        leaves = step(leaves, keys[index], jnp.asarray(rate), jnp.asarray(index))
    _, shift, scale = normalised(scene)
    dist = model[0](leaves.params, leaves.variables, jnp.asarray(scene.inputs)[None])[0]
    dist = jax.tree.map(lambda leaf: leaf[0], dist)
    assert isinstance(dist, Gaussian)
    dist = dist.unscale(jnp.asarray(shift), jnp.asarray(scale))
    parts = {"validation": scene.validation, "test": scene.test}
    return {"rate": rate} | {name: scores_in(dist, scene, where) for name, where in parts.items()}
