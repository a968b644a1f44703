"""A fitted estimator as one artifact, and back.

The layers are named by their numbers. Whatever changes the meaning of a field counts `_VERSION` up.
"""

from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fisher8_jax.artifacts import (
    Artifact,
    ArtifactError,
    TargetScaler,
    load_artifact,
    save_artifact,
)
from fisher8_jax.estimator._columns import Encoder
from fisher8_jax.estimator._conformal import CONFORMAL_SUPPORTS, Conformal, conformal_of
from fisher8_jax.estimator._epistemic import Knowledge
from fisher8_jax.estimator._families import LIKELIHOODS, find_likelihood
from fisher8_jax.estimator._memory import Memory, check_memory
from fisher8_jax.estimator._restored import check_restored
from fisher8_jax.estimator._training import Rows
from fisher8_jax.estimator._widths import Calibration
from fisher8_jax.training import Method

Estimator = TypeVar("Estimator")

_KIND, _VERSION = "Fisher8Regressor", 4
# A folder of this machine, and of a fit that has ended: no file may name one.
_NOT_SAVED = "checkpoint_dir"


def write_estimator(estimator: Any, path: str | Path, *, with_rows: bool) -> None:
    """Writes settings and everything that was fitted; training rows only if asked for."""
    settings = estimator.get_params()
    if not isinstance(settings["random_state"], int | np.integer):
        settings["random_state"] = None  # a generator has moved on since the fit
    if not isinstance(settings["family"], str):
        settings["family"] = _name_of_known(estimator.family_)
    del settings[_NOT_SAVED]
    config = {
        "kind": _KIND,
        "version": _VERSION,
        "settings": _plain(settings),
        "family": estimator.family_,
        "methods": [method.to_dict() for method in estimator.methods_],
        "candidates": estimator.candidates_,
        "encoder": estimator.encoder_.to_config(),
        "target_shape": list(estimator.target_shape_),
        "n_iter": estimator.n_iter_,
        "n_features": estimator.n_features_in_,
        "feature_names": _plain(getattr(estimator, "feature_names_in_", None)),
    }
    trees = {
        "layers": estimator.params_,
        "reference": estimator.reference_params_,
        "scaler": {"shift": estimator.scaler_.shift, "scale": estimator.scaler_.scale},
        "held_out_nll": estimator.held_out_nll_,
        "calibration": estimator.calibration_._asdict(),
        "knowledge": estimator.knowledge_._asdict(),
        "known_variance": estimator.known_variance_,
    }
    likelihood = find_likelihood(estimator.family_, estimator.family)
    if likelihood.support in CONFORMAL_SUPPORTS:
        conformal = conformal_of(estimator)
        config["conformal_groups"] = _plain(conformal.labels)
        trees["conformal"] = {str(i): scores for i, scores in enumerate(conformal.scores)}
    if with_rows:
        memory = check_memory(estimator.memory_)
        trees["memory"] = memory.rows._asdict() | {
            "outside": memory.outside,
            "held_out": memory.held_out,
        }
    save_artifact(path, trees, config=config)


def read_estimator(cls: type[Estimator], artifact: Artifact) -> Estimator:
    """The estimator of class `cls` in a file that was read."""
    config, trees = artifact.config, artifact.trees
    if _NOT_SAVED in config["settings"]:
        raise ArtifactError(f"it sets `{_NOT_SAVED}`.")
    estimator: Any = cls(**_with_methods(config["settings"]))
    estimator.params_, estimator.reference_params_ = (
        [trees[name][str(index)] for index in range(len(trees[name]))]
        for name in ("layers", "reference")
    )
    estimator.scaler_ = TargetScaler(trees["scaler"]["shift"], trees["scaler"]["scale"])
    estimator.held_out_nll_ = trees["held_out_nll"]
    estimator.encoder_ = Encoder.from_config(config["encoder"])
    estimator.family_ = config["family"]
    estimator.methods_ = tuple(map(Method.from_dict, config["methods"]))
    estimator.candidates_ = config["candidates"]
    estimator.target_shape_ = tuple(config["target_shape"])
    estimator.n_iter_ = config["n_iter"]
    estimator.n_features_in_ = config["n_features"]
    if config["feature_names"] is not None:
        estimator.feature_names_in_ = np.array(config["feature_names"], dtype=object)
    estimator.calibration_ = Calibration(**trees["calibration"])
    estimator.knowledge_ = Knowledge(**trees["knowledge"])
    estimator.known_variance_ = trees["known_variance"]
    estimator.conformal_ = estimator.memory_ = None
    if "conformal" in trees:
        scores = trees["conformal"]
        labels = config["conformal_groups"]
        estimator.conformal_ = Conformal(
            None if labels is None else tuple(labels),
            tuple(scores[str(i)] for i in range(len(scores))),
        )
    if "memory" in trees:
        found = dict(trees["memory"])
        outside, held_out = found.pop("outside"), found.pop("held_out")
        estimator.memory_ = Memory(Rows(**found), outside, held_out)
    check_restored(estimator)
    return estimator


def load_estimator(cls: type[Estimator], path: str | Path) -> Estimator:
    """The estimator in a file; anything but a whole one is an `ArtifactError`."""
    artifact = load_artifact(path)
    if not isinstance(artifact.config, dict) or artifact.config.get("kind") != _KIND:
        raise ArtifactError(f"{str(path)!r} holds another model than a {_KIND}.")
    if artifact.config.get("version") != _VERSION:
        raise ArtifactError(
            f"{str(path)!r} holds a {_KIND} of version {artifact.config.get('version')!r}, this "
            f"package reads version {_VERSION}. It was written by {artifact.versions}."
        )
    try:
        return read_estimator(cls, artifact)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
        what = str(error) if isinstance(error, ArtifactError) else f"{error!r}."
        raise ArtifactError(f"{str(path)!r} holds no whole {_KIND}: {what}") from error


def _name_of_known(name: str) -> str:
    if name not in LIKELIHOODS:
        raise TypeError(
            f"`family` {name} is a class of your own, which a file cannot hold. Use pickle, or "
            "save `params_` with `save_artifact`."
        )
    return name


def _with_methods(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings whose `methods` are descriptions again; 'auto' stays."""
    methods = settings["methods"]
    if isinstance(methods, dict):
        return {**settings, "methods": Method.from_dict(methods)}
    if isinstance(methods, list):
        return {**settings, "methods": tuple(map(Method.from_dict, methods))}
    return settings


def _plain(value: Any) -> Any:
    """`value` in JSON's own types."""
    if isinstance(value, Method):
        return value.to_dict()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
