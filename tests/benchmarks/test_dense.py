"""The dense example: the documented table is the stored one."""

import pathlib

from benchmarks.experiments.dense.jobs import CHOSEN
from benchmarks.experiments.dense.report import section
from benchmarks.machinery.document import table_lines
from benchmarks.machinery.store import Store

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def test_the_docs_show_the_stored_table():
    table = section(Store()).blocks[0]
    assert [row[0] for row in table.rows] == list(CHOSEN)
    header, _, *rows = table_lines(table)
    page = (DOCS / "families.md").read_text()
    assert all(line in page for line in [header, *rows])
