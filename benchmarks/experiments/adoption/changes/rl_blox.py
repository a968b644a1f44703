"""rl-blox: the `gaussian_nll` of its `gaussian_ensemble_loss`; each member has its own norms."""

import jax
from rl_blox.blox import probabilistic_ensemble

from fisher8_jax import Gaussian


def apply(loss):
    probabilistic_ensemble.gaussian_nll = lambda mean, log_var, targets: jax.vmap(loss)(
        Gaussian(mean, log_var), targets
    ).mean()
