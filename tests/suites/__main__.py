"""Runs the checks of scikit-learn, skpro, MAPIE, crepes and ours with them, in newest versions.

python -m tests.suites .venv-suites    # a folder for an environment of its own, made if missing

Some ten minutes. Nothing of these packages is stored here.
"""

import argparse
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUITES = (
    "scikit_learn_checks",
    "skpro_checks",
    "mapie_checks",
    "crepes_checks",
    "interchange_checks",
)
PACKAGES = ("crepes", "mapie", "pandas", "pytest", "scikit-learn", "skpro", "uncertainty-toolbox")


def make_environment(folder: Path) -> Path:
    """The interpreter of an environment with this library and the other packages."""
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    install = [python, "-m", "pip", "install", "--quiet", "--upgrade"]
    subprocess.run([*install, "--editable", f"{ROOT}[estimator]", *PACKAGES], check=True)
    return python


def main() -> int:
    """The number of suites that failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the environment is, or is made")
    python = make_environment(parser.parse_args().folder.resolve())
    runs = [subprocess.run([python, "-m", f"tests.suites.{name}"], cwd=ROOT) for name in SUITES]
    return sum(run.returncode != 0 for run in runs)


if __name__ == "__main__":
    sys.exit(main())
