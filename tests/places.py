"""Where the sources of the repository and of the package are.

They are apart when an installed wheel is tested.
"""

import pathlib

import fisher8_jax

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = pathlib.Path(fisher8_jax.__file__).parent
LIBRARY = sorted(PACKAGE.rglob("*.py"))


def name_of(path: pathlib.Path) -> str:
    """A file in the words of the repository, for the names of tests."""
    return str(path.relative_to(PACKAGE.parent if path.is_relative_to(PACKAGE) else ROOT))
