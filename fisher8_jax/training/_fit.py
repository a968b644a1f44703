"""`fit`: one network, or several side by side, trained on arrays in one call."""

import math
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from fisher8_jax._fisher8 import check_family
from fisher8_jax._internal.checks import check_count
from fisher8_jax.artifacts import TrainingCheckpoints
from fisher8_jax.diagnostics import TrainingRecord
from fisher8_jax.training._data import (
    BatchLoader,
    Data,
    Params,
    Variables,
    check_data,
    given_folds,
    make_folds,
)
from fisher8_jax.training._gradients import LossGradient
from fisher8_jax.training._method import Method, TrainingState, with_runs
from fisher8_jax.training._networks import Network, apply_network, check_network
from fisher8_jax.training._plan import Plan
from fisher8_jax.training._run import (
    DIAGNOSTIC_METRICS,
    Callback,
    Progress,
    Training,
    start,
    training_record,
)
from fisher8_jax.training._validation import best_factor, final_params


class Fitted(NamedTuple):
    """A trained network, or several: then every array has an axis for the runs.

    Attributes:
        params: the parameters with the best validation NLL, averaged as the plan says.
        variables: the network's other variables at that time; None if it has none.
        validation_nll: the best validation NLL; nan if there is none.
        variance_factor: what to multiply all variances by, as `validation_nll` does, if the plan
            has `free_variance`; else 1.
        best_step: the step after which it was found.
        validation_rows: the numbers of the rows that were held out.
        validation_steps: after which steps the validations took place.
        history: the NLL of every validation; shape (validations,) or (validations, runs).
        metrics: what was logged at each step, by name; shape (steps,) or (steps, runs).
        record: what the doctor wants to know of the training; one for each run.
        state: the state after the last step, to train on.

    Example:
        >>> import jax.numpy as jnp, numpy as np
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.training import Plan, fit
        >>> network = lambda slope, x: Gaussian(slope * x, jnp.zeros_like(x))
        >>> x = np.linspace(-1, 1, 100, dtype=np.float32)
        >>> plan = Plan(steps=9, num_validations=3)
        >>> fitted = fit(network, jnp.zeros(2), (x, x), plan, runs=2, show_progress=False)
        >>> fitted.validation_steps, fitted.history.shape
        ((1, 4, 9), (3, 2))
    """

    params: Params
    variables: Variables
    validation_nll: np.ndarray
    variance_factor: float
    best_step: np.ndarray
    validation_rows: np.ndarray
    validation_steps: tuple[int, ...]
    history: np.ndarray
    metrics: dict[str, np.ndarray]
    record: TrainingRecord | tuple[TrainingRecord, ...] | None
    state: TrainingState

    @property
    def steps(self) -> int:
        """The number of steps made."""
        return len(self.metrics["loss"])


