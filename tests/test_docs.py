"""The documentation builds without a warning, and no link leads nowhere."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]


def test_site_builds_without_warnings(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    result = subprocess.run(
        [*command, "docs", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=1200
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "index.html").exists()


PAGES = [
    ROOT / "README.md",
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_files(page):
    """Also for the pages that Sphinx does not read; its own links are checked while building."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    for target in targets:
        if "://" not in target:
            made_while_building = target.startswith(("gallery/", "../gallery/"))
            assert made_while_building or (page.parent / target).exists(), target


def test_links_to_other_sites_are_encrypted():
    for page in PAGES:
        assert "](http://" not in page.read_text(), page
