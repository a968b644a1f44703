"""The documentation builds without a warning, no link leads nowhere, and no code is left out."""

import html.parser
import os
import pathlib
import re
import subprocess
import sys
import tomllib
import urllib.parse

import pytest
from sybil import Sybil
from sybil.parsers.myst import PythonCodeBlockParser

from benchmarks.registry import BENCHMARKS

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site, and what Sphinx complained about."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    environment = dict(os.environ)
    if environment.get("JAX_DISABLE_MOST_OPTIMIZATIONS") == "1":
        # The programs of the gallery train: some optimisation saves a quarter of their time.
        flags = environment.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=1"
        environment |= {"JAX_DISABLE_MOST_OPTIMIZATIONS": "0", "XLA_FLAGS": flags}
    result = subprocess.run(
        [*command, "docs", str(folder)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    return folder, result


def test_site_builds_without_warnings(site):
    folder, result = site
    assert result.returncode == 0, result.stderr
    assert (folder / "index.html").exists()


class Links(html.parser.HTMLParser):
    """Where a page leads, and the places in it that can be led to."""

    def __init__(self, source):
        super().__init__()
        self.targets, self.anchors = set(), {""}
        self.feed(source)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.targets.add(value)
            if name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value)


def dead_links(folder):
    """Pairs of a page and a link of it to a file or to an anchor that is not there."""
    paths = sorted(folder.resolve().rglob("*.html"))
    pages = {path: Links(path.read_text()) for path in paths}
    dead = []
    for page, links in pages.items():
        for target in links.targets:
            parts = urllib.parse.urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            place = urllib.parse.unquote(parts.path)
            found = (page.parent / place).resolve() if place else page
            anchors = pages[found].anchors if found in pages else {parts.fragment}
            if not found.is_file() or urllib.parse.unquote(parts.fragment) not in anchors:
                dead.append((page.name, target))
    return dead


def test_every_local_link_of_the_site_leads_to_its_place(site):
    """Cards in raw HTML, anchors, pictures, downloads and sources among them."""
    folder, _ = site
    assert dead_links(folder) == []
    assert len(Links((folder / "index.html").read_text()).targets) > 50  # it does read them


def test_dead_links_are_found(tmp_path):
    (tmp_path / "a.html").write_text('<h1 id="one"></h1><a href="#one"></a><a href="#two"></a>')
    (tmp_path / "b.html").write_text(
        '<a href="a.html#one"></a><a href="a.html#three"></a><img src="gone.png">'
        '<a href="https://example.org/x#y"></a>'
    )
    expected = {("a.html", "#two"), ("b.html", "a.html#three"), ("b.html", "gone.png")}
    assert set(dead_links(tmp_path)) == expected


PAGES = [
    ROOT / "README.md",
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


def heading_anchors(page):
    """As GitHub and MyST make them: lower case, without punctuation, spaces as hyphens."""
    text = page.read_text()
    for included in re.findall(r"^```{include} (\S+)$", text, flags=re.M):
        text += (page.parent / included).read_text()
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    titles = re.findall(r"^#+ (.*)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_files_and_headings(page):
    """Also for the pages that Sphinx does not read."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", text):
        if "://" in target or target.startswith(("gallery/", "../gallery/")):
            continue  # of other sites, or made while building
        found = page.parent / target if target else page
        assert found.exists(), target
        if anchor and found.suffix == ".md":
            assert anchor in heading_anchors(found), f"{target}#{anchor}"


def test_links_to_other_sites_are_encrypted():
    for page in PAGES:
        assert "](http://" not in page.read_text(), page


# What a fence may say. Python is run; what is not Python of ours is shown as text.
SHOWN = {"sh", "console", "text", "diff"}
OTHERS = r"torch|tf\.|tfp|kfac_jax|ngb|uncertainty_toolbox|variance\.detach"
BLOCK = re.compile(r"^```(?P<kind>\S*)[^\n]*\n(?P<body>.*?)^```$", re.S | re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_code_of_a_page_is_left_out(page):
    blocks = list(BLOCK.finditer(page.read_text()))
    kinds = [block["kind"] for block in blocks]
    assert {kind for kind in kinds if not kind.startswith("{")} <= SHOWN | {"python"}
    run = Sybil(parsers=[PythonCodeBlockParser()], patterns=["*.md"]).parse(page)
    assert len(list(run.examples())) == kinds.count("python")
    for block in blocks:
        if block["kind"] == "text" and re.search(r"^\w+ = .*\(", block["body"], re.M):
            assert re.search(OTHERS, block["body"]), block["body"]
    assert "skip: " not in page.read_text()


def test_pages_are_collected_by_the_tests():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    for page in PAGES:
        has_code = "```python" in page.read_text()
        places = [ROOT / place for place in settings["testpaths"]]
        assert not has_code or any(page.is_relative_to(place) for place in places), page


COMMANDS = [
    (str(page.relative_to(ROOT)), line.removeprefix("$ ").partition("  #")[0].strip())
    for page in PAGES
    for block in BLOCK.finditer(page.read_text())
    if block["kind"] in ("sh", "console")
    for line in block["body"].splitlines()
    if line.strip()
]


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_commands_of_the_pages_exist(page, command):
    """Targets of make, names of benchmarks, extras of pip; the rest is other people's."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for target in re.findall(r"\bmake ([\w-]+)", command):
        assert target in targets
    for extras in re.findall(r"\.\[([\w,]+)\]", command):
        assert set(extras.split(",")) <= set(project["optional-dependencies"])
    for name in re.findall(r"-m benchmarks (\w+)", command):
        assert name in BENCHMARKS
    assert command.split()[0] in {"make", "pip", "python", "git", "jupyter"}
