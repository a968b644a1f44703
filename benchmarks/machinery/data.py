"""Where data sets come from: a folder of the user's, or a download that is checked by its hash."""

import argparse
import os
from pathlib import Path

VARIABLE = "FISHER8_DATA"


class DataUnavailableError(RuntimeError):
    """A data set is neither in the data directory nor to be downloaded."""


def add_data_argument(parser: argparse.ArgumentParser) -> None:
    """Adds `--data-dir`, whose default is the environment variable."""
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=None,
        help=f"folder with the data sets (default: ${VARIABLE}, else downloaded to the cache)",
    )


def data_dir(argument: Path | None) -> Path | None:
    """The folder the user named by flag or variable; an error if it does not exist."""
    name = argument or os.environ.get(VARIABLE)
    if not name:
        return None
    folder = Path(name)
    if not folder.is_dir():
        source = "`--data-dir`" if argument else f"the environment variable {VARIABLE}"
        raise DataUnavailableError(
            f"{source} must name an existing folder, got {str(folder)!r}. Correct it, or leave it "
            "out to download the data."
        )
    return folder


def cache_dir() -> Path:
    """Where downloads and other files that can be made again are kept."""
    import pooch

    return Path(pooch.os_cache("fisher8_jax"))


def fetch(url: str, files: dict[str, str], name: str) -> Path:
    """Downloads what is missing of `files` (path: sha256) below `url` and returns their folder."""
    import pooch

    folder = cache_dir() / name
    source = pooch.create(path=folder, base_url=url, registry=files, retry_if_failed=2)
    pooch.get_logger().setLevel("WARNING")
    try:
        for file in files:
            source.fetch(file)
    except ValueError as error:
        raise DataUnavailableError(
            f"A downloaded file of {name!r} is not the expected one: {error}"
        ) from error
    except OSError as error:
        raise DataUnavailableError(
            f"The data set {name!r} could not be downloaded from {url} ({error}). If this machine "
            f"is offline, put the files into a folder {name!r} elsewhere and name its parent by "
            f"`--data-dir` or the environment variable {VARIABLE}."
        ) from error
    return folder
