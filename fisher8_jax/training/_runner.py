"""From the first step to the last: chunks, looks, early stop, checkpoints and a progress bar."""

from typing import NamedTuple

import chex
import jax
import numpy as np

from fisher8_jax.artifacts import TrainingCheckpoints
from fisher8_jax.training._data import Feed
from fisher8_jax.training._looks import (
    Looks,
    final_params,
    held_out_nll,
    start_looks,
    take_look,
)
from fisher8_jax.training._loop import TrainState, pad_steps, start, train_on_batches
from fisher8_jax.training._plan import Plan
from fisher8_jax.training._progress import Advance, progress_bar
from fisher8_jax.training._step import Batch, Lane, Params, Task, Variables


class Run(NamedTuple):
    """Everything that a resumed training needs."""

    state: TrainState
    looks: Looks
    held_out_nll: np.ndarray
    """(looks, lanes), nan for looks not taken."""
    readouts: dict[str, np.ndarray]
    """(steps, lanes) each, nan for steps not made."""

    @property
    def has_stopped(self) -> bool:
        """Whether every lane has waited too long."""
        return bool(np.all(self.looks.stopped))


class TrainedLanes(NamedTuple):
    """The outcome of several trainings side by side; lanes first, except where said.

    Attributes:
        params: the best parameters of each lane.
        variables: the network's other variables at that time.
        held_out_nll: the best held-out NLL of each lane; nan if it could not be judged.
        best_step: after how many steps it was found.
        look_steps: the number of steps before each look.
        look_nll: (looks, lanes), the held-out NLL of every look that was taken.
        readouts: (steps, lanes) each: 'loss' and the task's own.
        state: the state after the last step, to train on.

    Example:
        >>> import jax.numpy as jnp, numpy as np
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.training import Plan, fit_lanes, plain_network
        >>> network = plain_network(lambda slope, x: Gaussian(slope * x, jnp.zeros_like(x)))
        >>> x = np.linspace(-1, 1, 100, dtype=np.float32)
        >>> trained = fit_lanes(network, jnp.zeros(2), None, (x, x), Plan(steps=9, looks=3))
        >>> trained.look_steps, trained.look_nll.shape
        ((1, 4, 9), (3, 2))
    """

    params: Params
    variables: Variables
    held_out_nll: np.ndarray
    best_step: np.ndarray
    look_steps: tuple[int, ...]
    look_nll: np.ndarray
    readouts: dict[str, np.ndarray]
    state: TrainState

    @property
    def steps(self) -> int:
        """Gradient steps that were made."""
        return int(self.state.step)


def train_lanes(
    task: Task,
    params: Params,
    variables: Variables,
    lanes: Lane,
    feed: Feed,
    plan: Plan,
    *,
    checkpoints: TrainingCheckpoints | None = None,
    title: str = "training",
    show_progress: bool = False,
) -> TrainedLanes:
    """Trains all lanes to the end of the plan, or until the last of them has stopped.

    Args:
        task: network, loss and optimiser.
        params: first parameters, lanes first.
        variables: first variables, lanes first; None if there are none.
        lanes: settings and keys, lanes first.
        feed: batches and held-out rows.
        plan: steps and looks; its `average` is that of the task, its `batch_size` that of the feed.
        checkpoints: where to save the run; a killed process goes on from the newest saved look and
            ends with the same bits.
        title: what the progress bar says.
        show_progress: True draws a bar on a terminal or in a notebook.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np, optax
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.losses import make_objective
        >>> from fisher8_jax.training import Data, Feed, Lane, Plan, Task, make_folds
        >>> from fisher8_jax.training import plain_network, train_lanes
        >>> network = plain_network(lambda slope, x: Gaussian(slope * x, jnp.zeros_like(x)))
        >>> task = Task(network, make_objective("fisher8"), optax.sgd)
        >>> x = np.linspace(-1, 1, 100, dtype=np.float32)
        >>> folds = make_folds(np.random.default_rng(0), 100, lanes=2, held_out=0.2)
        >>> feed = Feed(Data(x, x), folds, batch_size=16, seed=0)
        >>> rates = Lane(jnp.array([0.01, 0.02]), jax.random.split(jax.random.key(0), 2))
        >>> plan = Plan(steps=9, average=None)
        >>> train_lanes(task, jnp.zeros(2), None, rates, feed, plan).steps
        9
    """
    blocks = [jax.device_put(block) for block in feed.held_out_blocks()]
    looks_at = plan.look_steps if blocks else (plan.steps,)
    run = _start_run(task, params, variables, lanes, plan, looks_at)
    with progress_bar(title, plan.steps, show=show_progress) as advance:

        def to_next_look(run: Run, index: int) -> Run:
            if run.has_stopped:
                return run
            run = _train_until(task, run, lanes, feed, looks_at[index], advance)
            return _look(task, run, blocks, index, plan, advance) if blocks else run

        if checkpoints is not None:
            run = checkpoints.run(to_next_look, run, steps=len(looks_at))
            run = run._replace(looks=jax.tree.map(jax.numpy.asarray, run.looks))
        else:
            for index in range(len(looks_at)):
                run = to_next_look(run, index)
                if run.has_stopped:
                    break
    return _trained(task, run, looks_at if blocks else ())


