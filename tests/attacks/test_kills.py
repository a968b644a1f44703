"""Kills at ten random moments each, and one of several processes killed in training."""

import pytest

from tests.attacks import kills, processes

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", kills.VICTIMS)
def test_kills_change_nothing_and_leave_nothing(tmp_path, name):
    found = kills.attack(name, tmp_path, kills=10)
    assert found.pop("kills") >= 5  # of ten, the rest came after the end
    assert found == {"files that differ": 0, "files left behind": 0}


@pytest.mark.parametrize(("count", "victim"), [(2, 1), (2, 0), (4, 3)])
def test_one_of_several_processes_is_killed(tmp_path, count, victim):
    found = processes.attack(tmp_path, count, victim)
    # The last state that all had saved before step 8; that of step 6 may have been under way.
    assert found.pop("restarted at step") in (3, 6)
    assert found == {
        f"others that ended within {processes.BOUND} s": count - 1,
        "others that failed": count - 1,
        "others that said why": count - 1,
        "files that differ": 0,
        "files left behind": 0,
    }
