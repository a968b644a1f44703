"""The notebooks run from top to bottom without a warning, and what they show is rich and small."""

import re

import pytest

nbformat = pytest.importorskip("nbformat")
notebooks = pytest.importorskip("tests.notebooks")

# The five ways in, and a network that exists already.
NAMES = {"flax_step", "table", "baselines", "diagnose", "reproduce", "fine_tuning"}
SMALL = 200_000  # bytes: they are in the repository with their outputs


# Compiling what one of them trains takes some seconds: one runs every time, all of them every week.
ALWAYS = {"diagnose"}
RUNS = [
    pytest.param(path, marks=[] if path.stem in ALWAYS else [pytest.mark.slow], id=path.stem)
    for path in notebooks.NOTEBOOKS
]


@pytest.fixture(scope="module")
def kernel():
    with notebooks.kernel() as running:
        yield running


def outputs_of(notebook):
    return [o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs]


def kinds_of(notebook):
    """What every code cell shows, picture or text, without its numbers."""
    return [
        [sorted(output.get("data", {"text/plain": ""})) for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_there_is_one_for_every_way_in():
    assert {path.stem for path in notebooks.NOTEBOOKS} == NAMES


@pytest.mark.parametrize("path", RUNS)
def test_it_runs_and_shows_what_is_stored(kernel, path):
    stored = nbformat.read(path, as_version=4)
    assert kinds_of(kernel.run(stored)) == kinds_of(stored)


@pytest.mark.parametrize("path", notebooks.NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_stored_is_small_and_tells_nothing_of_its_machine(path):
    text = path.read_text()
    assert len(text) < SMALL
    assert not re.search(r"/home/|/root/|/tmp/|/work/|Traceback|Warning:", text)
    stored = nbformat.read(path, as_version=4)
    nbformat.validate(stored)
    assert all(cell.outputs for cell in stored.cells[-1:] if cell.cell_type == "code")
    shown = outputs_of(stored)
    assert any("text/html" in o.get("data", {}) or "image/png" in o.get("data", {}) for o in shown)
    assert not [o for o in shown if o.get("name") == "stderr"]
