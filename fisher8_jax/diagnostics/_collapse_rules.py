"""Rules of the doctor for networks that no longer look at their input."""

import numpy as np

from fisher8_jax.diagnostics._findings import Finding
from fisher8_jax.diagnostics._record import TrainingRecord
from fisher8_jax.diagnostics._scores import Predictions
from fisher8_jax.diagnostics._statistics import Thresholds

# Fewer equal predictions may be equal inputs.
_FEWEST_POINTS = 30

_CURE = (
    "Start again from fresh parameters with shorter steps: `fisher8_optimizer(num_steps)` bounds "
    "how far parameters move (`max_change`); otherwise a smaller learning rate or `max_kl`, with a "
    "warm-up. A longer training or a larger learning rate does not bring dead units back. "
    "An activation with a gradient on both sides (tanh, GELU, ELU) dies less easily than ReLU."
)


def is_constant(points: Predictions) -> bool:
    """Whether all predictions of a target are equal, up to rounding in single precision."""
    if points.mean.size < _FEWEST_POINTS:
        return False
    for column in (points.mean, points.log_variance):
        values = column[np.isfinite(column)]
        if values.size == 0 or np.ptp(values) > 1e-6 * max(1.0, float(np.abs(values).max())):
            return False
    return True


def judge_collapse(
    columns: list[Predictions], record: TrainingRecord, limits: Thresholds
) -> list[Finding]:
    """Do predictions depend on the input? Seen in the predictions, or noted during training."""
    sized = [points for points in columns if points.mean.size >= _FEWEST_POINTS]
    alike = bool(sized) and all(is_constant(points) for points in sized)
    noted = record.series("constant_share")
    share = 1.0 if alike else 0.0 if noted is None or not noted.size else float(noted[-1])
    if not share > 0.5:
        return []
    figures = {"constant_share": share}
    when = ""
    if noted is not None and np.any(noted > 0.5):
        first = int(np.argmax(noted > 0.5))
        figures["first_step"] = float(first)
        when = f" Step {first} is the first at which most of the batch did so."
    dead = {name: part for name, part in record.dead_share.items() if part > 0.5}
    figures |= {f"dead_share_{name}": part for name, part in dead.items()}
    layers = ", ".join(f"{100 * part:.0f} % of {name}" for name, part in dead.items())
    cause = f" Dead units: {layers}." if layers else ""
    said = "all predictions are equal" if alike else f"{100 * share:.0f} % of the batch"
    what = said if alike else f"the prediction of {said} does not change with the input"
    sentence = f"The network has collapsed to one answer: {what}.{when}{cause}"
    return [Finding("collapsed", "error", sentence, figures, _CURE)]


def judge_dead_units(record: TrainingRecord, limits: Thresholds) -> list[Finding]:
    """Are most units of a layer dead?"""
    dead = {name: share for name, share in record.dead_share.items() if share > 0.5}
    if not dead:
        return []
    layers = ", ".join(f"{100 * share:.0f} % of {name}" for name, share in dead.items())
    sentence = (
        f"Most units of a layer are dead, {layers}: they give the same value for every input and "
        "get no gradient."
    )
    return [Finding("dead_units", "warning", sentence, dict(dead), _CURE)]
