"""Imports go down only, optional packages stay in their rooms, and files stay short."""

import ast
import pathlib
import subprocess
import sys

import pytest

import fisher8_jax

PACKAGE = pathlib.Path(fisher8_jax.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# Lower floors may not import higher ones.
FLOORS = [
    {"_numerics", "_checks", "_trees", "_special", "_files"},
    {"families"},
    {"_fisher8", "_microbatches"},
    {"curvature"},
    {"losses", "metrics"},
    {"transforms", "diagnostics", "heads", "plots", "calibration"},
    {"ensembles", "estimator", "artifacts"},
]
ONLY_IMPORTER = {"flax": {"heads", "ensembles", "estimator", "artifacts"}, "matplotlib": {"plots"}}
CORE = {"jax", "jaxlib", "optax", "flax", "chex", "numpy", "fisher8_jax"}


def room(path: pathlib.Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def floor(name: str) -> int:
    for level, rooms in enumerate(FLOORS):
        if name in rooms:
            return level
    raise AssertionError(f"{name} has no floor: add it to FLOORS")


def imported_modules(path: pathlib.Path) -> list[str]:
    modules = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.append(node.module)
            if node.module == "fisher8_jax":
                modules += [f"fisher8_jax.{alias.name}" for alias in node.names]
    return modules


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down_only(path):
    if path == PACKAGE / "__init__.py":
        return
    here = room(path)
    for module in imported_modules(path):
        top, _, rest = module.partition(".")
        if top == "fisher8_jax":
            there = rest.partition(".")[0]
            assert there, "import from the module that defines a name, not from the top level"
            assert there == here or floor(there) <= floor(here), f"{here} imports {there}"
        elif top in ONLY_IMPORTER:
            assert here in ONLY_IMPORTER[top], f"only {ONLY_IMPORTER[top]} may import {top}"


def test_the_core_imports_without_extras():
    """In a fresh interpreter that refuses every optional package."""
    program = (
        "import sys\n"
        "for name in ('matplotlib', 'sklearn', 'scipy.stats', 'rich', 'pooch', 'pandas'):\n"
        "    sys.modules[name] = None\n"
        "import fisher8_jax\n"
        "assert fisher8_jax.fisher8\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=PACKAGE.parent)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_trees_are_registered_by_the_function_that_tells_classes_apart(path):
    called = [n.attr for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Attribute)]
    assert "register_dataclass" not in called


def test_files_stay_short():
    root = pathlib.Path(__file__).parents[1]
    rooms = [PACKAGE, *(root / name for name in ("benchmarks", "examples", "tests"))]
    lengths = {p: len(p.read_text().splitlines()) for room in rooms for p in room.rglob("*.py")}
    assert {path: length for path, length in lengths.items() if length > 400} == {}
