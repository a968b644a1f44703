"""The directions of several methods at the same place and batch, along one training."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from benchmarks.experiments.comparison.plan import ANGLE_SETTINGS, LOOKS, AngleJob
from benchmarks.experiments.comparison.problems import Problem, load_problem, load_table
from benchmarks.experiments.curvature.training import Predict
from benchmarks.machinery.networks import Mlp
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.rows import shuffled_rows
from benchmarks.machinery.seeds import generator
from benchmarks.machinery.store import Store
from benchmarks.machinery.workers import Report
from fisher8_jax import Gaussian, fisher8_nll, network_gradient


def run_angles(job: AngleJob, report: Report) -> None:
    """Follows Adam on Fisher8 gradients and writes down the cosines at every look."""
    setting = ANGLE_SETTINGS[job.problem]
    if job.table is not None:
        problem = load_table(job.table, setting.seeds)
    else:
        problem = load_problem(job.problem, job.data)
    follow = jax.jit(
        functools.partial(_follow, problem.network, setting.damping, setting.angle_rate)
    )
    batches = _batches(job, problem)
    every = setting.angle_steps // LOOKS
    looks = []
    for seed in range(setting.seeds):
        params = jax.tree.map(lambda leaf, s=seed: leaf[s], problem.params)
        states = _adam(setting.angle_rate).init(params), optax.contrib.muon(1.0).init(params)
        carry = params, *states
        for first in range(0, setting.angle_steps, every):
            rows = batches[seed][first : first + every]
            data = problem.inputs[seed][rows], problem.targets[seed][rows]
            carry, cosines = follow(carry, data)
            looks.append(cosines)
        report(1)
    shape = (setting.seeds, LOOKS)
    parameters, predictions = (
        np.reshape(np.stack([look[i] for look in looks]), (*shape, *looks[0][i].shape)).mean(0)
        for i in range(2)
    )
    result = {
        "steps": [(i + 1) * every for i in range(LOOKS)],
        "parameters": np.round(parameters, 4),
        "predictions": np.round(predictions, 4),
    }
    Store(job.results).write(
        job.cell, spec=job.spec, result=result, provenance=provenance(job.command)
    )


def _batches(job: AngleJob, problem: Problem) -> list[np.ndarray]:
    setting = ANGLE_SETTINGS[job.problem]
    return [
        shuffled_rows(
            generator("comparison", job.problem, seed, "angles"),
            problem.targets.shape[1],
            batch=setting.batch,
            steps=setting.angle_steps,
        )[0]
        for seed in range(setting.seeds)
    ]


def _adam(rate: float) -> optax.GradientTransformation:
    return optax.adam(rate)


def _follow(
    network: Mlp, damping: float, rate: float, carry: Any, data: tuple[Array, Array]
) -> tuple[Any, tuple[Array, Array]]:
    """Some steps of Adam; the cosines between all directions at the last of them."""
    predict, adam, muon = Predict(network), _adam(rate), optax.contrib.muon(1.0)

    def step(carry: Any, batch: tuple[Array, Array]) -> tuple[Any, Any]:
        params, adam_state, muon_state = carry
        inputs, targets = batch
        gradient = jax.grad(lambda p: fisher8_nll(predict(p, inputs), targets).mean())(params)
        by_adam, adam_state = adam.update(gradient, adam_state, params)
        by_muon, muon_state = muon.update(gradient, muon_state, params)
        moved = optax.apply_updates(params, by_adam)
        return (moved, adam_state, muon_state), (params, gradient, by_adam, by_muon)

    carry, seen = jax.lax.scan(step, carry, data)
    params, gradient, by_adam, by_muon = jax.tree.map(lambda leaf: leaf[-1], seen)
    inputs, targets = (leaf[-1] for leaf in data)
    plain = jax.grad(lambda p: predict(p, inputs).nll(targets).mean())(params)
    natural = network_gradient(predict, params, inputs, targets, damping=damping).gradient
    descents = [jax.tree.map(jnp.negative, tree) for tree in (plain, gradient, natural)]
    trees = [descents[0], descents[1], by_adam, by_muon, descents[2]]
    movements = [_movement(predict, params, inputs, tree) for tree in trees]
    flat = jnp.stack([ravel_pytree(tree)[0] for tree in trees])
    return carry, (_cosines(flat), _cosines(jnp.stack(movements)))


def _movement(predict: Predict, params: Any, inputs: Array, step: Any) -> Array:
    """How a step moves the batch's predictions, in coordinates where the Fisher metric is flat."""
    dist, tangent = jax.jvp(lambda p: predict(p, inputs), (params,), (step,))
    assert isinstance(dist, Gaussian)
    scaled = tangent.mean * jnp.exp(-0.5 * dist.log_variance)
    return jnp.concatenate([scaled, tangent.log_variance * np.sqrt(0.5)])


def _cosines(vectors: Array) -> Array:
    unit = vectors / jnp.linalg.norm(vectors, axis=1, keepdims=True)
    return unit @ unit.T
