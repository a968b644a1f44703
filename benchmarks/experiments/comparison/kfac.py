"""K-FAC on the problems of the comparison, in an environment of its own.

kfac-jax has no loss with a predicted variance. It needs none: its curvature is that of a squared
error of the whitened outputs, whose Fisher information is the identity, as that of the predicted
Gaussian is in these coordinates; value and gradient are those of the NLL. Learning rate, momentum
and damping are adapted by kfac-jax itself; the first damping is the best of three. Needs kfac-jax
with a JAX it works with (0.8 does, 0.10 does not), this checkout on the path, and the costs of
`python -m benchmarks comparison`:

    python -m benchmarks.experiments.comparison.kfac
"""

import argparse
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from benchmarks.experiments.comparison.jobs import draw_schedule, take_look, write_best
from benchmarks.experiments.comparison.plan import LOOKS, PROBLEMS, RATES, RunJob
from benchmarks.experiments.comparison.problems import Problem, load_problem
from benchmarks.experiments.curvature.training import Predict
from benchmarks.machinery.networks import Mlp
from benchmarks.machinery.store import DEFAULT_RESULTS, Store

INVERSES_EVERY = 5
WARM_UP = 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS))
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--results", type=Path, default=DEFAULT_RESULTS)
    args = parser.parse_args()
    for name in args.problems:
        run_problem(name, args.data_dir, args.results)


def run_problem(name: str, data: Path | None, results: Path) -> None:
    """As many steps as fit into the budget, with every first damping."""
    costs = Store(results).read(f"comparison/costs-{name}")
    assert costs is not None, "run `python -m benchmarks comparison` first"
    problem = load_problem(name, data)
    seconds = _cost(name, problem)
    steps = max(LOOKS, round(PROBLEMS[name].adam_steps * costs["adam_nll"][1] / seconds))
    job = RunJob(name, "kfac", steps, seconds, data, results)
    tried = [_train(name, problem, damping, steps) for damping in RATES["kfac"]]
    write_best(job, tried)
    print(name, "steps", steps, "seconds", seconds, [np.mean(t["nll"][-1]) for t in tried])


def make_optimizer(network: Mlp, damping: float) -> Any:
    """kfac-jax as it comes, with its adaptive rules."""
    import kfac_jax

    def loss(params: Any, batch: tuple[Array, Array]) -> Array:
        dist = Predict(network)(params, batch[0])
        scale = lax.stop_gradient(jnp.exp(-0.5 * dist.log_variance))
        whitened = jnp.stack([dist.mean * scale, dist.log_variance * np.sqrt(0.5)], -1)
        kfac_jax.register_squared_error_loss(whitened, weight=0.5)
        return dist.nll(batch[1]).mean()

    return kfac_jax.Optimizer(
        jax.value_and_grad(loss),
        l2_reg=0.0,
        use_adaptive_learning_rate=True,
        use_adaptive_momentum=True,
        use_adaptive_damping=True,
        initial_damping=damping,
        inverse_update_period=INVERSES_EVERY,
        num_burnin_steps=0,
        multi_device=False,
    )


def _cost(name: str, problem: Problem) -> float:
    """Median processor time of a step, called from Python as kfac-jax wants it."""
    taken = []
    looks = _steps(name, problem, 0, 1.0, WARM_UP + 20)
    for _ in range(WARM_UP):
        next(looks)
    for _ in range(20):
        began = time.process_time()
        jax.block_until_ready(next(looks))
        taken.append(time.process_time() - began)
    return float(np.mean(taken))


def _train(name: str, problem: Problem, damping: float, steps: int) -> dict[str, Any]:
    """Looks of all seeds, seeds last."""
    chunk = -(-steps // LOOKS)
    per_seed = []
    for seed in range(PROBLEMS[name].seeds):
        of_seed = [
            jax.tree.map(lambda leaf: leaf[None], params)
            for index, params in enumerate(_steps(name, problem, seed, damping, steps), 1)
            if index % chunk == 0 or index == steps
        ]
        alone = Problem(problem.network, *jax.tree.map(lambda x, s=seed: x[s : s + 1], problem[1:]))
        looks: dict[str, list[Any]] = {"held_out": [], "rmse": [], "nll": []}
        for params in of_seed:
            take_look(alone, params, looks)
        per_seed.append(looks)
    return {key: np.concatenate([looks[key] for looks in per_seed], 1) for key in per_seed[0]}


def _steps(name: str, problem: Problem, seed: int, damping: float, steps: int) -> Any:
    """The parameters after every step."""
    optimizer = make_optimizer(problem.network, damping)
    params = jax.tree.map(lambda leaf: jnp.array(leaf[seed]), problem.params)
    rows = np.asarray(draw_schedule(name, problem, steps).rows)[:, seed]
    inputs, targets = problem.inputs[seed], problem.targets[seed]
    key = jax.random.key_data(jax.random.key(seed))
    state = optimizer.init(params, key, (inputs[rows[0]], targets[rows[0]]))
    for step in range(steps):
        batch = (jnp.asarray(inputs[rows[step]]), jnp.asarray(targets[rows[step]]))
        params, state, *_ = optimizer.step(params, state, key, batch=batch, global_step_int=step)
        yield jax.tree.map(jnp.array, params)  # a copy, since the next step reuses the memory


if __name__ == "__main__":
    main()
