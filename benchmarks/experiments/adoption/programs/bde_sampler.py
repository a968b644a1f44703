"""sklearn-contrib-bde: its sampler after pre-training, by the number of warm-up steps.

The members that `bde.py` trains, at their evaluation with the best validation NLL, are the starts
of the chains. Sampler, prior, adaptation and its settings are the program's own.
"""

from typing import Any

import jax
import jax.numpy as jnp
from bde.bde import BdeRegressor
from bde.sampler import warmup as theirs
from bde.task import TaskType

from benchmarks.experiments.adoption.loops import mixture_nll, scores
from benchmarks.experiments.adoption.programs import bde
from fisher8_jax import Gaussian

WARM_UPS = (0, 50, 200)
DRAWS, THINNING = 300, 3


class Adopted:
    """One table and method of pre-training; see `train.py`."""

    def __init__(self, job: dict[str, Any]):
        adapt = theirs.mclmc_find_L_and_step_size
        theirs.mclmc_find_L_and_step_size = lambda *args, tick, **options: adapt(*args, **options)
        self.pretraining, self.looks = bde.Adopted(job), list(WARM_UPS)
        self.evaluate = jax.jit(self._evaluate)

    def run(self, rate: float | None, seed: int) -> dict[str, list]:
        """Scores of the mixture of all draws of all members, for every number of warm-up steps."""
        parts = self.pretraining.rows(seed)
        trained = self.pretraining.snapshots(rate, seed, parts)
        validation = [self.pretraining.evaluate(one, parts)["validation_nll"] for one in trained]
        start = trained[int(jnp.argmin(jnp.array(validation)))]
        before = self.evaluate(jax.tree.map(lambda leaf: leaf[:, None], start), parts)
        found = scores(
            lambda steps: self.evaluate(self._draws(start, seed, parts, steps), parts), self.looks
        )
        return {**found, "start_nll": [float(before["test_nll"])] * len(self.looks)}

    def _draws(self, start: Any, seed: int, parts: dict[str, Any], warm_up: int) -> Any:
        """Parameters (members, draws, ...), by the steps of its `fit` after the ensemble's."""
        model = BdeRegressor(seed=seed, warmup_steps=warm_up, n_samples=DRAWS, n_thinning=THINNING)
        model.task, model._resolved_step_size_init = TaskType.REGRESSION, model.lr
        builder = self.pretraining.builder(seed)
        builder.members = builder._deep_ensemble_creator(
            act_fn="relu", sizes=self.pretraining.sizes()
        )
        builder.params_e = start
        model._bde = builder
        log_posterior = model._build_log_post(*parts["all"], model._resolve_prior_family())
        positions, tuned = model._warmup_sampler(log_posterior)
        keys = model._generate_rng_keys(bde.MEMBERS)
        tuned = model._normalize_tuned_parameters(tuned, bde.MEMBERS)
        return model._draw_samples(log_posterior, keys, positions, *tuned)

    def _evaluate(self, draws, parts):
        x, y = parts["test"]
        dists = jax.vmap(self.pretraining.predict, (1, None))(draws, x)
        dists = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), dists)
        mean = dists.mean.mean(0)
        return {
            "test_nll": mixture_nll(Gaussian(dists.mean, dists.log_variance), y),
            "test_rmse": jnp.sqrt(jnp.mean((mean - y) ** 2)),
        }
