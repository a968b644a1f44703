"""Arrays of fewer axes beside arrays of more."""

from typing import TypeVar

import numpy as np
from jax import Array

SomeArray = TypeVar("SomeArray", Array, np.ndarray)


def append_axes(x: SomeArray, ndim: int) -> SomeArray:
    """`x` with axes of length 1 appended, `ndim` in all: its own axes meet the first ones.

    Example:
        >>> import numpy as np
        >>> append_axes(np.ones(3), 4).shape
        (3, 1, 1, 1)
    """
    return x.reshape(x.shape + (1,) * (ndim - x.ndim))
