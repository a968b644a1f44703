"""A posterior on disk: parameters, rows and precisions; its matrices are computed again."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
from chex import ArrayTree

from fisher8_jax.artifacts import ArtifactError, load_artifact, save_artifact
from fisher8_jax.posterior._arithmetic import arithmetic
from fisher8_jax.posterior._build import build
from fisher8_jax.posterior._network import Network, PredictOne
from fisher8_jax.posterior._posterior import Posterior
from fisher8_jax.posterior._prior import Groups
from fisher8_jax.posterior._report import Report
from fisher8_jax.posterior._tuning import settle

_KIND = "posterior"


def save_posterior(path: str | Path, posterior: Posterior) -> None:
    """Writes a posterior to one file, without its prediction function.

    The file holds the rows that the posterior was computed from. Matrices are not written; loading
    computes them again, to the same bits on the same machine.

    Args:
        path: the file; an existing one is replaced in one step.
        posterior: of `fit_posterior`.

    Example:
        >>> import pathlib, tempfile
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.posterior import fit_posterior, load_posterior, save_posterior
        >>> predict_one = lambda params, x: Gaussian(params * x, jnp.zeros(()))
        >>> x, params = jnp.array([1.0, 2.0]), jnp.array(3.0)
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "posterior.f8"
        >>> save_posterior(path, fit_posterior(predict_one, params, x, 3 * x, tune=False))
        >>> load_posterior(path, predict_one, params).predict(jnp.array([6.0])).epistemic
        Array([6.], dtype=float32)
    """
    network, report = posterior.network, posterior.report
    trees = {
        "params": _numbered(network.params),
        "inputs": _numbered(posterior.inputs),
        "targets": np.asarray(posterior.targets),
        "log_precision": np.asarray(posterior.log_precision),
        "squares": np.asarray(posterior.evidence.squares),
    }
    of_leaf = list(posterior.system.of_leaf)
    config = {
        "kind": _KIND,
        "leaves": list(network.leaves),
        "of_leaf": of_leaf,
        "report": _lists(dataclasses.asdict(report)),
    }
    save_artifact(path, trees, config=config)


def load_posterior(
    path: str | Path,
    predict_one: PredictOne,
    params: ArrayTree,
    inputs: ArrayTree | None = None,
) -> Posterior:
    """Reads what `save_posterior` wrote.

    Args:
        path: the file.
        predict_one: the prediction function that the posterior was computed with.
        params: any tree of the structure of the parameters, such as those of a new network.
        inputs: any tree of the structure of the inputs; not needed where they are one array.

    Example:
        >>> from fisher8_jax.posterior import load_posterior
        >>> load_posterior("missing.f8", lambda params, x: x, {})
        Traceback (most recent call last):
        ...
        FileNotFoundError: ...
    """
    artifact = load_artifact(path)
    config, trees = artifact.config, artifact.trees
    if not isinstance(config, dict) or config.get("kind") != _KIND:
        raise ArtifactError(f"{str(path)!r} is no posterior: it was not made by `save_posterior`.")
    saved: dict[str, Any] = config["report"]
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in saved.items()}
    report = Report(**fields)
    leaves, of_leaf = (tuple(config[name]) for name in ("leaves", "of_leaf"))
    rows = _restored("inputs", trees["inputs"], 0 if inputs is None else inputs)
    network = Network(_restored("params", trees["params"], params), predict_one, leaves)
    with arithmetic(report.dtype):
        groups = Groups(report.groups, leaves, of_leaf)
        system, nll = build(report.form, (network, rows, trees["targets"]), groups, report.chunk)
        settled = settle(system, trees["log_precision"], nll, trees["squares"], groups, None)
    return Posterior(
        network=network,
        system=system,
        factor=settled.factor,
        log_precision=settled.log_precision,
        evidence=settled.evidence,
        nll=np.asarray(nll, report.dtype),
        inputs=rows,
        targets=trees["targets"],
        report=report,
    )


def _lists(record: dict[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in record.items()}


def _numbered(tree: ArrayTree) -> dict[str, np.ndarray]:
    return {str(i): np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}


def _restored(name: str, saved: Any, like: ArrayTree) -> ArrayTree:
    given = len(jax.tree.leaves(like))
    if given != len(saved):
        raise ValueError(
            f"`{name}` must have the structure that was saved, {len(saved)} arrays, got {given}."
        )
    leaves = [saved[str(i)] for i in range(len(saved))]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)
