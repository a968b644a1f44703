"""Packages that only some subpackages need: what to install when one of them is missing."""

import contextlib
from collections.abc import Iterator

# What to install has another name than what is imported.
_DISTRIBUTIONS = {"sklearn": "scikit-learn", "orbax": "orbax-checkpoint"}


@contextlib.contextmanager
def needs_extra(extra: str, *, package: str, needed_by: str) -> Iterator[None]:
    """Around an import: if `package` is missing, says which extra of this library brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        # Any other module that is missing is a fault of its own and keeps its own words.
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        wanted = _DISTRIBUTIONS.get(package, package)
        raise ImportError(
            f"`{needed_by}` needs {wanted}, which is not installed. Install it with "
            f"`pip install 'fisher8_jax[{extra}]'`.",
            name=package,
        ) from error
