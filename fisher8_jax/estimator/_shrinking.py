"""The members' variances without what their disagreement would count a second time.

A member stops where its held-out NLL is lowest, so its variance covers its own errors on new rows,
and with them what it and the other members disagree about. The variance of a mixture is the mean
of the members' variances plus their disagreement: it has that part twice, and intervals are too
wide. All variances are therefore multiplied by one factor, such that on average over the table the
mixture is as wide as its members were. That needs no targets, so it cannot be overfitted, and far
from the data, where the members part, the prediction still widens.
"""

import chex
import numpy as np

from fisher8_jax.ensembles import take_member
from fisher8_jax.estimator._epistemic import (
    MOST_ROWS,
    Knowledge,
    learn_knowledge,
    predict_tangents,
)
from fisher8_jax.estimator._estimator_checks import as_targets
from fisher8_jax.estimator._network import DenseNetwork
from fisher8_jax.estimator._prediction import in_blocks, predict_member
from fisher8_jax.estimator._training import Rows
from fisher8_jax.families import Family

# This many rows, evenly spaced, tell the factor; it is never smaller than the second number.
_MOST_ROWS, _SMALLEST = 2000, 0.3


def variance_factor(
    network: DenseNetwork,
    likelihood: type[Family],
    params: chex.ArrayTree,
    rows: Rows,
) -> np.ndarray:
    """One factor for each target; 1 for one member and where there is no `variance_field`.

    Args:
        network: of all members.
        likelihood: what they predict.
        params: members first.
        rows: of the table.
    """
    if likelihood.variance_field is None or len(params[-1]["bias"]) < 2:
        return np.ones(network.target_shape)
    chosen = slice(None, None, -(-len(rows.inputs) // _MOST_ROWS))
    moments = [
        in_blocks(predict_member, network, take_member(params, member), rows.inputs[chosen])
        for member in range(len(params[-1]["bias"]))
    ]
    means, variances = (np.stack(column) for column in zip(*moments, strict=True))
    noise, disagreement = variances.mean(axis=0), means.var(axis=0)
    # A row on which the members have nothing in common must not speak for all others.
    ratios = np.minimum(disagreement, noise) / np.maximum(noise, np.finfo(np.float32).tiny)
    return np.maximum(1 - np.average(ratios, weights=rows.weights[chosen], axis=0), _SMALLEST)


def scale_variances(
    network: DenseNetwork, likelihood: type[Family], params: chex.ArrayTree, factor: np.ndarray
) -> chex.ArrayTree:
    """Members whose variances are multiplied by `factor`, one for each target."""
    if likelihood.variance_field is None or np.all(factor == 1):
        return params
    name, slope = likelihood.variance_field
    return network.shift_output(params, name, slope * np.log(factor))


def know(network: DenseNetwork, params: chex.ArrayTree, rows: Rows) -> tuple[Knowledge, np.ndarray]:
    """What one member does not know, and the posterior variance of rows that are left out.

    Args:
        network: of all members.
        params: of one member, with its own variances.
        rows: of the table.
    """
    step = -(-len(rows.inputs) // MOST_ROWS)
    inputs, is_present = rows.inputs[::step], rows.where[::step]
    found = in_blocks(predict_tangents, network, params, inputs)
    weights = is_present * as_targets(rows.weights[::step], is_present)
    weights = len(rows.inputs) / len(inputs) * weights.reshape(len(inputs), -1)
    return learn_knowledge(found, inputs, weights)
