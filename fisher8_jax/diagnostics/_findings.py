"""What the doctor says: findings with the figures behind them."""

import dataclasses
import math
import textwrap
from collections.abc import Mapping
from typing import Any, Literal

import chex
import numpy as np
from jax.typing import ArrayLike

from fisher8_jax._internal.checks import check_host_array
from fisher8_jax._internal.html import json_number, note

Severity = Literal["error", "warning"]

# What is said before everything else, in this order; `mean_off` only if the units are wrong.
_FIRST = (
    "no_data",
    "non_finite_targets",
    "placeholder_targets",
    "target_scale_off",
    "mean_off",
    "collapsed",
    "input_scale_off",
    "mean_uninformative",
)


@dataclasses.dataclass(frozen=True)
class Finding:
    """One fault.

    Args:
        code: a stable name, for instance "overconfident".
        severity: "error" if the predictions should not be used, else "warning".
        sentence: what is wrong, in words, with the figures.
        figures: the figures themselves.
        advice: what to change.
        target: name of the target it concerns, None if there is one target or it concerns all.

    Example:
        >>> finding = Finding("unsure", "warning", "It is unsure.", {"share": 0.5}, "Look again.")
        >>> print(finding)
        warning: unsure
          It is unsure.
          What to change: Look again.
          Figures: share = 0.5
    """

    code: str
    severity: Severity
    sentence: str
    figures: Mapping[str, float]
    advice: str
    target: str | None = None

    def as_dict(self) -> dict[str, object]:
        """The finding as strings and numbers for JSON; figures that are not finite are None."""
        figures = {name: json_number(value) for name, value in self.figures.items()}
        return {**vars(self), "figures": figures}

    def _title(self) -> str:
        return self.code if self.target is None else f"{self.code} [{self.target}]"

    def _paragraphs(self) -> list[str]:
        figures = ", ".join(f"{name} = {value:.4g}" for name, value in self.figures.items())
        lines = [self.sentence, f"What to change: {self.advice}"]
        return [*lines, f"Figures: {figures}"] if figures else lines

    def _repr_html_(self) -> str:
        return note(self.severity, self._title(), self._paragraphs())

    def __str__(self) -> str:
        body = [textwrap.fill(line, 96, subsequent_indent="  ") for line in self._paragraphs()]
        head = f"{self.severity}: {self._title()}"
        return "\n".join([head, *(textwrap.indent(part, "  ") for part in body)])