def fit(
    network: Network,
    params: Params,
    data: tuple,
    plan: Plan,
    *,
    method: Method | None = None,
    variables: Variables = None,
    runs: int | None = None,
    validation: tuple | None = None,
    held_out: np.ndarray | None = None,
    seed: int = 0,
    callback: Callback | None = None,
    checkpoints: TrainingCheckpoints | None = None,
    diagnostics: bool = True,
    show_progress: bool | str = True,
) -> Fitted:
    """Trains a network on arrays: validation, averaging, the best parameters, early stopping.

    Args:
        network: `(params, inputs) -> distribution`, a pure function; with `variables` see
            `nnx_network`.
        params: the first parameters.
        data: `(inputs, targets)`, or a `Data` with a mask and weights; examples first.
        plan: steps, batches, validation.
        method: how to train; by default `Method()`, which is `fisher8_optimizer`.
        variables: the first values of whatever else the network changes; None if there is nothing.
        runs: trains this many networks side by side in one program. Parameters and variables then
            have the runs as first axis of every leaf, as `jax.vmap(init)(keys)` makes them; each
            run has a key of its own and holds out another part of the rows.
        validation: data of your own to validate on, of the form of `data`; by default each run
            holds out `plan.validation_fraction` of the rows, of each pattern of missing targets.
        held_out: the numbers of the rows that each run holds out, shape (runs, rows), instead of
            drawn ones.
        seed: decides which rows are held out, the order of the others, and every random key.
        callback: called as `callback(step, metrics, nll)` at each validation with the number of
            steps made, the metrics of the steps since the last call (arrays by name) and the
            validation NLL (nan without validation); training stops if it returns True.
        checkpoints: where to save the training; one that was killed goes on from there and ends
            with the same bits.
        diagnostics: False logs the loss alone and makes no `record`.
        show_progress: True draws a bar on a terminal or in a notebook and elsewhere prints a line
            at each validation; a string also, with this title.

    Returns:
        The trained network and the history of its training.

    Example:
        >>> import jax.numpy as jnp, numpy as np
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.training import Plan, fit
        >>> x = np.linspace(-1, 1, 200, dtype=np.float32)
        >>> y = 3 * x + np.float32(0.5) * np.sin(999 * x)
        >>> def predict(params, x):
        ...     return Gaussian(params["slope"] * x, jnp.full_like(x, params["log_variance"]))
        >>> start = {"slope": jnp.zeros(()), "log_variance": jnp.zeros(())}
        >>> plan = Plan(steps=200, batch_size=20)
        >>> fitted = fit(predict, start, (x, y), plan, show_progress=False)
        >>> print(f"slope {fitted.params['slope']:.1f}")
        slope 3.0
    """
    if not isinstance(method, Method | None):
        raise TypeError(
            f"`method` must be a `Method`, got {method!r}. An Optax optimizer is its length: "
            "`Method(length=optimizer)`."
        )
    check_network(network, params, variables)
    rows = check_data("data", data)
    number = 1 if runs is None else check_count("runs", runs)
    if runs is None:
        params, variables = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (params, variables))
    else:
        _check_runs(params, variables, number)
    described = with_runs(Method() if method is None else method, number)
    training = Training(
        network,
        described,
        _keys(seed, number),
        plan,
        _loader(network, params, variables, rows, validation, held_out, plan, number, seed),
        DIAGNOSTIC_METRICS if diagnostics else (),
        _of_one_run(callback) if runs is None else callback,
    )
    horizon = None if plan.average is None else np.asarray(plan.average, np.float32)
    first = start(described, params, variables, np.asarray(plan.steps, np.int32), horizon)
    title = show_progress if isinstance(show_progress, str) else "training"
    progress = training.run(
        first, checkpoints=checkpoints, title=title, show_progress=bool(show_progress)
    )
    fitted = _fitted(progress, training, diagnostics)
    return fitted if runs is not None else _only_run(fitted)


def _loader(
    network: Network,
    params: Params,
    variables: Variables,
    rows: Data,
    validation: tuple | None,
    held_out: np.ndarray | None,
    plan: Plan,
    runs: int,
    seed: int,
) -> BatchLoader:
    own = None if validation is None else check_data("validation", validation)
    if held_out is None:
        folds = make_folds(
            np.random.default_rng((seed, 1)),
            rows.rows,
            runs=runs,
            held_out=plan.validation_fraction if own is None else 0,
            strata=_strata(rows.where),
        )
    else:
        folds = given_folds(held_out, rows.rows, runs)
    return BatchLoader(
        rows,
        folds,
        batch_size=plan.batch_size,
        seed=seed,
        event_ndim=_event_ndim(network, params, variables, rows.inputs),
        validation=own,
    )


