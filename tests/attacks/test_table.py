"""The table of attacks in the documentation is that of the stored results, and none succeeded."""

from benchmarks.machinery.store import Store
from tests.attacks import BAD
from tests.attacks.__main__ import AGAIN, ATTACKS, TABLES_OF, table


def test_the_tables_are_those_of_the_stored_results():
    for path, attacks in TABLES_OF.items():
        assert path.read_text() == table(Store(), attacks)


def test_every_attack_is_stored_and_none_succeeded():
    store = Store()
    for attack in [*ATTACKS, *AGAIN]:
        outcomes = store.read(attack.cell, attack.spec)
        assert outcomes is not None, attack.title
        assert not [name for name in outcomes if name.startswith(BAD)], attack.title
        assert outcomes.get("files that differ", 0) == 0, attack.title
        assert outcomes.get("files left behind", 0) == 0, attack.title
