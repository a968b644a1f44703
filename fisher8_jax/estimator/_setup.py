"""From an estimator's hyper-parameters to the plan of its training."""

from typing import Any

from fisher8_jax._checks import check_count
from fisher8_jax.estimator._checkpoints import check_folder
from fisher8_jax.estimator._checks import check_flag, check_hidden, check_setting
from fisher8_jax.estimator._methods import check_methods
from fisher8_jax.estimator._training import Setup
from fisher8_jax.training import Plan

# The average of parameters over about this many steps is what is judged and kept.
_AVERAGED_STEPS = 100.0

# So many rows tell how good a network is, and every look costs a pass over them.
_LOOKS, _MOST_HELD_OUT = 50, 2000

# 'auto' means so many passes over the rows, within these bounds. Large tables with hardly any noise
# need them; training on others stops long before.
_PASSES, _FEWEST_STEPS, _MOST_STEPS = 200, 5000, 16_000

# Rows per step that 'auto' means, from so many rows on.
_BATCH_BY_ROWS = {0: 32, 4000: 64}


def check_setup(estimator: Any, rows: int) -> Setup:
    """The checked hyper-parameters of an estimator for so many rows."""
    batch = _check_batch(estimator.batch_size, rows)
    size, patience = estimator.max_kl, check_setting("patience", estimator.patience, above=0)
    fraction = check_setting("validation_fraction", estimator.validation_fraction, above=0, below=1)
    check_flag("shrink_variance", estimator.shrink_variance)
    return Setup(
        members=check_count("n_members", estimator.n_members),
        hidden=check_hidden(estimator.hidden_layer_sizes),
        methods=check_methods(estimator.methods, rows),
        size=None if size is None else check_setting("max_kl", size, above=0),
        plan=Plan(
            steps=_check_steps(estimator.max_steps, rows, batch),
            batch_size=batch,
            held_out=min(fraction, _MOST_HELD_OUT / rows),
            looks=_LOOKS,
            patience=patience,
            average=_AVERAGED_STEPS,
            eager=patience < 1,  # who gives more wants all steps
        ),
        show_progress=check_flag("show_progress", estimator.show_progress),
        checkpoint_dir=check_folder(estimator.checkpoint_dir, estimator.random_state),
    )


def _check_batch(size: Any, rows: int) -> int:
    if isinstance(size, str) and size == "auto":
        return _BATCH_BY_ROWS[max(least for least in _BATCH_BY_ROWS if least <= rows)]
    if isinstance(size, str):
        raise ValueError(f"`batch_size` must be a positive integer or 'auto', got {size!r}.")
    return check_count("batch_size", size)


def _check_steps(steps: Any, rows: int, batch: int) -> int:
    if isinstance(steps, str) and steps == "auto":
        return min(max(_FEWEST_STEPS, _PASSES * rows // batch), _MOST_STEPS)
    if isinstance(steps, str):
        raise ValueError(f"`max_steps` must be a positive integer or 'auto', got {steps!r}.")
    return check_count("max_steps", steps)
