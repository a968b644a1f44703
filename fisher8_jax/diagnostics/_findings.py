"""What the doctor says: findings with the figures behind them."""

import dataclasses
import textwrap
from collections.abc import Mapping
from typing import Literal

from fisher8_jax._internal.html import note
from fisher8_jax._internal.plain import json_number

Severity = Literal["error", "warning"]

# What is said before everything else, in this order; `mean_off` only if the units are wrong.
_FIRST = ("no_data", "non_finite_targets", "target_scale_off", "mean_off", "collapsed")


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
        return {
            "code": self.code,
            "severity": self.severity,
            "sentence": self.sentence,
            "figures": figures,
            "advice": self.advice,
            "target": self.target,
        }

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
    """All findings, causes and errors first; false in a condition when there is none.

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