def _fitted(progress: Progress, training: Training, diagnostics: bool) -> Fitted:
    params, variables = final_params(progress.trained, progress.validated)
    step, loader = progress.step, training.loader
    has_validation = loader.validation is not None or loader.folds.held_out.size > 0
    made = tuple(s for s in training.plan.validation_steps if s <= step and has_validation)
    scores = np.asarray(progress.validated.nll, np.float64)
    history = np.asarray(progress.nll)[: len(made)]
    metrics = {name: np.asarray(values)[:step] for name, values in progress.metrics.items()}
    scores, factor = np.where(np.isfinite(scores), scores, np.nan), 1.0
    if training.plan.free_variance and has_validation:
        found = training.score(params, variables, loader.validation_blocks())
        best = best_factor(found)
        scores, factor = found[:, best], math.exp(training.log_factors[best])
    record, gradient = None, training.method.gradient
    is_plain = isinstance(gradient, LossGradient) and gradient.loss != "fisher8"
    if diagnostics:
        record = tuple(
            training_record(
                {n: v[:, run] for n, v in metrics.items()},
                history[:, run],
                loader.data,
                None if is_plain else progress.trained.state.optimizer,
            )
            for run in range(loader.runs)
        )
    return Fitted(
        params=params,
        variables=variables,
        validation_nll=scores,
        variance_factor=factor,
        best_step=np.asarray(progress.validated.best_step),
        validation_rows=loader.folds.held_out,
        validation_steps=made,
        history=history,
        metrics=metrics,
        record=record,
        state=progress.trained.state,
    )


def _only_run(fitted: Fitted) -> Fitted:
    """Without the axis of runs."""

    def first(tree: chex.ArrayTree) -> Any:
        return jax.tree.map(lambda leaf: leaf[0], tree)

    runs_first = ("params", "variables", "validation_nll", "best_step", "validation_rows", "state")
    return fitted._replace(
        **{name: first(getattr(fitted, name)) for name in runs_first},
        history=fitted.history[:, 0],
        metrics={name: values[:, 0] for name, values in fitted.metrics.items()},
        record=fitted.record[0] if isinstance(fitted.record, tuple) else None,
    )


def _of_one_run(callback: Callback | None) -> Callback | None:
    if callback is None:
        return None

    def called(step: int, metrics: dict[str, np.ndarray], nll: np.ndarray) -> object:
        return callback(step, {name: v[:, 0] for name, v in metrics.items()}, float(nll[0]))

    return called


def _keys(seed: int, runs: int) -> jax.Array:
    """One key for each run, drawn with NumPy: `jax.random.split` would compile two programs."""
    numbers = np.random.default_rng((seed, 3)).integers(2**32, size=(runs, 2), dtype=np.uint32)
    return jax.random.wrap_key_data(jnp.asarray(numbers), impl="threefry2x32")


def _strata(where: chex.Array | None) -> np.ndarray | None:
    """The pattern of missing targets of each row; all are spread evenly over the folds."""
    if where is None:
        return None
    patterns = np.asarray(where).reshape(len(where), -1)
    return np.unique(patterns, axis=0, return_inverse=True)[1].reshape(-1)


def _event_ndim(
    network: Network, params: Params, variables: Variables, inputs: chex.ArrayTree
) -> int:
    """The number of axes of one target, found without computing anything."""
    found = []

    def trace(params: Params, variables: Variables, inputs: chex.ArrayTree) -> None:
        dist, _ = apply_network(network, params, variables, inputs)
        found.append(len(check_family("the result of `network`", dist).event_shape))

    first = jax.tree.map(lambda leaf: leaf[0], (params, variables))
    jax.eval_shape(trace, *first, jax.tree.map(lambda leaf: np.asarray(leaf)[:1], inputs))
    return found[0]


def _check_runs(params: Params, variables: Variables, runs: int) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path((params, variables)):
        if np.ndim(leaf) == 0 or len(leaf) != runs:
            raise ValueError(
                f"`params` and `variables` must have the {runs} `runs` as first axis of every "
                f"leaf, got shape {np.shape(leaf)} at {jax.tree_util.keystr(path)}. Make them by "
                f"`jax.vmap(init)(jax.random.split(key, {runs}))`."
            )
