"""Rules of the doctor that look at the training record, and at networks that have collapsed."""

import math

import numpy as np

from fisher8_jax.diagnostics._findings import Finding, TrainingRecord
from fisher8_jax.diagnostics._scores import Predictions
from fisher8_jax.diagnostics._statistics import Thresholds, part_means, split_by_distance

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


# Loss curves are compared by tenths of the way, of at least four steps each.
_PARTS, _FEWEST_STEPS = 10, 40


def judge_steps(record: TrainingRecord, limits: Thresholds) -> list[Finding]:
    """Are the steps too large? Nan, a loss that climbed back, or predictions that jump."""
    evidence, figures = [], {}
    losses, step_kl = record.series("losses"), record.series("step_kl")
    if losses is not None and not np.isfinite(losses).all():
        first = int(np.argmin(np.isfinite(losses)))
        evidence.append(f"the loss left the finite numbers at step {first}")
        figures["first_bad_step"] = float(first)
    elif losses is not None and losses.size >= _FEWEST_STEPS:
        for name, (rise, error) in _rises(record, losses).items():
            if rise > limits.material and limits.is_significant(rise, error):
                evidence.append(f"the training loss ended {rise:.3g} nats above its {name}")
                figures[f"rise_above_{name.replace(' ', '_')}"] = rise
    if step_kl is not None and step_kl.size:
        violent = float(np.mean(step_kl > 1))
        if violent > 0.01:
            evidence.append(
                f"{100 * violent:.0f} % of the steps moved the predictions by more than one nat"
            )
            figures["share_of_violent_steps"] = violent
    if not evidence:
        return []
    sentence = f"The learning rate is too high: {'; '.join(evidence)}."
    advice = f"Lower it{_from_rate(record)} or let it decay, or bound the step by a KL radius."
    return [Finding("learning_rate_too_high", "error", sentence, figures, advice)]


