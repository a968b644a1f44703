"""What a fitted estimator must be made of, so that a wrong file fails when it is loaded.

Nothing here allocates by a number of the configuration: sizes are compared with those of the
arrays, which take no more than the length of the file.
"""

import itertools
import math
from typing import Any

import numpy as np

from fisher8_jax.artifacts import ArtifactError
from fisher8_jax.estimator._columns import Encoder
from fisher8_jax.estimator._epistemic import MOST_ANCHORS, Knowledge
from fisher8_jax.estimator._estimator_checks import check_hidden
from fisher8_jax.estimator._families import LIKELIHOODS
from fisher8_jax.estimator._network import link_of
from fisher8_jax.estimator._widths import Calibration


def check_restored(estimator: Any) -> None:
    """Raises `ArtifactError` unless everything fits together: encoder, layers, units, names."""
    _expect("family", estimator.family_, tuple(LIKELIHOODS))
    hidden = check_hidden(estimator.hidden_layer_sizes)
    shape = estimator.target_shape_
    if not all(type(size) is int and size > 0 for size in shape) or len(shape) > 1:
        raise ArtifactError(f"the shape of a target is {shape}, not that of a number or a vector.")
    widths = _check_columns(estimator), *hidden, _outputs(estimator.family_, shape)
    members = _check_layers(estimator.params_, widths)
    reference = estimator.reference_params_
    _check_layers([{name: leaf[None] for name, leaf in one.items()} for one in reference], widths)
    _check_array("scaler/shift", estimator.scaler_.shift, shape)
    _check_array("scaler/scale", estimator.scaler_.scale, shape)
    _check_positive("scaler/scale", estimator.scaler_.scale)
    _check_calibration(estimator.calibration_, math.prod(shape))
    _check_knowledge(estimator, widths[0], math.prod(shape))
    held_out = np.asarray(estimator.held_out_nll_)
    if held_out.shape != (members,) or held_out.dtype.kind != "f":
        raise ArtifactError(f"held_out_nll is {_form(held_out)}, there are {members} members.")
    if type(estimator.n_iter_) is not int:
        raise ArtifactError(f"n_iter is {estimator.n_iter_!r}, not an integer.")


def _check_knowledge(estimator: Any, features: int, targets: int) -> None:
    shapes = Knowledge(
        anchors=(targets, MOST_ANCHORS, features),
        root=(targets, MOST_ANCHORS, MOST_ANCHORS),
        scale=(targets,),
        level=(targets,),
    )
    for name, shape in shapes._asdict().items():
        array = getattr(estimator.knowledge_, name)
        _check_array(f"knowledge/{name}", array, shape, np.float32)
    known = np.asarray(estimator.known_variance_)
    if known.ndim != 2 or len(known) != targets or known.dtype != np.float32:
        raise ArtifactError(f"known_variance is {_form(known)}, there are {targets} targets.")


def _check_calibration(calibration: Calibration, targets: int) -> None:
    parts = len(np.atleast_1d(calibration.tails))
    shapes = Calibration((targets,), (targets,), (max(parts, 1), targets), (targets,))
    for name, shape in shapes._asdict().items():
        array = getattr(calibration, name)
        _check_array(f"calibration/{name}", array, shape, np.float32)
        if name in ("factor", "tails"):
            _check_positive(f"calibration/{name}", array)


def _check_positive(name: str, array: Any) -> None:
    if not np.all(np.asarray(array) > 0):
        raise ArtifactError(f"{name} is not positive.")


def _check_columns(estimator: Any) -> int:
    """The width of an encoded row, found by encoding one."""
    encoder: Encoder = estimator.encoder_
    count, names = estimator.n_features_in_, getattr(estimator, "feature_names_in_", None)
    if type(count) is not int or len(encoder.kinds) != count:
        raise ArtifactError(f"{len(encoder.kinds)} columns are encoded, and n_features is {count}.")
    if names is not None and (
        len(names) != count or not all(isinstance(name, str) for name in names)
    ):
        raise ArtifactError(f"feature_names are no {count} names.")
    columns = encoder.example()
    row, outside = encoder.transform(columns), encoder.outside(columns)
    if not (np.isfinite(row).all() and np.isfinite(outside).all()):
        raise ArtifactError("encoder makes numbers that are not finite.")
    return row.shape[1]


def _check_layers(layers: list[Any], widths: tuple[int, ...]) -> int:
    """The number of members; `widths` are those of the inputs, the hidden layers, the outputs."""
    if len(layers) != len(widths) - 1 or not np.ndim(layers[0]["kernel"]):
        raise ArtifactError(f"there are {len(layers)} layers for the widths {widths}.")
    members = len(layers[0]["kernel"])
    for index, (layer, sizes) in enumerate(zip(layers, itertools.pairwise(widths), strict=True)):
        _check_array(f"layer {index}/kernel", layer["kernel"], (members, *sizes), np.float32)
        _check_array(f"layer {index}/bias", layer["bias"], (members, sizes[1]), np.float32)
    if not members:
        raise ArtifactError("layers have no members.")
    return members


def _outputs(family: str, target_shape: tuple[int, ...]) -> int:
    outputs = link_of(LIKELIHOODS[family]).outputs
    return sum(math.prod((*target_shape, *axes)) for _, axes in outputs)


def _check_array(name: str, array: Any, shape: tuple[int, ...], dtype: Any = np.float64) -> None:
    array = np.asarray(array)
    if array.shape != shape or array.dtype != dtype:
        raise ArtifactError(f"{name} is {_form(array)}, not {np.dtype(dtype)}{list(shape)}.")
    if not np.isfinite(array).all():
        raise ArtifactError(f"{name} has values that are not finite.")


def _form(array: np.ndarray) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _expect(name: str, value: Any, known: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in known:
        raise ArtifactError(f"{name} is {value!r}, which this version does not know.")
