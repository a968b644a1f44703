"""Configurations: plain JSON that comes back as it went."""

import json
from typing import Any, TypeAlias, TypeVar

# What JSON holds: dictionaries with text keys, lists, text, numbers, booleans and None.
Json: TypeAlias = dict[str, Any]

Config = TypeVar("Config")


class ArtifactError(ValueError):
    """A file is foreign or damaged, or does not fit the template.

    Example:
        >>> import pathlib, tempfile
        >>> from fisher8_jax.artifacts import ArtifactError, load_artifact
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
        >>> _ = path.write_bytes(b"something else")
        >>> try:
        ...     load_artifact(path)
        ... except ArtifactError as error:
        ...     print("foreign")
        foreign
    """


def check_json(config: Config) -> Config:
    """Returns `config`, or says why JSON would not give it back."""
    try:
        back = json.loads(json.dumps(config, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"`config` must be plain JSON: {error}.") from error
    if back != config:
        raise TypeError(
            "`config` would come back changed from JSON. Use dictionaries with text keys, lists, "
            "text and numbers only."
        )
    return config
