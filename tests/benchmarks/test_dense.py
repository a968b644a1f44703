"""The dense example: the documented table is the stored one."""

import pathlib

from benchmarks.experiments.dense.command import METHODS, table
from benchmarks.machinery.store import Store

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def test_the_docs_show_the_stored_table():
    result = Store().read("dense/stereo")
    assert result is not None
    assert [row["method"] for row in result["rows"]] == list(METHODS)
    assert "\n".join(table(result["rows"])) in (DOCS / "families.md").read_text()
