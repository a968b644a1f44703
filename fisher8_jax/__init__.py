"""Fisher8 for JAX: networks that predict a mean and an honest uncertainty.

The method and what most training steps need are here; the rest lives in subpackages, reached as
`fisher8_jax.families`, `fisher8_jax.metrics` and so on. Those that import more than JAX and Optax
are imported when they are first asked for; `plots` and `estimator` then say which extra to
install if a package is missing.
"""

import importlib as _importlib
import importlib.metadata as _metadata
import importlib.util as _util
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING as _TYPE_CHECKING

from fisher8_jax import calibration as calibration
from fisher8_jax import curvature as curvature
from fisher8_jax import diagnostics as diagnostics
from fisher8_jax import families as families
from fisher8_jax import losses as losses
from fisher8_jax import metrics as metrics
from fisher8_jax import optimizers as optimizers
from fisher8_jax._fisher8 import fisher8 as fisher8
from fisher8_jax._fisher8 import fisher8_nll as fisher8_nll
from fisher8_jax._microbatches import microbatched_value_and_grad as microbatched_value_and_grad
from fisher8_jax.curvature import network_curvature as network_curvature
from fisher8_jax.curvature import network_gradient as network_gradient
from fisher8_jax.diagnostics import doctor as doctor
from fisher8_jax.families import Family as Family
from fisher8_jax.families import Gaussian as Gaussian
from fisher8_jax.metrics import evaluate as evaluate
from fisher8_jax.optimizers import fisher8_optimizer as fisher8_optimizer
from fisher8_jax.optimizers import network_optimizer as network_optimizer
from fisher8_jax.optimizers import scale_by_kl_radius as scale_by_kl_radius

if _TYPE_CHECKING:
    from fisher8_jax import artifacts as artifacts
    from fisher8_jax import ensembles as ensembles
    from fisher8_jax import estimator as estimator
    from fisher8_jax import heads as heads
    from fisher8_jax import plots as plots
    from fisher8_jax import posterior as posterior
    from fisher8_jax import training as training

__version__ = _metadata.version("fisher8_jax")

# Subpackages that are imported on first use, and the optional package that each needs.
_LAZY = {
    "artifacts": None,
    "ensembles": None,
    "estimator": "sklearn",
    "heads": None,
    "plots": "matplotlib",
    "posterior": None,
    "training": None,
}


def __getattr__(name: str) -> _ModuleType:
    if name in _LAZY:
        return _importlib.import_module(f"fisher8_jax.{name}")
    raise AttributeError(f"module 'fisher8_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    # A subpackage whose requirement is missing is not listed: `help` and other tools that walk over
    # `dir` would fail on it.
    lazy = {name for name, needs in _LAZY.items() if not needs or _util.find_spec(needs)}
    return sorted({*globals(), *lazy})
