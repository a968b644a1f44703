"""One table of benchmarks and one of methods: complete, spelt right, and nothing beside them."""

import ast
import inspect
from pathlib import Path

import pytest

import benchmarks
from benchmarks import registry
from benchmarks.machinery.baselines import BASELINES, choose
from benchmarks.machinery.heads import HEADS
from benchmarks.machinery.losses.objective import LOSSES
from benchmarks.machinery.report import collect
from benchmarks.machinery.store import Store
from benchmarks.registry import BENCHMARKS, Benchmark

ROOT = Path(benchmarks.__file__).parent


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_row_leads_to_a_command_and_to_its_section(name, tmp_path):
    command, report = BENCHMARKS[name].load_command(), BENCHMARKS[name].load_report()
    assert list(inspect.signature(command.run).parameters) == ["args"]
    assert list(inspect.signature(command.add_arguments).parameters) == ["parser"]
    assert report is None or report.section(Store(tmp_path)) is None


def test_every_folder_of_results_has_a_section():
    titles = [section.title for section in collect(Store())]
    assert len(titles) == len(set(titles)) == sum(row.report is not None for row in registry_rows())


def registry_rows() -> list[Benchmark]:
    return list(BENCHMARKS.values())


def test_a_misspelt_section_is_an_error_not_a_gap(monkeypatch, tmp_path):
    row = Benchmark("experiments.uci.command", "", "experiments.uci.reprot")
    monkeypatch.setitem(registry.BENCHMARKS, "uci", row)
    with pytest.raises(ModuleNotFoundError, match="reprot"):
        collect(Store(tmp_path))


def test_every_experiment_is_in_the_table():
    folders = {path.parent.name for path in (ROOT / "experiments").glob("*/command.py")}
    assert folders == {
        row.command.split(".")[1] for row in registry_rows() if row.command.startswith("exp")
    }


def test_the_machinery_knows_no_experiment():
    modules = set()
    for path in (ROOT / "machinery").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                modules |= {f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
    assert "json" in modules  # both ways to import are read
    assert any(module.startswith("benchmarks.machinery.") for module in modules)
    refused = ("benchmarks.experiments", "benchmarks.costs")
    assert not {module for module in modules if module.startswith(refused)}


def test_links_and_losses_of_all_methods_exist():
    for method in BASELINES.values():
        assert method.head in HEADS
        assert method.loss in LOSSES


def test_an_experiment_overrides_fields_and_leaves_the_registry_alone():
    chosen = choose(("nll", "fisher8"), head="log_variance")
    assert {method.head for method in chosen.values()} == {"log_variance"}
    assert BASELINES["nll"].head == "softplus_std"
    tuned = BASELINES["trustable"].override(hyperparameters={"step_size": 0.3})
    assert tuned.hyperparameters == (("step_size", 0.3),)
    assert hash(tuned) != hash(BASELINES["trustable"])
