"""Attacks on artifacts and cells, the same every time; many more with `-m slow`."""

import pytest

from tests.attacks import BAD
from tests.attacks.artifacts import (
    CRAFTS,
    attack_archives,
    attack_bytes,
    attack_headers,
    attack_with_foreign_files,
)
from tests.attacks.damage import DAMAGES


def check(found, total):
    assert sum(found.values()) == total
    assert not [outcome for outcome in found if outcome.startswith(BAD)], found
    assert found["refused"] > 0


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_bytes_are_refused_or_mean_nothing(tmp_path, damage):
    check(attack_bytes(tmp_path, damage, rounds=40), 40)


def test_foreign_files_are_refused(tmp_path):
    check(attack_with_foreign_files(tmp_path), 11)


def test_crafted_headers_are_refused_or_valid(tmp_path):
    found = attack_headers(tmp_path, rounds=150)
    check(found, 150)
    assert found["read as it is valid"] > 0  # another configuration is a valid file


def test_crafted_archives_are_refused_before_anything_is_allocated(tmp_path):
    assert attack_archives(tmp_path) == {"refused": len(CRAFTS)}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_thousands_of_damaged_files(tmp_path, damage):
    check(attack_bytes(tmp_path, damage, rounds=2000, seed=1), 2000)


@pytest.mark.slow
def test_thousands_of_crafted_headers(tmp_path):
    check(attack_headers(tmp_path, rounds=5000, seed=1), 5000)
