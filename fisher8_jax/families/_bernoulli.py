"""The Bernoulli distribution: yes or no, by its logit."""

from typing import ClassVar, Self

import jax
import jax.numpy as jnp
from jax import Array

from fisher8_jax._internal.deviance import beta_deviance
from fisher8_jax._internal.numerics import Scaled
from fisher8_jax.families._contract import family
from fisher8_jax.families._diagonal import DiagonalFamily, Entry
from fisher8_jax.families._targets import safe_logit


@family
class Bernoulli(DiagonalFamily):
    """1 with probability `p = sigmoid(logit)`, else 0.

    In the coordinate `logit` the Fisher information and its inverse are

        F    = p (1 - p)
        F^-1 = (1 + exp(logit)) (1 + exp(-logit))

    so the natural gradient of the NLL is `1 + exp(logit)` for a target of 0 and
    `-(1 + exp(-logit))` for a target of 1: confident mistakes weigh most.

    Args:
        logit: predicted log-odds. Targets between 0 and 1 are taken as soft labels.

    Example:
        >>> import jax.numpy as jnp
        >>> Bernoulli(jnp.zeros(1)).nll(jnp.ones(1))
        Array([0.6931472], dtype=float32)

    Reference:
        McCullagh and Nelder (1989), Generalized Linear Models, chapter 4.
    """

    logit: Array

    support = "closed unit interval"
    starts: ClassVar = {"logit": safe_logit}

    @property
    def mean(self) -> Array:
        """`sigmoid(logit)`."""
        return jax.nn.sigmoid(self.logit)

    @property
    def variance(self) -> Array:
        """`p (1 - p)`."""
        return jax.nn.sigmoid(self.logit) * jax.nn.sigmoid(-self.logit)

    def nll(self, targets: Array, *, constant: bool = True) -> Array:
        """`softplus(logit) - targets * logit`; inf outside [0, 1]."""
        is_inside = (targets >= 0) & (targets <= 1)
        targets = jnp.where(is_inside, targets, 0)
        # Both terms are non-negative, so nothing cancels for confident predictions.
        mistake = (1 - targets) * jax.nn.softplus(self.logit)
        return jnp.where(is_inside, mistake + targets * jax.nn.softplus(-self.logit), jnp.inf)

    def fisher_diagonal(self) -> tuple[Entry, ...]:
        """`p (1 - p)`."""
        return (Entry(1.0, jax.nn.log_sigmoid(self.logit) + jax.nn.log_sigmoid(-self.logit)),)

    def natural_score(self, targets: Array) -> dict[str, Scaled]:
        """`(1 - targets)(1 + exp(logit)) - targets (1 + exp(-logit))`; nan outside [0, 1]."""
        targets = jnp.where((targets >= 0) & (targets <= 1), targets, jnp.nan)
        size = jnp.abs(self.logit)
        rest = jnp.exp(-size)
        up, down = rest + jnp.exp(self.logit - size), rest + jnp.exp(-self.logit - size)
        return {"logit": Scaled((1 - targets) * up - targets * down, size)}

    def kl(self, other: Self) -> Array:
        """`p (ln p - ln q) + (1 - p)(ln(1 - p) - ln(1 - q))`, as a sum of two positive terms."""
        p, q = self, other
        log_yes, log_no = (jax.nn.log_sigmoid(x) for x in (p.logit, -p.logit))
        return beta_deviance(log_yes, log_no, q.logit - p.logit)

    def cdf(self, targets: Array) -> Array:
        """0 below 0, `1 - p` from 0, 1 from 1."""
        step = jnp.where(targets < 1, jax.nn.sigmoid(-self.logit), 1)
        return jnp.where(targets < 0, 0, jnp.where(jnp.isnan(targets), jnp.nan, step))

    def quantile(self, probability: Array) -> Array:
        """1 where `probability` exceeds `1 - p`, else 0."""
        return (probability > jax.nn.sigmoid(-self.logit)).astype(self.logit.dtype)

    def draw(self, key: Array) -> Array:
        """Zeros and ones of the predictions' dtype."""
        return jax.random.bernoulli(key, self.mean).astype(self.logit.dtype)

    def crps(self, targets: Array) -> Array:
        """The Brier score `(p - targets)^2`, for targets 0 and 1."""
        # The chance of the other outcome, because 1 - p has lost what is left of it.
        missed = jnp.where(targets == 1, jax.nn.sigmoid(-self.logit), self.mean - targets)
        return jnp.square(missed)
