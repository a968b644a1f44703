"""Training over several processes on loopback equals training in one."""

import functools
import json

import numpy as np
import pytest

from tests.processes.launch import run_processes

# Sums over more devices are rounded in another order; 30 steps of float32 amplify that.
TOLERANCE = {"rtol": 2e-3, "atol": 2e-4}


@functools.cache
def train(count):
    # The transport prints lines of its own before.
    outputs = run_processes("examples.multihost", count)
    return [json.loads(output.splitlines()[-1]) for output in outputs]


def check_equal_to_one_process(count):
    (alone,) = train(1)
    results = train(count)
    assert len(results) == count
    assert alone["losses"][-1] < alone["losses"][0] - 0.5
    for result in results:
        assert result["devices"] == 2 * count
        np.testing.assert_allclose(result["losses"], alone["losses"], **TOLERANCE)
        for name, values in alone["params"].items():
            np.testing.assert_allclose(result["params"][name], values, **TOLERANCE)
    # Copies on different hosts must not drift apart at all.
    assert all(result == results[0] for result in results)


def test_two_processes_equal_one():
    check_equal_to_one_process(2)


@pytest.mark.slow
def test_four_processes_equal_one():
    check_equal_to_one_process(4)
