"""What the table of layers in docs/design.md promises: who may import what."""

import ast
import graphlib
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

import pytest

import fisher8_jax
from tests.places import LIBRARY, PACKAGE, ROOT, name_of

INSIDE = [path for path in LIBRARY if path != PACKAGE / "__init__.py"]
COMMON = {"jax", "optax", "chex", "numpy", "fisher8_jax"}


class Subpackage(NamedTuple):
    """A subpackage, or a module next to them, as docs/design.md has it."""

    layer: int
    also_imports: frozenset[str]


def subpackages_of_the_design() -> dict[str, Subpackage]:
    found = {}
    for line in (ROOT / "docs" / "design.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0].isdigit():
            extras = frozenset(re.findall(r"`(\w+)`", cells[3]))
            for name in re.findall(r"`(\w+)`", cells[1]):
                assert name not in found, f"{name} stands in the table twice"
                found[name] = Subpackage(int(cells[0]), extras)
    return found


SUBPACKAGES = subpackages_of_the_design()


def subpackage_of(path: pathlib.Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(path: pathlib.Path) -> list[str]:
    """Absolute names; `from fisher8_jax import losses` counts as `fisher8_jax.losses`."""
    modules = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            modules.append(node.module)
            if node.module == "fisher8_jax":
                modules += [f"fisher8_jax.{alias.name}" for alias in node.names]
    return modules


def imported_subpackages(path: pathlib.Path) -> set[str]:
    """Other subpackages of the library that a file of the library imports."""
    modules = [module.split(".") for module in imported_modules(path)]
    return {m[1] for m in modules if m[0] == "fisher8_jax" and len(m) > 1} - {subpackage_of(path)}


def test_the_table_names_every_subpackage_and_no_other():
    assert set(SUBPACKAGES) == {subpackage_of(path) for path in INSIDE}


@pytest.mark.parametrize("path", INSIDE, ids=name_of)
def test_imports_go_down_only(path):
    here = subpackage_of(path)
    assert "fisher8_jax" not in imported_modules(path) or path.name == "__init__.py", (
        "import from a subpackage, not from the top level"
    )
    for there in imported_subpackages(path):
        assert SUBPACKAGES[there].layer <= SUBPACKAGES[here].layer, f"{here} imports {there}"


def test_subpackages_do_not_import_each_other_in_a_circle():
    graph: dict[str, set[str]] = {}
    for path in INSIDE:
        graph.setdefault(subpackage_of(path), set()).update(imported_subpackages(path))
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


@pytest.mark.parametrize("path", INSIDE, ids=name_of)
def test_other_packages_stay_where_the_table_says(path):
    tops = {module.partition(".")[0] for module in imported_modules(path)}
    allowed = COMMON | SUBPACKAGES[subpackage_of(path)].also_imports | set(sys.stdlib_module_names)
    assert tops <= allowed


@pytest.mark.parametrize("path", INSIDE, ids=name_of)
def test_modules_are_private(path):
    parts = path.relative_to(PACKAGE).parts
    assert path.name == "__init__.py" or any(part.startswith("_") for part in parts)


BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))


@pytest.mark.parametrize("path", INSIDE + BENCHMARKS, ids=name_of)
def test_imports_go_through_public_interfaces(path):
    """The library may import private modules of the top level, which have no interface."""
    is_inside = path in INSIDE
    here = subpackage_of(path) if is_inside else None
    for module in imported_modules(path):
        top, *parts = module.split(".")
        if top == "fisher8_jax" and parts and parts[0] != here:
            checked = parts[1:] if is_inside else parts
            assert not any(part.startswith("_") for part in checked), f"{module} is private"


@pytest.mark.parametrize("path", EXAMPLES, ids=name_of)
def test_examples_use_public_names_only(path):
    for module in imported_modules(path):
        assert not (module.startswith("fisher8_jax") and "._" in module), module


