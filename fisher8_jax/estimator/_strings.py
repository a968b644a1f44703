"""Words: one column per level where there are few levels, character n-grams where there are many.

A column of at most `MAX_LEVELS` levels is a *category*: one column per level, centred, and a level
that was never seen is the average one. More levels are *text*: tf-idf weights of the character
n-grams, hashed to a fixed number of buckets and projected on their leading principal components,
as in skrub's `StringEncoder`. Words that share letters get similar numbers, typing errors and
unseen words included, and the targets are not used, so nothing leaks.
"""

import datetime
import re
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import normalize

from fisher8_jax.estimator._frames import MISSING, timestamp
from fisher8_jax.estimator._numbers import soft_clip

MAX_LEVELS = 32

# Buckets of n-grams and components: 32 of 256 did as well as 32 of 1,024 in a network.
_BUCKETS, _COMPONENTS, _DIGITS = 256, 32, 6

_NOTHING = frozenset({"", "-", "?", "na", "n/a", "#n/a", "nan", "none", "null"})
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_CODE = re.compile(r"[+-]?0\d+")  # a leading zero: a postal code, not a number
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?")


class CategoryCode(NamedTuple):
    """The levels that have a column, and how often each was seen."""

    levels: tuple[str, ...]
    shares: tuple[float, ...]

    @classmethod
    def fit(cls, values: np.ndarray) -> Self:
        """Learns the levels, the most frequent first."""
        levels, counts = np.unique(values.astype(str), return_counts=True)
        if len(levels) < 2:
            return cls((), ())
        order = np.argsort(-counts, kind="stable")
        shares = counts[order] / len(values)
        return cls(tuple(levels[order].tolist()), tuple(shares.tolist()))

    def encode(self, values: np.ndarray) -> np.ndarray:
        """One centred column per level."""
        values = values.astype(str)
        levels, shares = np.array(self.levels, dtype=str), np.array(self.shares)
        is_level = values[:, None] == levels[None, :]
        # A level that was never seen is the average of all.
        centred = np.where(is_level.any(axis=1, keepdims=True), is_level - shares[None, :], 0.0)
        return centred / np.maximum(np.sqrt(shares * (1 - shares)), 0.2)[None, :]

    def outside(self, values: np.ndarray) -> np.ndarray:
        """Levels have no distance."""
        return np.zeros(len(values))

    @classmethod
    def from_config(cls, fields: list[Any]) -> Self:
        """The code with these fields."""
        levels, shares = fields
        return cls(tuple(levels), tuple(shares))


class TextCode(NamedTuple):
    """The weights of the n-grams' buckets and their projection."""

    weights: tuple[float, ...]
    centre: tuple[float, ...]
    """The mean of each component, which is subtracted."""
    components: tuple[tuple[float, ...], ...]
    has_missing: bool

    @classmethod
    def fit(cls, values: np.ndarray) -> Self:
        """Learns inverse document frequencies and principal components from the rows."""
        is_known = values != MISSING
        texts, counts = np.unique(values[is_known].astype(str), return_counts=True)
        counts = counts / counts.sum()
        found = _hashed(texts)
        weights = np.log(1 / np.maximum(counts @ (found != 0), 1 / len(values))) + 1
        rows = normalize(found.multiply(weights))
        centre = counts @ rows
        covariance = (rows.T @ rows.multiply(counts[:, None])).toarray() - np.outer(centre, centre)
        variances, vectors = np.linalg.eigh(covariance)
        kept = np.argsort(-variances)[:_COMPONENTS]
        kept = kept[variances[kept] > 1e-6 * variances.max()]
        components = vectors[:, kept].T
        # An eigenvector may point either way; one scale for all keeps the leading ones larger.
        largest = np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], 1)
        components = components * np.sign(largest) / np.sqrt(variances[kept].mean())
        has_missing = not is_known.all()
        return cls._of(weights, components @ centre, components, has_missing=has_missing)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """The clipped components, and a column that flags missing values if there were some."""
        is_missing = values == MISSING
        texts, places = np.unique(values.astype(str), return_inverse=True)
        rows = normalize(_hashed(texts).multiply(np.array(self.weights)))
        coded = soft_clip(rows @ np.array(self.components).T - np.array(self.centre))
        coded = np.where(is_missing[:, None], 0.0, coded[places])
        return np.column_stack([coded, is_missing]) if self.has_missing else coded

    def outside(self, values: np.ndarray) -> np.ndarray:
        """Words have no range."""
        return np.zeros(len(values))

    @classmethod
    def from_config(cls, fields: list[Any]) -> Self:
        """The code with these fields."""
        *arrays, has_missing = fields
        weights, centre, components = (np.array(array, np.float64) for array in arrays)
        shapes = weights.shape, components.shape
        if shapes != ((_BUCKETS,), (len(centre), _BUCKETS)) or centre.ndim != 1:
            raise ValueError(f"a text needs numbers for {_BUCKETS} buckets, got shapes {shapes}")
        if not all(np.isfinite(array).all() for array in (weights, centre, components)):
            raise ValueError("a text has numbers that are not finite")
        return cls._of(weights, centre, components, has_missing=bool(has_missing))

    @classmethod
    def _of(cls, *arrays: np.ndarray, has_missing: bool) -> Self:
        weights, centre, components = map(_rounded, arrays)
        return cls(weights, centre, components, has_missing)


def _hashed(texts: np.ndarray) -> Any:
    """How often each bucket's n-grams occur in each text, a sparse matrix."""
    # Without state and the same on every machine, so a file need not hold a vocabulary.
    vectorizer = HashingVectorizer(
        analyzer="char_wb", ngram_range=(2, 4), n_features=_BUCKETS, norm=None
    )
    return vectorizer.transform(texts)


def _rounded(array: np.ndarray) -> Any:
    """Nested tuples of short numbers: the file stays small and holds the very same ones."""
    if array.ndim > 1:
        return tuple(map(_rounded, array))
    return tuple(np.round(array, _DIGITS).tolist())


def is_few(values: np.ndarray) -> bool:
    """Whether words have so few levels that each gets a column."""
    return len(np.unique(values.astype(str))) <= MAX_LEVELS


def parse_numbers(values: np.ndarray) -> np.ndarray:
    """Words as numbers, nan where missing; ValueError names the first word that is none."""
    if any(_CODE.fullmatch(value) for value in values):
        raise ValueError("a code with leading zeros")
    return _parse(values, _NUMBER, float)


def parse_times(values: np.ndarray) -> np.ndarray:
    """Dates in ISO form as seconds, nan where missing; ValueError names the first other word."""
    return _parse(values, _DATE, lambda word: timestamp(datetime.datetime.fromisoformat(word)))


def _parse(
    values: np.ndarray, pattern: re.Pattern[str], read: Callable[[str], float]
) -> np.ndarray:
    parsed = np.full(len(values), np.nan)
    for row, value in enumerate(values):
        word = value.strip()
        if value == MISSING or word.lower() in _NOTHING:
            continue
        if not pattern.fullmatch(word):
            raise ValueError(repr(word))
        parsed[row] = read(word)
    return parsed
