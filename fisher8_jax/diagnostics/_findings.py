"""What the doctor says: findings with the figures behind them."""

import dataclasses
import textwrap
from collections.abc import Mapping
from typing import Literal

Severity = Literal["error", "warning"]


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

    def __str__(self) -> str:
        place = "" if self.target is None else f" [{self.target}]"
        head = f"{self.severity}: {self.code}{place}"
        lines = [self.sentence, f"What to change: {self.advice}"]
        figures = ", ".join(f"{name} = {value:.4g}" for name, value in self.figures.items())
        lines += [f"Figures: {figures}"] if figures else []
        body = [textwrap.fill(line, 96, subsequent_indent="  ") for line in lines]
        return "\n".join([head, *(textwrap.indent(part, "  ") for part in body)])


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """All findings, errors first; false in a condition when there is none.

    Example:
        >>> print(Diagnosis(()))
        No fault found.
    """

    findings: tuple[Finding, ...]

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the findings, each once, errors first."""
        return tuple(dict.fromkeys(finding.code for finding in self.findings))

    def __bool__(self) -> bool:
        return bool(self.findings)

    def __str__(self) -> str:
        if not self.findings:
            return "No fault found."
        return "\n\n".join(str(finding) for finding in self.findings)


def sorted_by_severity(findings: list[Finding]) -> tuple[Finding, ...]:
    """Errors before warnings, otherwise in the order given."""
    return tuple(sorted(findings, key=lambda finding: finding.severity != "error"))
