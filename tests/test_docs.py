"""The documentation builds without a warning."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]


def test_site_builds_without_warnings(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    result = subprocess.run(
        [*command, "docs", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "index.html").exists()
