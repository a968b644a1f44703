"""The recovery problems: one smooth truth per family, parameters that depend on two inputs.

Every raw parameter is `centre + amplitude * sin(frequency . x + phase)`; frequencies and phases
come from one seed. The network starts at `start`, which the user of a family would choose as well:
zero, except where a symmetry must be broken.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fisher8_jax import families
from fisher8_jax.families import Family

Wave = tuple[float, float]  # centre and amplitude


@dataclasses.dataclass(frozen=True)
class Problem:
    """A family, the waves its true parameters follow, and where the network starts."""

    name: str
    make: Callable[..., Family]
    waves: tuple[tuple[Wave, ...], ...]  # one tuple per field, one wave per parameter
    shapes: tuple[tuple[int, ...], ...]  # the parameter axes of every field
    start: tuple[float, ...] = ()

    @property
    def num_outputs(self) -> int:
        """How many numbers the network predicts per input."""
        return sum(len(field) for field in self.waves)

    def distribution(self, outputs: jax.Array) -> Family:
        """The predicted distribution from raw outputs of shape (..., num_outputs)."""
        edges = np.cumsum([0] + [len(field) for field in self.waves])
        parts = [
            outputs[..., a:b].reshape(*outputs.shape[:-1], *shape)
            for a, b, shape in zip(edges, edges[1:], self.shapes, strict=False)
        ]
        return self.make(*parts)

    def truth(self, inputs: jax.Array) -> Family:
        """The distribution that the data is drawn from."""
        waves = np.concatenate([np.array(field) for field in self.waves])
        rng = np.random.default_rng(11)
        frequency = rng.uniform(0.5, 1.2, (2, len(waves))) * rng.choice([-1, 1], (2, len(waves)))
        phase = rng.uniform(0, 2 * math.pi, len(waves))
        angle = inputs @ jnp.asarray(frequency, jnp.float32) + jnp.asarray(phase, jnp.float32)[None]
        centre, amplitude = jnp.asarray(waves.T, jnp.float32)[:, None]
        return self.distribution(centre + amplitude * jnp.sin(angle))


def _scalar(name: str, make: Callable[..., Family], *waves: Wave, **kwargs: Any) -> Problem:
    fields = tuple((wave,) for wave in waves)
    return Problem(name, make, fields, ((),) * len(waves), **kwargs)


def _gumbel() -> type[Family]:
    def log_density(y, location, log_scale):
        z = (y - location) * jnp.exp(-log_scale)
        return -log_scale - z - jnp.exp(-z)

    return families.declare_family(
        "Gumbel",
        parameters=("location", "log_scale"),
        log_density=log_density,
        quadrature=lambda location, log_scale: families.quadrature_nodes(
            "real", location, jnp.exp(log_scale), count=65
        ),
    )


PLACE, SCALE = (0.0, 2.0), (-1.0, 1.5)

PROBLEMS = {
    problem.name: problem
    for problem in (
        _scalar("Gaussian", families.Gaussian, PLACE, (-2.0, 3.0)),
        _scalar("Laplace", families.Laplace, PLACE, SCALE),
        _scalar("StudentT", families.StudentT, PLACE, SCALE),
        _scalar("StudentTLearnedDf", families.StudentTLearnedDf, PLACE, SCALE, (1.3, 0.5)),
        _scalar("LogNormal", families.LogNormal, PLACE, (-2.0, 2.0)),
        _scalar("Gamma", families.Gamma, PLACE, (1.0, 1.5)),
        _scalar("Weibull", families.Weibull, PLACE, (0.5, 0.8)),
        _scalar("Beta", families.Beta, (0.0, 1.5), (2.0, 1.5)),
        _scalar("Poisson", families.Poisson, (1.0, 2.0)),
        _scalar("NegativeBinomial", families.NegativeBinomial, (1.5, 1.0), (0.5, 1.0)),
        _scalar("ZeroInflatedPoisson", families.ZeroInflatedPoisson, (-0.5, 1.5), (1.0, 1.0)),
        _scalar("Bernoulli", families.Bernoulli, (0.0, 3.0)),
        Problem("Categorical", families.Categorical, (((0.0, 2.0),) * 4,), ((4,),)),
        _scalar("VonMises", families.VonMises, (0.0, 1.0), (1.5, 1.5)),
        Problem(
            "MultivariateGaussian",
            families.MultivariateGaussian,
            ((PLACE,) * 3, (SCALE,) * 3, ((0.0, 0.7),) * 3),
            ((3,), (3,), (3,)),
        ),
        Problem(
            "LowRankGaussian",
            families.LowRankGaussian,
            ((PLACE,) * 3, ((1.0, 0.5),) * 3, ((-2.0, 1.5),) * 3),
            ((3,), (3, 1), (3,)),
            start=(0.0,) * 3 + (0.5,) * 3 + (0.0,) * 3,
        ),
        Problem(
            "GaussianMixture",
            families.GaussianMixture,
            (((0.0, 1.0),) * 2, ((-1.5, 0.7), (1.5, 0.7)), ((-2.0, 1.0),) * 2),
            ((2,), (2,), (2,)),
            start=(0.0, 0.0, -0.5, 0.5, 0.0, 0.0),
        ),
        _scalar("declared Gumbel", _gumbel(), PLACE, SCALE),
    )
}
