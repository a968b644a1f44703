"""Annotations that say something: few `Any`, few suppressions, all programs type-checked."""

import pathlib
import re
import tokenize
import tomllib

from tests.places import LIBRARY, ROOT

PROGRAMS = [p for name in ("benchmarks", "examples", "tests") for p in (ROOT / name).rglob("*.py")]

# As many as there were when the limit was set: a new one takes the place of an old one.
SUPPRESSIONS_IN_THE_LIBRARY = 17
SUPPRESSIONS_IN_ALL = 28


def test_any_is_rare_in_the_library():
    """At most 12 per thousand lines, imports included; say `chex.ArrayTree`, `object`, ..."""
    lines = names = 0
    for path in LIBRARY:
        with path.open("rb") as file:
            tokens = list(tokenize.tokenize(file.readline))
        lines += tokens[-1].start[0] - 1
        names += sum(token.type == tokenize.NAME and token.string == "Any" for token in tokens)
    assert 1000 * names / lines <= 12


def suppressions(paths: list[pathlib.Path]) -> int:
    found = 0
    for path in paths:
        with path.open("rb") as file:
            comments = [
                t.string for t in tokenize.tokenize(file.readline) if t.type == tokenize.COMMENT
            ]
        found += sum(bool(re.search(r"noqa|type: ignore", comment)) for comment in comments)
    return found


def test_suppressions_do_not_grow():
    in_library = suppressions(LIBRARY)
    assert in_library <= SUPPRESSIONS_IN_THE_LIBRARY
    assert in_library + suppressions(PROGRAMS) <= SUPPRESSIONS_IN_ALL


def test_the_type_checker_reads_library_benchmarks_and_examples():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(settings["tool"]["mypy"]["files"]) >= {"fisher8_jax", "benchmarks", "examples"}
