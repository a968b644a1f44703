"""The methods that the estimator tries; the NLL of held-out rows chooses between them.

Methods of the same structure share one compiled program.
"""

from typing import Any, NamedTuple

import numpy as np

from fisher8_jax.estimator._estimator_checks import from_rows_on
from fisher8_jax.training import (
    KLRadius,
    LearningRate,
    LossGradient,
    Method,
    NetworkNaturalGradient,
    OutputNaturalGradient,
)


class Recipe(NamedTuple):
    """A method, and whether its networks see numbers in bins as well, see `_pieces`."""

    method: Method
    has_bins: bool = True

    def __str__(self) -> str:
        return f"{self.method}{'' if self.has_bins else ', no bins'}"


_NETWORK = Method(NetworkNaturalGradient(damping=1.0), KLRadius(1.0))
_FISHER8 = Method(OutputNaturalGradient(), LearningRate(0.01))


def _adam(rate: float) -> Method:
    return Method(LossGradient("nll"), LearningRate(rate))


# What 'auto' tries, from a number of rows on. Few rows are learned by one program alone: compiling
# a second one would cost more than the training. On many rows a batch sees little of the curvature:
# the cheap steps of Adam are as good. There Fisher8 with Adam saves the data with almost no noise.
AUTOMATIC: dict[int, tuple[Recipe, ...]] = {
    0: (Recipe(_NETWORK), Recipe(_NETWORK, has_bins=False)),
    600: (Recipe(_NETWORK), Recipe(_NETWORK, has_bins=False), Recipe(_FISHER8)),
    4000: (
        Recipe(_adam(0.01)),
        Recipe(_FISHER8, has_bins=False),
        Recipe(_adam(0.003), has_bins=False),
    ),
}


def check_methods(methods: Any, rows: int, bins: Any = "auto") -> tuple[Recipe, ...]:
    """What to try; 'auto' depends on the number of rows."""
    found = _check_methods(methods, rows)
    if isinstance(bins, str) and bins == "auto":
        return found
    if not isinstance(bins, bool | np.bool_):
        raise ValueError(f"`bins` must be True, False or 'auto', got {bins!r}.")
    return tuple(dict.fromkeys(one._replace(has_bins=bool(bins)) for one in found))


def _check_methods(methods: Any, rows: int) -> tuple[Recipe, ...]:
    if isinstance(methods, str) and methods == "auto":
        return from_rows_on(AUTOMATIC, rows)
    found = (methods,) if isinstance(methods, Method) else methods
    is_sequence = isinstance(found, list | tuple) and len(found) > 0
    if not is_sequence or not all(isinstance(method, Method) for method in found):
        raise ValueError(
            "`methods` must be 'auto', a `fisher8_jax.training.Method` or a sequence of them, got "
            f"{methods!r}."
        )
    return tuple(map(Recipe, found))
