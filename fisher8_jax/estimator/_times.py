"""Times as elapsed seconds and as phases of the day, the week, the month and the year.

A phase is a sine and a cosine, so that midnight is next to midnight. A period is used where the
data cover more than one of it and are finer than it: one day of measurements has no phase of the
week, and daily ones have none of the day.
"""

from typing import Any, NamedTuple, Self

import numpy as np

from fisher8_jax.estimator._numbers import NumberCode

# Periods in seconds; month and year are the mean ones.
_PERIODS = {"day": 86_400.0, "week": 604_800.0, "month": 2_629_746.0, "year": 31_556_952.0}


class TimeCode(NamedTuple):
    """The elapsed time as a number, and the periods whose phase is used."""

    elapsed: NumberCode
    periods: tuple[str, ...]

    @classmethod
    def fit(cls, seconds: np.ndarray) -> Self:
        """Learns scale and periods."""
        known = seconds[np.isfinite(seconds)]
        covered = float(known.max() - known.min()) if len(known) else 0.0
        steps = np.diff(np.unique(known))
        finest = float(steps.min()) if len(steps) else np.inf
        used = [name for name, period in _PERIODS.items() if covered > period > 1.5 * finest]
        return cls(NumberCode.fit(seconds), tuple(used))

    def encode(self, seconds: np.ndarray) -> np.ndarray:
        """Elapsed time and phases; a missing time has none."""
        parts = [self.elapsed.encode(seconds)]
        is_known = np.isfinite(seconds)
        filled = np.where(is_known, seconds, 0.0)
        for name in self.periods:
            angle = 2 * np.pi * _phase(name, filled)
            waves = np.stack([np.sin(angle), np.cos(angle)], axis=1)
            parts.append(np.where(is_known[:, None], waves, 0.0))
        return np.concatenate(parts, axis=1)

    def outside(self, seconds: np.ndarray) -> np.ndarray:
        """How far a time lies beyond the data."""
        return self.elapsed.outside(seconds)

    @classmethod
    def from_config(cls, fields: list[Any]) -> Self:
        """The code with these fields."""
        elapsed, periods = fields
        if not set(periods) <= set(_PERIODS):
            raise ValueError(f"a time has the periods {periods!r}, known are {list(_PERIODS)}")
        return cls(NumberCode(*elapsed), tuple(periods))


def _phase(name: str, seconds: np.ndarray) -> np.ndarray:
    if name != "month":
        return seconds / _PERIODS[name]
    # The calendar's months, because wages and rents come on a day of them.
    days = np.floor(seconds / 86_400).astype(np.int64).astype("datetime64[D]")
    months = days.astype("datetime64[M]")
    first, last = (edge.astype("datetime64[D]").astype(np.int64) for edge in (months, months + 1))
    return (seconds / 86_400 - first) / (last - first)
