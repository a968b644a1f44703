"""One network, or several side by side, trained on arrays in one call."""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import numpy as np
import optax

from fisher8_jax.artifacts import TrainingCheckpoints
from fisher8_jax.diagnostics import TrainingRecord
from fisher8_jax.families import Family
from fisher8_jax.losses import Objective, make_objective
from fisher8_jax.optimizers import fisher8_optimizer
from fisher8_jax.training._data import Data, Feed, on_host
from fisher8_jax.training._networks import plain_network
from fisher8_jax.training._plan import Plan
from fisher8_jax.training._record import DOCTOR_READOUTS, training_record
from fisher8_jax.training._rows import make_folds
from fisher8_jax.training._runner import TrainedLanes, train_lanes
from fisher8_jax.training._step import Apply, Lane, Params, Task, Variables


class Fitted(NamedTuple):
    """A trained network.

    Attributes:
        params: the parameters with the best held-out NLL, averaged as the plan says.
        variables: the network's other variables; None if it has none.
        record: what the doctor wants to know of the training.
        trained: everything else: readouts of every step, all looks, the last state.

    Example:
        >>> from fisher8_jax.training import Fitted
        >>> Fitted._fields
        ('params', 'variables', 'record', 'trained')
    """

    params: Params
    variables: Variables
    record: TrainingRecord
    trained: TrainedLanes


@dataclasses.dataclass(frozen=True)
class _Fixed:
    """An optimiser without settings; found again by what it was made of."""

    optimizer: optax.GradientTransformation | None
    steps: int

    def __call__(self, settings: chex.ArrayTree) -> optax.GradientTransformation:
        return fisher8_optimizer(self.steps) if self.optimizer is None else self.optimizer


def fit(
    predict: Callable[[Params, chex.ArrayTree], Family],
    params: Params,
    data: tuple,
    plan: Plan,
    *,
    loss: str | Objective = "fisher8",
    optimizer: optax.GradientTransformation | None = None,
    seed: int = 0,
    checkpoints: TrainingCheckpoints | None = None,
    show_progress: bool = True,
) -> Fitted:
    """Trains a network on arrays: held-out rows, averaging, the best parameters, early stop.

    Args:
        predict: the distribution that parameters and inputs make, a pure function. For a Flax NNX
            module see `nnx_network` and `fit_network`.
        params: the first parameters.
        data: `(inputs, targets)`, or a `Data` with a mask and weights; examples first.
        plan: steps, batches, looks.
        loss: a name in `LOSSES`, or an `Objective` that keeps no state per training row.
        optimizer: an Optax transformation; by default the recipe, `fisher8_optimizer(plan.steps)`.
        seed: decides which rows are held out, the order of the others, and every random key.
        checkpoints: where to save the training; one that was killed goes on from there and ends
            with the same bits.
        show_progress: False draws no bar; off a terminal none is drawn anyway.

    Returns:
        The trained network and the record of its training.

    Example:
        >>> import jax.numpy as jnp, numpy as np
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.training import Plan, fit
        >>> x = np.linspace(-1, 1, 200, dtype=np.float32)
        >>> y = 3 * x + np.float32(0.5) * np.sin(999 * x)
        >>> def predict(params, x):
        ...     return Gaussian(params["slope"] * x, jnp.full_like(x, params["log_variance"]))
        >>> start = {"slope": jnp.zeros(()), "log_variance": jnp.zeros(())}
        >>> fitted = fit(predict, start, (x, y), Plan(steps=200, batch_size=20))
        >>> print(f"slope {fitted.params['slope']:.1f}")
        slope 3.0
    """
    return fit_network(
        plain_network(predict),
        params,
        None,
        data,
        plan,
        loss=loss,
        optimizer=optimizer,
        seed=seed,
        checkpoints=checkpoints,
        show_progress=show_progress,
    )


def fit_network(
    apply: Apply,
    params: Params,
    variables: Variables,
    data: tuple,
    plan: Plan,
    *,
    loss: str | Objective = "fisher8",
    optimizer: optax.GradientTransformation | None = None,
    seed: int = 0,
    checkpoints: TrainingCheckpoints | None = None,
    show_progress: bool = True,
) -> Fitted:
    """`fit` for a network with dropout or running statistics.

    Args:
        apply: see `Apply`; `nnx_network(model)` gives this and the next two.
        params: the first parameters.
        variables: the first values of whatever else the network changes.
        data: see `fit`.
        plan: see `fit`.
        loss: see `fit`.
        optimizer: see `fit`.
        seed: see `fit`.
        checkpoints: see `fit`.
        show_progress: see `fit`.

    Returns:
        The trained network and the record of its training.

    Example:
        >>> import numpy as np
        >>> from flax import nnx
        >>> from fisher8_jax.heads.nnx import DistributionHead
        >>> from fisher8_jax.training import Plan, fit_network, nnx_network
        >>> model = DistributionHead(1, rngs=nnx.Rngs(0))
        >>> x = np.linspace(-1, 1, 100, dtype=np.float32)
        >>> fitted = fit_network(*nnx_network(model), (x[:, None], 2 * x), Plan(steps=50))
        >>> nnx.update(model, fitted.params)
    """
    rows = on_host(Data(*data))
    trained = fit_lanes(
        apply,
        _one_lane(params),
        _one_lane(variables),
        rows,
        plan,
        loss=loss,
        optimizer=optimizer,
        seed=seed,
        checkpoints=checkpoints,
        show_progress=show_progress,
    )
    readouts = {name: values[:, 0] for name, values in trained.readouts.items()}
    return Fitted(
        jax.tree.map(lambda leaf: leaf[0], trained.params),
        jax.tree.map(lambda leaf: leaf[0], trained.variables),
        training_record(readouts, trained.look_nll[:, 0], np.asarray(rows.targets), rows.where),
        trained,
    )


