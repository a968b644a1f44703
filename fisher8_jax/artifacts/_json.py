"""Configurations: plain JSON that comes back as it went."""

import json
from typing import Any, TypeAlias

# What JSON holds: dictionaries with text keys, lists, text, numbers, booleans and None.
Json: TypeAlias = dict[str, Any]


def check_json(config: Json | None) -> Json | None:
    """Returns `config`, or says why JSON would not give it back."""
    try:
        text = json.dumps(config, allow_nan=False)
        back = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"`config` must be plain JSON: {error}.") from error
    if back != config:
        raise TypeError(
            "`config` would come back changed from JSON. Use dictionaries with text keys, lists, "
            "text and numbers only."
        )
    return config
