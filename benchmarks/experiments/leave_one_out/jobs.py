"""What happens in a worker: refits without single rows, or cross-validation of one set."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from benchmarks.experiments.gaps import networks
from benchmarks.experiments.gaps.networks import Rows, predict_one
from benchmarks.experiments.leave_one_out.plan import DAMPING, FOLDS, MORE, POLISH, Job
from benchmarks.experiments.leave_one_out.refits import Fit, minimize, precisions
from benchmarks.experiments.tables import data
from benchmarks.experiments.uci.data import Split
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.seeds import seed_of
from benchmarks.machinery.store import Store
from benchmarks.machinery.workers import Report
from fisher8_jax.posterior import Posterior, Prior, fit_posterior, leave_one_out, train_by_evidence


def run_job(job: Job, report: Report) -> None:
    """Computes one cell."""
    seed = seed_of("leave_one_out", job.dataset, job.seed) & 0x7FFFFFF
    rows = standardised(data.load(job.data)[0])
    result = refit(rows, seed) if job.kind == "refits" else cross_validate(rows, seed)
    store = Store(job.results)
    store.write(job.cell, spec=job.spec, result=result, provenance=provenance(job.command))
    report(1)


def standardised(split: Split) -> Rows:
    """All rows of a set, in units of their standard deviations."""
    inputs = np.concatenate([split.train_inputs, split.test_inputs])
    targets = np.concatenate([split.train_targets, split.test_targets])
    scale = np.where(inputs.std(0) == 0, 1, inputs.std(0))
    return Rows(
        ((inputs - inputs.mean(0)) / scale).astype(np.float32),
        ((targets - targets.mean()) / targets.std()).astype(np.float32),
    )


def trained(rows: Rows, seed: int) -> tuple[Any, Prior]:
    """A network by evidence."""
    start = networks.init(seed, rows.inputs.shape[1])
    found = train_by_evidence(predict_one, start, *rows, seed=seed)
    return found.params, found.prior


def _fit(rows: Rows, params: Any, prior: Prior) -> tuple[Fit, Array]:
    wide_rows = Rows(*(jnp.asarray(x, float) for x in rows))
    wide = {name: np.asarray(leaf, float) for name, leaf in params.items()}
    assert isinstance(prior.precision, dict)
    precision = jnp.asarray(precisions(wide, prior.precision))
    return Fit(wide_rows.inputs, wide_rows.targets, precision, wide), ravel_pytree(wide)[0]


def _posterior(rows: Rows, params: Any, prior: Prior) -> Posterior:
    return fit_posterior(predict_one, params, *rows, prior=prior, tune=False)


def refit(rows: Rows, seed: int) -> dict[str, object]:
    """How the outputs of every row move when it is left out: closed form, and refits.

    Both refits, with all rows and without one, make the same number of steps.
    """
    params, prior = trained(rows, seed)
    ones = np.ones(len(rows.targets))
    with jax.enable_x64(True):
        fit, vector = _fit(rows, params, prior)
        vector, _ = minimize(fit, vector, ones, POLISH)
        params = jax.tree.map(np.asarray, ravel_pytree(fit.params)[1](vector))
        control, gain = minimize(fit, vector, ones, MORE)
        before, outputs = (np.asarray(fit.outputs(v)) for v in (vector, control))
        moved = np.empty((len(ones), 2))
        for row in range(len(ones)):
            counts = np.where(np.arange(len(ones)) == row, 0.0, 1.0)
            found, _ = minimize(fit, vector, counts, MORE)
            moved[row] = np.asarray(fit.outputs(found))[row] - outputs[row]
        closed = leave_one_out(_posterior(rows, params, prior)).outputs
        shift = np.asarray(closed.to_vector()) - before
    return {
        "rows": len(ones),
        "gain_of_last_step": float(gain),
        "correlation": {k: float(np.corrcoef(a, b)[0, 1]) for k, a, b in _both(shift, moved)},
        "slope": {k: float(a @ b / (a @ a)) for k, a, b in _both(shift, moved)},
        "shifts": {k: [a.tolist(), b.tolist()] for k, a, b in _both(shift, moved)},
    }


def _both(shift: np.ndarray, moved: np.ndarray) -> list[tuple[str, np.ndarray, np.ndarray]]:
    return list(zip(("mean", "log_variance"), shift.T, moved.T, strict=True))


def cross_validate(rows: Rows, seed: int) -> dict[str, float]:
    """The NLL of rows left out: closed form of one network, and that of networks of ten folds.

    `damped_in_folds` is the damped closed form of these ten, each on the rows that it was trained
    on; `error` the standard error over rows of the difference of `damped` and `folds`.
    """
    params, prior = trained(rows, seed)
    whole = _posterior(rows, params, prior)
    order = np.random.default_rng(seed).permutation(len(rows.targets))
    folds, inside = np.empty(len(order)), []
    for fold in np.array_split(order, FOLDS):
        rest = np.setdiff1d(order, fold)
        some = Rows(*(x[rest] for x in rows))
        posterior = _posterior(some, *trained(some, seed))
        folds[fold] = posterior.predict(rows.inputs[fold]).nll(rows.targets[fold])
        inside.append(np.mean(leave_one_out(posterior, damping=DAMPING).nll))
    train = jax.vmap(predict_one, (None, 0))(params, rows.inputs).nll(rows.targets)
    every = {
        "closed": leave_one_out(whole).nll,
        "damped": leave_one_out(whole, damping=DAMPING).nll,
        "folds": folds,
        "training": train,
    }
    scores = {name: np.asarray(nll) for name, nll in every.items()}
    found = {name: float(np.mean(nll)) for name, nll in scores.items()}
    found |= {f"median_{name}": float(np.median(nll)) for name, nll in scores.items()}
    found["damped_in_folds"] = float(np.mean(inside))
    found["error"] = float(np.std(scores["damped"] - folds) / np.sqrt(len(order)))
    return found
