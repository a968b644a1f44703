"""The suites of other packages, run on what this one gives them."""

import subprocess
import sys

import pytest

from tests.processes.launch import ROOT

pytestmark = pytest.mark.slow


def test_optax_common_suite():
    command = [sys.executable, "-m", "tests.suites.optax_common"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[-6]) >= 40  # the suite was found and ran
