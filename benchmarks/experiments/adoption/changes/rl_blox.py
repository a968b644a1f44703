"""rl-blox: the `gaussian_nll` inside its `gaussian_ensemble_loss`; members have norms of their own."""

import jax
from rl_blox.blox import probabilistic_ensemble

from fisher8_jax import Gaussian


def apply(loss):
    probabilistic_ensemble.gaussian_nll = lambda mean, log_var, targets: jax.vmap(loss)(
        Gaussian(mean, log_var), targets
    ).mean()
