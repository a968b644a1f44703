"""The public names: all on the reference page, each with an example that runs."""

import importlib
import inspect
import re
import tomllib

import pytest

from tests.places import LIBRARY, PACKAGE, ROOT

REFERENCE = (ROOT / "docs" / "reference.md").read_text()

CHOSEN = {
    "": ("fisher8", "fisher8_nll", "microbatched_value_and_grad"),  # the rest repeats a subpackage
    "heads.nnx": ("DistributionHead", "predict_fn", "predict_one_fn"),  # what is defined there
    "heads.linen": ("DistributionHead", "TrainState"),
}
INTERFACES = [path for path in LIBRARY if path.name == "__init__.py"]
SUBPACKAGES = [".".join(path.parent.relative_to(PACKAGE).parts) for path in INTERFACES]


def public_names():
    """Qualified name and object of everything that a subpackage offers."""
    found = {}
    for subpackage in SUBPACKAGES:
        path = f"fisher8_jax.{subpackage}".rstrip(".")
        module = importlib.import_module(path)
        for name in CHOSEN.get(subpackage, vars(module)):
            value = getattr(module, name)
            if not name.startswith("_") and not inspect.ismodule(value):
                found[f"{path}.{name}"] = value
    return found


def documented_names():
    """The names on the reference page, in its order."""
    module, names = "", []
    for line in REFERENCE.splitlines():
        if match := re.match(r"\.\. currentmodule:: (\S+)", line):
            module = match[1]
        elif match := re.match(r"\.\. auto(?:function|class|data|exception):: (\S+)", line):
            names.append(match[1] if "." in match[1] else f"{module}.{match[1]}")
    return names


PUBLIC = public_names()


def test_the_reference_page_lists_exactly_the_public_names():
    documented = documented_names()
    assert len(documented) == len(set(documented))
    assert set(documented) == set(PUBLIC)


def test_the_version_is_that_of_the_project():
    import fisher8_jax

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert fisher8_jax.__version__ == project["version"]


def test_subpackages_reached_lazily_are_those_that_the_top_level_does_not_import():
    import fisher8_jax

    found = {name for name in SUBPACKAGES if name and "." not in name}
    assert found <= set(dir(fisher8_jax))
    assert set(fisher8_jax._LAZY) <= found


def test_the_top_level_only_repeats_names_of_subpackages():
    import fisher8_jax

    objects = [id(value) for value in PUBLIC.values()]
    for name, value in vars(fisher8_jax).items():
        if not name.startswith("_") and not inspect.ismodule(value):
            assert id(value) in objects, name


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example(name):
    """Doctests run docstrings; data, which has none, is used in a block of some page."""
    value = PUBLIC[name]
    if inspect.isclass(value) or inspect.isfunction(value):
        assert ">>>" in inspect.getdoc(value)
        assert value.__module__.startswith("fisher8_jax.")
    else:
        pages = [page.read_text() for page in (ROOT / "docs").rglob("*.md")]
        blocks = [block for page in pages for block in re.findall(r"```python(.*?)```", page, re.S)]
        assert any(name.rpartition(".")[2] in block for block in blocks)
