"""Files that a command writes: never one that it reads, and whole or not at all."""

import os
from collections.abc import Mapping
from pathlib import Path

from fisher8_jax._internal.files import replacing
from fisher8_jax.command._errors import CommandError


def check_outputs(inputs: Mapping[str, Path | None], outputs: Mapping[str, Path | None]) -> None:
    """Refuses, before hours of training, to overwrite an input or one output by another.

    Args:
        inputs: files to read by the option that names them; None where it was not given.
        outputs: files to write.
    """
    taken = {option: path for option, path in inputs.items() if path is not None}
    for option, path in outputs.items():
        if path is None:
            continue
        if path.is_dir():
            raise CommandError(f"`{option}` {str(path)!r} is a folder. Name a file in it.")
        for other, used in taken.items():
            if _is_same(path, used):
                raise CommandError(
                    f"`{option}` and {other} are the same file, {str(path)!r}. It would be "
                    "overwritten: choose another name."
                )
        taken[f"`{option}`"] = path


def write_bytes(path: Path, content: bytes) -> None:
    """Replaces the file in one step."""
    try:
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        raise CommandError(f"{str(path)!r} cannot be written: {error}") from error


def _is_same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:  # one of them does not exist yet
        return one.resolve() == other.resolve()
