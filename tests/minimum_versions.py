"""Prints the lower bounds of the core's dependencies as exact versions, for `make test-minimum`."""

import pathlib
import tomllib

ROOT = pathlib.Path(__file__).parents[1]


def minimum_versions() -> list[str]:
    """One `name==version` for each dependency of the core."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [line.replace(">=", "==") for line in project["dependencies"]]


if __name__ == "__main__":
    print(*minimum_versions())
