"""The methods that the estimator tries; the NLL of held-out rows chooses between them.

Methods of the same structure share one compiled program.
"""

from typing import Any

from fisher8_jax.estimator._estimator_checks import from_rows_on
from fisher8_jax.training import (
    KLRadius,
    LearningRate,
    LossGradient,
    Method,
    NetworkNaturalGradient,
    OutputNaturalGradient,
)


def _network(max_kl: float, damping: float) -> Method:
    return Method(NetworkNaturalGradient(damping=damping), KLRadius(max_kl))


def _adam(rate: float) -> Method:
    return Method(LossGradient("nll"), LearningRate(rate))


# What 'auto' tries, from a number of rows on. Few rows are learned by one program alone: compiling
# a second one would cost more than the training. On many rows a batch sees little of the curvature:
# the cheap steps of Adam are as good as most expensive ones, and long expensive ones do harm. There
# Fisher8 with Adam saves the data with almost no noise, on which the plain NLL fails.
_CHEAP = (
    Method(OutputNaturalGradient(), LearningRate(0.01)),
    _adam(0.003),
    _adam(0.01),
    _adam(0.015),
)
AUTOMATIC: dict[int, tuple[Method, ...]] = {
    0: (_network(0.1, 0.1), _network(0.3, 1.0), _network(1.0, 1.0)),
    600: (_network(0.3, 1.0), _network(1.0, 1.0), _adam(0.003), _adam(0.01), _adam(0.03)),
    4000: (_network(0.1, 1.0), *_CHEAP),
    16_000: _CHEAP,
}


def check_methods(methods: Any, rows: int) -> tuple[Method, ...]:
    """The methods to try; 'auto' depends on the number of rows."""
    if isinstance(methods, str) and methods == "auto":
        return from_rows_on(AUTOMATIC, rows)
    found = (methods,) if isinstance(methods, Method) else methods
    is_sequence = isinstance(found, list | tuple) and len(found) > 0
    if not is_sequence or not all(isinstance(method, Method) for method in found):
        raise ValueError(
            "`methods` must be 'auto', a `fisher8_jax.training.Method` or a sequence of them, got "
            f"{methods!r}."
        )
    return tuple(found)