def fit_lanes(
    apply: Apply,
    params: Params,
    variables: Variables,
    data: tuple,
    plan: Plan,
    *,
    loss: str | Objective = "fisher8",
    optimizer: optax.GradientTransformation | None = None,
    seed: int = 0,
    checkpoints: TrainingCheckpoints | None = None,
    show_progress: bool = True,
) -> TrainedLanes:
    """Several networks at once, in one compiled program; each holds out another part of the rows.

    Args:
        apply: the network.
        params: first parameters, lanes first; see `init_members` and `stack_members`.
        variables: first variables, lanes first; None if there are none.
        data: see `fit`.
        plan: see `fit`.
        loss: see `fit`.
        optimizer: see `fit`.
        seed: see `fit`; every lane has a key of its own.
        checkpoints: see `fit`.
        show_progress: see `fit`.

    Returns:
        The outcome; `predict_members(predict, trained.params, inputs)` is their mixture.

    Example:
        >>> import jax.numpy as jnp, numpy as np
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.training import Plan, fit_lanes, plain_network
        >>> network = plain_network(lambda slope, x: Gaussian(slope * x, jnp.zeros_like(x)))
        >>> x = np.linspace(-1, 1, 100, dtype=np.float32)
        >>> trained = fit_lanes(network, jnp.zeros(3), None, (x, 2 * x), Plan(steps=50))
        >>> trained.params.round(1)
        Array([2., 2., 2.], dtype=float32)
    """
    rows = on_host(Data(*data))
    _check_rows(rows)
    lanes = len(jax.tree.leaves(params)[0])
    task = Task(
        apply,
        _objective(loss) if isinstance(loss, str) else loss,
        _Fixed(optimizer, plan.steps),
        average=plan.average,
        readouts=DOCTOR_READOUTS,
    )
    folds = make_folds(
        np.random.default_rng((seed, 1)), rows.rows, lanes=lanes, held_out=plan.held_out
    )
    feed = Feed(
        rows,
        folds,
        batch_size=plan.batch_size,
        seed=seed,
        event_ndim=_event_ndim(apply, params, variables, rows.inputs),
    )
    keys = jax.random.split(jax.random.key(seed), lanes)
    lane = Lane((), keys)
    return train_lanes(
        task, params, variables, lane, feed, plan,
        checkpoints=checkpoints, show_progress=show_progress,
    )  # fmt: skip


@functools.lru_cache
def _objective(name: str) -> Objective:
    """The objective of a loss, the same object every time, so that programs are found again."""
    return make_objective(name)


def _one_lane(tree: chex.ArrayTree) -> chex.ArrayTree:
    return jax.tree.map(lambda leaf: jax.numpy.asarray(leaf)[None], tree)


def _event_ndim(apply: Apply, params: Params, variables: Variables, inputs: chex.ArrayTree) -> int:
    """The number of axes of one target, found without computing anything."""
    found = []

    def trace(params: Params, variables: Variables, inputs: chex.ArrayTree) -> None:
        found.append(len(apply(params, variables, inputs)[0].event_shape))

    first = jax.tree.map(lambda leaf: leaf[0], (params, variables))
    jax.eval_shape(trace, *first, jax.tree.map(lambda leaf: np.asarray(leaf)[:1], inputs))
    return found[0]


def _check_rows(data: Data) -> None:
    lengths = {len(leaf) for leaf in jax.tree.leaves(data)}
    if len(lengths) != 1:
        raise ValueError(
            "All arrays of `data` must have the same number of examples, got "
            f"{', '.join(map(str, sorted(lengths)))}."
        )
    targets = np.asarray(data.targets)
    number = int(np.isnan(targets).sum()) if np.issubdtype(targets.dtype, np.floating) else 0
    if number and data.where is None:
        raise ValueError(
            f"`targets` of `data` must not be nan, got {number} that are. Mask missing ones: "
            "`Data(inputs, targets, where=~np.isnan(targets))`."
        )
