"""Runs the tests against an installed wheel: `python -m tests.installed_wheel dist [pytest ...]`.

The sdist is unpacked into an empty folder and its package removed, so that nothing but the wheel
can be imported. The wheel is installed without its dependencies, which the interpreter that runs
this has.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

_FILTER = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def main(dist: pathlib.Path, arguments: list[str]) -> int:
    """The exit code of pytest."""
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        site, source = pathlib.Path(folder, "site"), pathlib.Path(folder, "source")
        install = ["install", "--quiet", "--no-deps", "--target", site]
        subprocess.run([sys.executable, "-m", "pip", *install, wheel.resolve()], check=True)
        with tarfile.open(sdist) as archive:  # Python 3.11.0 to 3.11.3 have no filters
            archive.extractall(source, **_FILTER)
        (unpacked,) = source.iterdir()
        shutil.rmtree(unpacked / "fisher8_jax")
        # Before the site-packages of the interpreter, where an editable install may be.
        environment = os.environ | {"PYTHONPATH": str(site)}
        program = "import fisher8_jax; print(fisher8_jax.__file__)"
        run = {"cwd": unpacked, "env": environment}
        found = subprocess.check_output([sys.executable, "-c", program], text=True, **run)
        if not pathlib.Path(found.strip()).is_relative_to(site):
            raise RuntimeError(f"The wheel is not what is imported, but {found.strip()}.")
        print(f"testing {found.strip()}", flush=True)
        return subprocess.run([sys.executable, "-m", "pytest", *arguments], **run).returncode


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2:]))