def run_without(packages: tuple[str, ...], program: str) -> str:
    """The output of a program in a fresh interpreter that refuses some packages."""
    refuse = f"import sys\nfor name in {packages!r}:\n    sys.modules[name] = None\n"
    command = [sys.executable, "-c", refuse + program]
    return subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def without_extras() -> list[str]:
    """What a user reads who installed the library without any extra, line by line."""
    program = """
import fisher8_jax
assert fisher8_jax.fisher8 and fisher8_jax.__version__
for name in ("flax", "matplotlib", "sklearn", "orbax", "safetensors"):
    assert sys.modules.get(name) is None, name
print(*dir(fisher8_jax))
for name in ("plots", "estimator"):
    try:
        getattr(fisher8_jax, name)
    except ImportError as error:
        print(error)
try:
    fisher8_jax.artifacts.TrainingCheckpoints("unused", every=1)
except ImportError as error:
    print(error)
try:
    fisher8_jax.artifacts.load_artifact("unused")
except ImportError as error:
    print(error)
print(fisher8_jax.heads.nnx.DistributionHead, fisher8_jax.ensembles.Mixture)
"""
    missing = "matplotlib", "sklearn", "orbax", "safetensors", "scipy.stats", "pooch", "pandas"
    return run_without(missing, program).splitlines()


def test_subpackages_whose_requirement_is_missing_are_not_listed(without_extras):
    listed = without_extras[0].split()
    assert {"heads", "ensembles", "artifacts", "losses", "__version__"} <= set(listed)
    assert not {"plots", "estimator"} & set(listed)


@pytest.mark.parametrize(
    ("line", "who", "package", "extra"),
    [
        (1, "fisher8_jax.plots", "matplotlib", "plots"),
        (2, "fisher8_jax.estimator", "scikit-learn", "estimator"),
        (3, "TrainingCheckpoints", "orbax-checkpoint", "checkpoints"),
        (4, "load_artifact", "safetensors", "artifacts"),
    ],
)
def test_a_missing_package_names_the_extra_to_install(without_extras, line, who, package, extra):
    assert without_extras[line] == (
        f"`{who}` needs {package}, which is not installed. Install it with "
        f"`pip install 'fisher8_jax[{extra}]'`."
    )


def test_the_other_subpackages_need_no_extra(without_extras):
    assert "DistributionHead" in without_extras[5]
    assert "Mixture" in without_extras[5]


def test_lazy_subpackages_are_attributes():
    for name in ("artifacts", "ensembles", "estimator", "heads", "plots", "training"):
        assert name in dir(fisher8_jax)
        assert getattr(fisher8_jax, name).__name__ == f"fisher8_jax.{name}"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = fisher8_jax.nonsense


@pytest.mark.parametrize("path", LIBRARY, ids=name_of)
def test_trees_are_registered_by_the_function_that_tells_classes_apart(path):
    called = [n.attr for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Attribute)]
    assert "register_dataclass" not in called


# Flax has two interfaces, and a head for each.
TWICE = {"DistributionHead"}


def test_a_class_name_means_one_thing():
    found: dict[str, list[str]] = {}
    for path in LIBRARY:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(name_of(path))
    twice = {name: paths for name, paths in found.items() if len(paths) > 1}
    assert set(twice) == TWICE, twice


def test_files_stay_short():
    folders = [PACKAGE, *(ROOT / name for name in ("benchmarks", "examples", "tests"))]
    lengths = {p: len(p.read_text().splitlines()) for top in folders for p in top.rglob("*.py")}
    assert {path: length for path, length in lengths.items() if length > 400} == {}


def test_the_table_of_sizes_is_about_true():
    """Within a fifth, or 100 lines; write the new number where a part has grown or shrunk."""
    table = (ROOT / "docs" / "design.md").read_text().partition("## Size")[2]
    stated = dict(re.findall(r"^\| `(\w+)` \| [\d,]+ \| ([\d,]+) \|", table, re.M))
    assert set(stated) == {
        path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()
    }
    for name, number in stated.items():
        found = sum(len(path.read_text().splitlines()) for path in (PACKAGE / name).rglob("*.py"))
        given = int(number.replace(",", ""))
        assert abs(found - given) <= max(100, 0.2 * given), f"{name}: {found} lines, not {given}"
