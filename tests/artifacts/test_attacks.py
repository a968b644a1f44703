"""Some of the attacks on artifacts, the same every time; `python -m tests.attacks` tries many."""

import pytest

from tests.attacks import BAD
from tests.attacks.artifacts import (
    CRAFTED,
    attack_bytes,
    attack_headers,
    attack_with_crafted_files,
)
from tests.attacks.damage import DAMAGES


def check(found, total):
    assert sum(found.values()) == total
    assert not [outcome for outcome in found if outcome.startswith(BAD)], found
    assert found["refused"] > 0


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_bytes_are_refused_or_mean_nothing(tmp_path, damage):
    check(attack_bytes(tmp_path, damage, rounds=40), 40)


def test_crafted_headers_are_refused_or_valid(tmp_path):
    found = attack_headers(tmp_path, rounds=150)
    check(found, 150)
    assert found["read as it is valid"] > 0  # another configuration is a valid file


def test_crafted_files_are_refused_before_anything_is_allocated(tmp_path):
    assert attack_with_crafted_files(tmp_path) == {"refused": len(CRAFTED)}
