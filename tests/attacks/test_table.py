"""The table of attacks in the documentation is that of the stored results, and none succeeded."""

from benchmarks.machinery.store import Store
from tests.attacks import BAD
from tests.attacks.__main__ import TABLE, attacks, table


def test_the_table_is_that_of_the_stored_results():
    assert TABLE.read_text() == table(Store())


def test_every_attack_is_in_the_table_and_none_succeeded():
    stored = {cell["spec"]["attack"]: cell["result"] for cell in Store().cells("attacks")}
    assert set(stored) == {title for title, _ in attacks().values()}
    for title, outcomes in stored.items():
        assert not [name for name in outcomes if name.startswith(BAD)], title
        assert outcomes.get("files that differ", 0) == 0, title
        assert outcomes.get("files left behind", 0) == 0, title