def _start_run(
    task: Task,
    params: Params,
    variables: Variables,
    lanes: Lane,
    plan: Plan,
    looks_at: tuple[int, ...],
) -> Run:
    state = start(task, params, variables, lanes)
    number = len(jax.tree.leaves(params)[0])
    readouts = {
        name: np.full((plan.steps, number), np.nan, np.float32) for name in task.readout_names
    }
    nll = np.full((len(looks_at), number), np.nan)
    return Run(state, start_looks(state), nll, readouts)


def _train_until(task: Task, run: Run, lanes: Lane, feed: Feed, last: int, advance: Advance) -> Run:
    """Makes steps until there are `last` of them."""
    # Copies, because a checkpoint may still be written from the old ones.
    readouts = {name: values.copy() for name, values in _numpy(run.readouts).items()}
    state, first, chunk = run.state, int(run.state.step), feed.chunk
    while first < last:
        steps = min(chunk, last - first)
        batches: Batch = pad_steps(feed.batches(first, steps), chunk)
        state, written = train_on_batches(task, state, lanes, batches, steps)
        for name, values in written.items():
            readouts[name][first : first + steps] = np.asarray(values)[:steps]
        first += steps
        advance(steps, "")
    return run._replace(state=state, readouts=readouts)


def _look(
    task: Task, run: Run, blocks: list[Batch], index: int, plan: Plan, advance: Advance
) -> Run:
    nll = held_out_nll(task, run.state, blocks)
    patience = plan.patience_after(int(run.state.step))
    looks = take_look(task, run.state, run.looks, nll, patience)
    history = np.array(run.held_out_nll)
    history[index] = nll
    advance(0, f"held-out NLL {np.mean(nll):.3f}")
    return run._replace(looks=looks, held_out_nll=history)


def _trained(task: Task, run: Run, looks_at: tuple[int, ...]) -> TrainedLanes:
    params, variables = final_params(task, run.state, run.looks)
    done = int(run.state.step)
    taken = sum(step <= done for step in looks_at)
    scores = np.asarray(run.looks.best.score, np.float64)
    return TrainedLanes(
        params=params,
        variables=variables,
        held_out_nll=np.where(np.isfinite(scores), scores, np.nan),
        best_step=np.asarray(run.looks.best_step),
        look_steps=looks_at[:taken],
        look_nll=np.asarray(run.held_out_nll)[:taken],
        readouts={name: values[:done] for name, values in _numpy(run.readouts).items()},
        state=run.state,
    )


def _numpy(tree: chex.ArrayTree) -> chex.ArrayTree:
    return jax.tree.map(np.asarray, tree)