def _rises(record: TrainingRecord, losses: np.ndarray) -> dict[str, tuple[float, float]]:
    """How far the last tenth lies above the best one and above the first step, with errors."""
    means, errors = _tenths(record, losses)
    best = int(np.argmin(means))
    # The error of a single step is judged from the steps at the end.
    single = float(losses[-(losses.size // _PARTS) :].std(ddof=1))
    return {
        "best tenth": (float(means[-1] - means[best]), math.hypot(errors[-1], errors[best])),
        "first step": (float(means[-1] - losses[0]), math.hypot(errors[-1], single)),
    }


def _tenths(record: TrainingRecord, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rate = record.series("learning_rate")
    return part_means(split_by_distance(losses, _PARTS, rate))


def judge_noise_walk(record: TrainingRecord, limits: Thresholds) -> list[Finding]:
    """Do the last steps still move the predictions, without lowering the loss any more?

    At an optimum the gradient of a batch is noise, and a step that follows it is a step at random.
    """
    step_kl, losses = record.series("step_kl"), record.series("losses")
    if step_kl is None or not step_kl.size or judge_steps(record, limits):
        return []
    final = float(np.median(step_kl[-max(1, step_kl.size // _PARTS) :]))
    if final <= limits.material:
        return []
    figures = {"final_step_kl": final}
    still = "."
    if losses is not None and losses.size >= _FEWEST_STEPS and np.isfinite(losses).all():
        means, errors = _tenths(record, losses)
        drop, error = means[-2] - means[-1], math.hypot(errors[-2], errors[-1])
        if drop > limits.material and limits.is_significant(drop, error):
            return []  # still learning: long steps are no fault
        figures["last_drop_in_nats"] = float(drop)
        still = f", while the last tenth lowered the loss by no more than {max(drop, 0.0):.2g}."
    sentence = (
        f"Training ended in a walk at random: single steps still moved the predictions by "
        f"{final:.3g} nats per target{still}"
    )
    advice = (
        f"Let the learning rate or `max_kl` decay to zero ({_rate(record)}), as "
        "`fisher8_optimizer(num_steps)` does, average the parameters over the last steps, or take "
        "larger batches."
    )
    return [Finding("noise_walk", "error", sentence, figures, advice)]


def judge_progress(record: TrainingRecord, limits: Thresholds) -> list[Finding]:
    """Did training stop while the loss was still falling?

    Not asked of steps that are too large, nor when the validation loss says to stop earlier.
    """
    if judge_steps(record, limits) or judge_overfitting(record, limits):
        return []
    losses = record.series("losses")
    if losses is None or losses.size < _FEWEST_STEPS or not np.isfinite(losses).all():
        return []
    means, errors = _tenths(record, losses)
    drop, error = means[-2] - means[-1], math.hypot(errors[-2], errors[-1])
    if not (drop > limits.material and limits.is_significant(drop, error)):
        return []
    typical = (means[0] - means[-1]) / (_PARTS - 1)
    figures = {"last_drop_in_nats": float(drop), "typical_drop_in_nats": float(typical)}
    falling = f"the last tenth of the way still lowered the loss by {drop:.3g} nats"
    # A curve that converges flattens; one that is held back by its step is straight.
    if drop > 0.5 * typical:
        sentence = f"The learning rate is too low: {falling}, and the whole curve is that steep."
        advice = f"Raise it{_from_rate(record)} several times over before training for longer."
        return [Finding("learning_rate_too_low", "warning", sentence, figures, advice)]
    sentence = f"Training stopped too early: {falling}."
    return [Finding("undertrained", "warning", sentence, figures, "Train for more steps.")]


def judge_overfitting(record: TrainingRecord, limits: Thresholds) -> list[Finding]:
    """Did the loss on held-out data rise again?"""
    losses = record.series("validation_losses")
    parts = _PARTS // 2
    if losses is None or losses.size < 4 * parts or not np.isfinite(losses).all():
        return []
    means, errors = part_means(split_by_distance(losses, parts, None))
    best = int(np.argmin(means))
    rise, error = means[-1] - means[best], math.hypot(errors[-1], errors[best])
    if not (rise > limits.material and limits.is_significant(rise, error)):
        return []
    position = (best + 0.5) / parts
    sentence = (
        f"The network fits noise: the validation loss was best around {100 * position:.0f} % of "
        f"the training and ended {rise:.3g} nats higher."
    )
    figures = {"rise_in_nats": float(rise), "best_position": position}
    advice = "Stop at the lowest validation loss, regularise, use a smaller network or more data."
    return [Finding("overfitted", "warning", sentence, figures, advice)]


def judge_target_scale(record: TrainingRecord, limits: Thresholds) -> list[Finding]:
    """Are the targets far from where a fresh network starts, at mean 0 and variance 1?

    The distance is `KL(N(target_mean, target_std^2) || N(0, 1))`; one nat is the limit. A standard
    deviation of 2.1 or 0.23 is one nat away; so is a mean of 1.4 at standard deviation 1.
    """
    mean = 0.0 if record.target_mean is None else record.target_mean
    std = 1.0 if record.target_std is None else record.target_std
    return scale_finding(mean, std, "the network is trained on targets")


def distance_from_unit_scale(mean: float, std: float) -> float:
    """The divergence of a normal distribution from the standard one, in nats."""
    log_std = -math.inf if std == 0 else math.log(std)
    return 0.5 * (std**2 + mean**2 - 1) - log_std


def scale_finding(mean: float, std: float, who: str) -> list[Finding]:
    """The finding about targets of a mean and a standard deviation, if they are far off."""
    distance = distance_from_unit_scale(mean, std)
    if distance <= 1:
        return []
    sentence = (
        f"The scale of the targets is off: {who} of mean {mean:.4g} and standard deviation "
        f"{std:.4g}, {distance:.3g} nats from the mean 0 and standard deviation 1 that a fresh "
        "network starts from."
    )
    figures = {"target_mean": mean, "target_std": std, "distance_in_nats": distance}
    advice = (
        "Train on `(targets - shift) / scale` with the mean and standard deviation of the training "
        "targets and bring predictions back with `dist.unscale(shift, scale)`."
    )
    return [Finding("target_scale_off", "warning", sentence, figures, advice)]


def judge_starvation(record: TrainingRecord, limits: Thresholds) -> list[Finding]:
    """Did the top 1 % of points hold most of the mean's gradient during training?"""
    shares = record.series("top_gradient_share")
    if shares is None or not np.isfinite(shares).any():
        return []
    share = float(np.nanmedian(shares))
    if share <= 0.5:
        return []
    sentence = (
        f"Most points are starved: in a typical step the top 1 % of points held {100 * share:.0f} "
        "% of the mean's gradient (about 4 % is usual)."
    )
    advice = "Train with `fisher8`, or clip the gradient per point; look for outliers in the data."
    figures = {"top_gradient_share": share}
    return [Finding("points_starved", "warning", sentence, figures, advice)]


def _rate(record: TrainingRecord) -> str:
    rate = record.series("learning_rate")
    return "it ended too high" if rate is None else f"it ended at {rate[-1]:.3g}"


def _from_rate(record: TrainingRecord) -> str:
    rate = record.series("learning_rate")
    return "" if rate is None else f" from {rate.max():.3g}"


def judge_accumulation(record: TrainingRecord, limits: Thresholds) -> list[Finding]:
    """Were gradients of micro-batches averaged, each with norms or a radius of its own?"""
    if "MultiStepsState" not in (record.optimizer or ()):
        return []
    sentence = (
        "The optimizer averages gradients of micro-batches (`optax.MultiSteps`). Fisher8 "
        "normalises each by itself, and a KL radius sees the last one alone: their average is no "
        "step of the whole batch."
    )
    advice = (
        "Use `microbatched_value_and_grad`, which gives the gradient of the whole batch. Gradients "
        "of a loss without `fisher8` may be averaged."
    )
    return [Finding("micro_batches_normalised", "warning", sentence, {}, advice)]


TRAINING_RULES = (
    judge_accumulation,
    judge_steps,
    judge_noise_walk,
    judge_progress,
    judge_overfitting,
    judge_dead_units,
)
# Possible causes: said only next to something that went wrong.
CAUSE_RULES = (judge_target_scale, judge_starvation)