@dataclasses.dataclass(frozen=True, repr=False)
class Diagnosis:
    """All findings, causes and errors first; `bool(diagnosis)` is False if there is none.

    Example:
        >>> print(Diagnosis(()))
        No fault found.
    """

    findings: tuple[Finding, ...]

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the findings, each once, in the order of the findings."""
        return tuple(dict.fromkeys(finding.code for finding in self.findings))

    def as_dict(self) -> dict[str, object]:
        """All findings as strings and numbers, for `json.dumps`.

        Example:
            >>> import json
            >>> finding = Finding("overconfident", "error", "Too small.", {"m": 2.0}, "Widen.")
            >>> json.loads(json.dumps(Diagnosis((finding,)).as_dict()))["findings"][0]["figures"]
            {'m': 2.0}
        """
        return {"findings": [finding.as_dict() for finding in self.findings]}

    def __bool__(self) -> bool:
        return bool(self.findings)

    def _repr_html_(self) -> str:
        if not self.findings:
            return f"<p>{self!r}</p>"
        return "".join(finding._repr_html_() for finding in self.findings)

    def __repr__(self) -> str:
        if not self.findings:
            return "No fault found."
        return "\n\n".join(str(finding) for finding in self.findings)


def sorted_by_severity(findings: list[Finding]) -> tuple[Finding, ...]:
    """Causes before what they cause, errors before warnings, otherwise in the order given.

    Data that are missing or of another scale make everything after them unreliable, so they are
    named first.
    """

    def place(finding: Finding) -> tuple[int, bool]:
        is_cause = finding.code in _FIRST and (finding.code, finding.severity) != (
            "mean_off",
            "warning",
        )
        first = _FIRST.index(finding.code) if is_cause else len(_FIRST)
        return first, finding.severity != "error"

    return tuple(sorted(findings, key=place))


_SERIES = (
    "losses",
    "validation_losses",
    "step_kl",
    "learning_rate",
    "smallest_log_variance",
    "largest_log_variance",
    "top_gradient_share",
    "constant_share",
)


@dataclasses.dataclass(frozen=True)
class TrainingRecord:
    """Notes of a training run; every field is optional, and each one lets the doctor see more.

    Args:
        losses: the mean NLL per element of every step, in nats and in training units.
        validation_losses: the same on held-out data, at any cadence.
        learning_rate: one number, or one per step if it follows a schedule. Progress is then
            measured per distance travelled, so that a decayed learning rate does not pass for
            convergence.
        step_kl: mean over a batch of `KL(before || after)` for every step, which is
            divided by the number of predictions.
        smallest_log_variance: over the batch, of every step.
        largest_log_variance: over the batch, of every step.
        log_variance_bounds: (lower, upper) at which the head is clipped; None for an open side.
        top_gradient_share: of the mean, as `top_gradient_share` gives it, of every step.
        constant_share: part of the batch whose prediction does not depend on the input: that a
            derivative along a random direction does not move, at any cadence.
        dead_share: part of the units of a layer that are dead at the end, by the layer's name: that
            give the same value for every point, so that they have no gradient.
        optimizer: the state of the Optax optimizer, of which the kinds of its parts are kept.
        target_mean: of the training targets as the network sees them, after any scaling.
        target_std: likewise.

    Example:
        >>> record = TrainingRecord(losses=[2.0, 1.5, 1.2], target_mean=0.0, target_std=1.0)
        >>> record.losses
        array([2. , 1.5, 1.2])
        >>> record.as_dict()["losses"]
        [2.0, 1.5, 1.2]
    """

    losses: ArrayLike | None = None
    validation_losses: ArrayLike | None = None
    learning_rate: float | ArrayLike | None = None
    step_kl: ArrayLike | None = None
    smallest_log_variance: ArrayLike | None = None
    largest_log_variance: ArrayLike | None = None
    log_variance_bounds: tuple[float | None, float | None] = (None, None)
    top_gradient_share: ArrayLike | None = None
    constant_share: ArrayLike | None = None
    dead_share: Mapping[str, float] = dataclasses.field(default_factory=dict)
    optimizer: chex.ArrayTree | tuple[str, ...] | None = None
    target_mean: float | None = None
    target_std: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "optimizer", _kinds(self.optimizer))
        for name in _SERIES:
            series = self.series(name)
            if series is not None:
                object.__setattr__(self, name, series)
        if len(self.log_variance_bounds) != 2:
            raise ValueError(
                "`log_variance_bounds` must be (lower, upper) with None for an open side, "
                f"got {self.log_variance_bounds!r}."
            )
        for name, share in self.dead_share.items():
            if not 0 <= share <= 1:
                raise ValueError(
                    f"`dead_share` must hold shares from 0 to 1, got {share} for {name!r}. "
                    "Pass `float(jnp.mean(jnp.ptp(activations, axis=0) == 0))` of each layer."
                )
        if self.target_std is not None and not 0 <= self.target_std < math.inf:
            raise ValueError(
                f"`target_std` must be finite and not negative, got {self.target_std}."
            )

    def series(self, name: str) -> np.ndarray | None:
        """One of the per-step fields in double precision, or None."""
        value = getattr(self, name)
        if value is None:
            return None
        array = check_host_array(name, value).astype(np.float64)
        if name == "learning_rate" and array.ndim == 0:
            array = array[None]
        if array.ndim != 1:
            raise ValueError(
                f"`{name}` must hold one number per step, got shape {array.shape}. "
                "Average over everything but the steps first."
            )
        return array

    def as_dict(self) -> dict[str, object]:
        """The notes that were given, as numbers, lists and dictionaries for JSON."""
        given = {name: note for name, note in vars(self).items() if note is not None}
        return {name: _plain(note) for name, note in given.items() if name != "optimizer" or note}


def _plain(note: Any) -> object:
    if isinstance(note, Mapping):
        return {name: float(share) for name, share in note.items()}
    if isinstance(note, np.ndarray):
        return [json_number(x) for x in note]
    return list(note) if isinstance(note, tuple) else json_number(note)


def _kinds(state: object) -> tuple[str, ...]:
    """The names of the named tuples that an Optax state consists of."""
    if isinstance(state, str):  # the kinds themselves, as they are kept
        return (state,)
    if isinstance(state, Mapping):
        state = tuple(state.values())
    if not isinstance(state, tuple | list):
        return ()
    own = (type(state).__name__,) if hasattr(state, "_fields") else ()
    return tuple(dict.fromkeys((*own, *(kind for part in state for kind in _kinds(part)))))
