"""What pyproject.toml, the hooks, the workflows and the citation must agree on."""

import pathlib
import re
import tomllib

import yaml

from tests.minimum_versions import minimum_versions

ROOT = pathlib.Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = [ROOT / ".github" / "workflows" / name for name in ("ci.yml", "release.yml")]


def test_no_workflow_is_forgotten():
    assert sorted((ROOT / ".github" / "workflows").iterdir()) == WORKFLOWS


def test_hooks_and_developers_have_the_same_linter():
    pins = dict(line.split("==") for line in PROJECT["optional-dependencies"]["lint"])
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    assert set(re.findall(r"ruff([=<>~]+[\d.]+)", hooks)) == {f"=={pins['ruff']}"}


def test_actions_are_pinned_by_commit():
    for path in WORKFLOWS:
        used = re.findall(r"uses: (\S+)(.*)", path.read_text())
        assert used
        for action, comment in used:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), f"{path.name}: {action}"
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), f"{path.name}: {action}"


def test_workflows_call_targets_that_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            commands = [step.get("run", "") for step in job["steps"]]
            for command in commands:
                if command.startswith("make "):
                    assert command.removeprefix("make ") in targets


def test_a_release_is_tested_before_it_is_published():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    assert jobs["publish"]["needs"] == "build"
    assert "make package" in [step.get("run") for step in jobs["build"]["steps"]]


def test_every_dependency_of_the_core_has_a_lower_bound_and_no_other():
    assert all(re.fullmatch(r"[a-z]+==[\d.]+", line) for line in minimum_versions())
    assert [line.split("==")[0] for line in minimum_versions()] == [
        "jax",
        "jaxlib",
        "optax",
        "flax",
        "chex",
        "numpy",
        "scipy",
    ]


def test_the_citation_names_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    (paper,) = citation["references"]
    assert paper["identifiers"][0]["value"] == "arXiv:2608.10374"
    assert paper["volume"] == 337
    assert PROJECT["urls"]["Paper"] == paper["url"]


def test_version_citation_and_changelog_agree():
    """Between releases the changelog may begin with what is not released yet."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    headings = re.findall(r"^## (.*)$", (ROOT / "docs/changelog.md").read_text(), re.MULTILINE)
    released = [heading.split(",")[0] for heading in headings if heading != "Unreleased"]
    assert released[0] == PROJECT["version"]
