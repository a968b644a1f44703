"""Every figure of README and docs is in the stored results that `docs/figures.json` names.

A *figure* is a decimal, a percentage or "m of n" in prose or a table; code, formulas and links are
left out. For each page the record has the sections of the report (or the names of cells) that its
figures come from, and with a reason each those that are no results: settings, arithmetic, versions.
"""

import fnmatch
import functools
import json
import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.machinery.document import to_markdown
from benchmarks.machinery.report import collect
from benchmarks.machinery.store import Store

ROOT = Path(__file__).parents[2]
RECORD = json.loads((ROOT / "docs" / "figures.json").read_text())
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("README.md", "benchmarks/README.md", "docs/**/*.md")
    for path in ROOT.glob(pattern)
)

_LEFT_OUT = re.compile(
    r"^```.*?^```|^ {4}[^\n]*$|^---\n.*?^---\n|<!--.*?-->"
    r"|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]*\$|\]\([^)]*\)|<[^>\n]+>",
    re.S | re.M,
)
# The tables of the site have a test of their own.
_INCLUDED = re.compile(r"^```\{include\} (?!reproduction_tables)(\S+\.txt)$", re.M)
_FIGURE = re.compile(
    r"(?<![\w.,/^-])-?\d[\d,]*(?:\.\d+)? %"
    r"|(?<![\w.,/^])-?\d+\.\d+(?:e-?\d+)?(?![\w.]*\.\d)"
    r"|\b\d+ of (?:the )?\d[\d,]*\b"
)
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?")


def figures(page: str) -> list[str]:
    """The figures of a page and of the tables that it includes."""
    text = (ROOT / page).read_text(encoding="utf-8")
    tables = [(ROOT / page).with_name(name) for name in _INCLUDED.findall(text)]
    texts = [text, *(table.read_text(encoding="utf-8") for table in tables)]
    return [figure for part in texts for figure in _FIGURE.findall(_LEFT_OUT.sub(" ", part))]


@functools.cache
def sections() -> dict[str, str]:
    """The text of every section of the report."""
    return {section.title: to_markdown("", [section], None) for section in collect(Store())}


@functools.cache
def numbers_of(source: str) -> tuple[str, np.ndarray]:
    """The text of a source, and all its numbers; of cells also means and deviations of lists."""
    if source in sections():
        text = sections()[source]
        found = [float(token.replace(",", "")) for token in _NUMBER.findall(text)]
        return text, np.array(found)
    store = Store()
    paths = [
        path.relative_to(store.root).with_suffix("").as_posix()
        for path in store.root.glob("**/*.json")
    ]
    names = fnmatch.filter(paths, source)
    assert names, (
        f"`docs/figures.json` names {source!r}: neither a section of the report nor a cell."
    )
    values = [value for name in names for value in _numbers(store.read(name))]
    return "", np.array(values)


def _numbers(value) -> list[float]:
    if isinstance(value, dict):
        return [number for item in value.values() for number in _numbers(item)]
    if isinstance(value, list):
        numbers = [number for item in value for number in _numbers(item)]
        flat = [item for item in value if isinstance(item, int | float)]
        return numbers + ([float(np.mean(flat)), float(np.std(flat))] if flat else [])
    return [float(value)] if isinstance(value, int | float) else []


def is_in(figure: str, source: str) -> bool:
    """Whether some number of the source, rounded like the figure, is the figure."""
    text, numbers = numbers_of(source)
    if " of " in figure:
        return figure.replace(" of the ", " of ") in text
    digits = figure.removesuffix(" %").replace(",", "")
    mantissa, _, exponent = digits.partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(exponent or 0)
    values = np.concatenate([numbers, 100 * numbers]) if figure.endswith("%") else numbers
    return bool(np.any(np.abs(values - float(digits)) <= 0.5000001 * 10.0**-decimals))


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_has_a_cell(page):
    record = RECORD.get(page, {"from": [], "no results": {}})
    lost = [
        figure
        for figure in dict.fromkeys(figures(page))
        if figure not in record["no results"] and not any(is_in(figure, s) for s in record["from"])
    ]
    assert not lost, (
        f"{page} has figures without a source: {lost}. Name the section of the report or the cells "
        "in `docs/figures.json` (or say there why they are no results), or take them out."
    )


def test_the_record_names_only_what_there_is():
    for page, record in RECORD.items():
        present = figures(page)
        assert set(record) == {"from", "no results"}
        assert set(record["no results"]) <= set(present), page
        assert all(record["no results"].values()), f"{page}: a reason is missing"
        for source in record["from"]:
            assert any(is_in(figure, source) for figure in present), (page, source)


def test_the_tables_of_the_site_are_those_of_the_stored_results():
    written = (ROOT / "docs" / "reproduction_tables.txt").read_text(encoding="utf-8")
    assert written == to_markdown("", collect(Store()), None)


def test_a_changed_figure_would_be_found():
    """14.72 is the RMSE of Fisher8 on rotated digits; nothing there is 14.79."""
    assert is_in("14.72", "Rotated digits")
    assert not is_in("14.79", "Rotated digits")
    assert is_in("1.45", "damping/levenberg")
    assert not is_in("1.46", "damping/levenberg")
    assert not is_in("13 of 18", "Recovery of every family")
