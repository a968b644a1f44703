"""The examples of a training or of one step."""

from typing import NamedTuple, TypeAlias

import chex
import jax
import numpy as np

from fisher8_jax._internal.checks import check_host_array

Params: TypeAlias = chex.ArrayTree
Variables: TypeAlias = chex.ArrayTree
Metrics: TypeAlias = dict[str, jax.Array]


class Data(NamedTuple):
    """Arrays with the examples first: those of a training, or the batch of one step.

    Args:
        inputs: an array, or a tree of arrays if the network takes several.
        targets: observed values; nan only where `where` is False.
        where: boolean, False for missing targets and padding; the shape of the predictions.
        weights: the importance of each target; the shape of the predictions.

    Example:
        >>> import numpy as np
        >>> from fisher8_jax.training import Data
        >>> targets = np.array([1.0, np.nan, 3.0])
        >>> Data(np.ones((3, 2)), targets, where=~np.isnan(targets)).rows
        3
    """

    inputs: chex.ArrayTree
    targets: chex.Array
    where: chex.Array | None = None
    weights: chex.Array | None = None

    @property
    def rows(self) -> int:
        """The number of examples."""
        return len(self.targets)


def check_data(name: str, data: tuple) -> Data:
    """Data as NumPy arrays of numbers, all of the same length; masked arrays are refused."""
    parts = Data(*data)._asdict().items()
    found = Data(
        *(
            jax.tree.map(lambda leaf, part=part: check_host_array(part, leaf), tree)
            for part, tree in parts
        )
    )
    lengths = {len(leaf) for leaf in jax.tree.leaves(found)}
    if len(lengths) != 1:
        raise ValueError(
            f"All arrays of `{name}` must have the same number of examples, got "
            f"{', '.join(map(str, sorted(lengths)))}."
        )
    targets = np.asarray(found.targets)
    number = int(np.isnan(targets).sum()) if np.issubdtype(targets.dtype, np.floating) else 0
    if number and found.where is None:
        raise ValueError(
            f"`targets` of `{name}` must not be nan, got {number} that are. Mask missing ones: "
            "`Data(inputs, targets, where=~np.isnan(targets))`."
        )
    return found
