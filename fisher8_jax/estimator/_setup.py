"""From an estimator's hyper-parameters to the plan of its training."""

import itertools
from typing import Any, NamedTuple

from fisher8_jax._internal.checks import check_choice, check_count
from fisher8_jax._internal.progress import is_watched
from fisher8_jax.estimator._checkpoints import check_folder
from fisher8_jax.estimator._estimator_checks import (
    check_flag,
    check_hidden,
    check_setting,
    from_rows_on,
)
from fisher8_jax.estimator._methods import check_methods
from fisher8_jax.estimator._training import Setup
from fisher8_jax.training import Plan


class Effort(NamedTuple):
    """What a fit may cost."""

    members: int
    steps: float
    """Relative to the default."""


EFFORTS = {"quick": Effort(3, 1 / 3), "default": Effort(5, 1), "best": Effort(15, 3)}

# The average of parameters over about this many steps is validated and kept.
_AVERAGED_STEPS = 100.0

# This many rows tell how good a network is, and every validation is a pass over them.
_VALIDATIONS, _MOST_HELD_OUT = 50, 2000

# 'auto' means this many passes over the rows, within these bounds. Large tables with almost no
# noise need them; training on others stops long before.
_PASSES, _FEWEST_STEPS, _MOST_STEPS = 100, 4000, 12_000

# Where only a part of the rows is new: that part of the steps of a first fit, within these bounds.
_MOST_STEPS_FOR_NEW, _FEWEST_STEPS_FOR_NEW = 0.25, 200

_MOST_NUMBERS = 2**31  # parameters of all members, or their losses at every step

# Rows per step that 'auto' means, from a number of rows on.
_BATCH_BY_ROWS = {0: 32, 600: 64}


def check_setup(estimator: Any, rows: int, *, new_rows: int | None = None) -> Setup:
    """The checked hyper-parameters of an estimator for a number of rows.

    Members that are trained already make fewer steps, the fewer of the rows are new to them.
    """
    check_choice("effort", estimator.effort, EFFORTS)
    effort = EFFORTS[estimator.effort]
    automatic_batch = from_rows_on(_BATCH_BY_ROWS, rows)
    batch = _check_count_or_auto("batch_size", estimator.batch_size, automatic_batch)
    automatic_steps = min(max(_FEWEST_STEPS, _PASSES * rows // batch), _MOST_STEPS)
    automatic_steps = round(effort.steps * automatic_steps)
    if new_rows is not None:
        share = min(new_rows / rows, _MOST_STEPS_FOR_NEW)
        automatic_steps = max(round(share * automatic_steps), _FEWEST_STEPS_FOR_NEW)
    patience = check_setting("patience", estimator.patience, above=0)
    fraction = check_setting("validation_fraction", estimator.validation_fraction, above=0, below=1)
    check_flag("shrink_variance", estimator.shrink_variance)
    members = _check_count_or_auto("n_members", estimator.n_members, effort.members)
    hidden = check_hidden(estimator.hidden_layer_sizes)
    steps = _check_count_or_auto("max_steps", estimator.max_steps, automatic_steps)
    _check_size(members, hidden, steps)
    return Setup(
        members=members,
        hidden=hidden,
        recipes=check_methods(estimator.methods, rows, estimator.bins),
        plan=Plan(
            steps=steps,
            batch_size=batch,
            validation_fraction=min(fraction, _MOST_HELD_OUT / rows),
            num_validations=_VALIDATIONS,
            patience=patience,
            average=_AVERAGED_STEPS,
            eager=patience < 1,  # who gives more wants all steps
            free_variance=True,
        ),
        # Silent where nobody watches, as estimators are: a search fits hundreds of them.
        show_progress=check_flag("show_progress", estimator.show_progress) and is_watched(),
        checkpoint_dir=check_folder(estimator.checkpoint_dir, estimator.random_state),
    )


def _check_size(members: int, hidden: tuple[int, ...], steps: int) -> None:
    """Refuses networks and histories of training that no memory holds."""
    weights = members * sum(a * b for a, b in itertools.pairwise((1, *hidden, 1)))
    if weights > _MOST_NUMBERS:
        raise ValueError(
            f"`n_members` {members} of `hidden_layer_sizes` {hidden} have {weights:.1e} parameters;"
            f" the most is {_MOST_NUMBERS:.1e}. Give fewer members or narrower layers."
        )
    if members * steps > _MOST_NUMBERS:
        raise ValueError(
            f"`max_steps` {steps} of `n_members` {members} are {members * steps:.1e} losses to "
            f"keep; the most is {_MOST_NUMBERS:.1e}. Give fewer steps; 'auto' takes at most "
            f"{_MOST_STEPS:,}."
        )


def _check_count_or_auto(name: str, value: Any, automatic: int) -> int:
    if isinstance(value, str) and value == "auto":
        return automatic
    if isinstance(value, str):
        raise ValueError(f"`{name}` must be a positive integer or 'auto', got {value!r}.")
    return check_count(name, value)
