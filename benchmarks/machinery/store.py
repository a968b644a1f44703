"""Results on disk: one small JSON file per cell, written atomically, damage noticed.

A *cell* is one finished piece of work with a name such as `uci/sgd-0.005-yacht-fisher8`. Its file
holds three records and a checksum over them:

    spec        what was asked for; a cell whose spec differs is not the same cell
    result      what came out; numbers that are not finite are written as null
    provenance  command line, versions of what computed it

No times and dates are written, so an interrupted and resumed run leaves the same bytes as an
uninterrupted one.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_RECORDS = {"spec", "result", "provenance"}
DEFAULT_RESULTS = Path(__file__).parents[1] / "results"


class Store:
    """A folder of cells.

    Args:
        root: the folder; made when the first cell is written.
    """

    def __init__(self, root: Path | str = DEFAULT_RESULTS):
        self.root = Path(root)

    def path(self, name: str) -> Path:
        """The file of the cell `name`."""
        return self.root / f"{name}.json"

    def write(
        self,
        name: str,
        *,
        spec: Mapping[str, Any],
        result: Mapping[str, Any],
        provenance: Mapping[str, Any],
    ) -> None:
        """Replaces the cell in one step: a reader sees the old file or the new one."""
        body = plain({"spec": spec, "result": result, "provenance": provenance})
        records = {"checksum": _checksum(body), **body}
        lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in records.items())
        write_atomically(self.path(name), ("{" + ",\n ".join(lines) + "}\n").encode())

    def read(self, name: str, spec: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """The result of a cell; None if it is missing, damaged or of another `spec`."""
        body = self.load(self.path(name))
        if body is None or (spec is not None and body["spec"] != plain(spec)):
            return None
        return body["result"]

    def load(self, path: Path) -> dict[str, Any] | None:
        """Everything in one file, or None if it is missing or damaged."""
        try:
            content = json.loads(path.read_text())
            checksum = content.pop("checksum")
            intact = checksum == _checksum(content) and set(content) == _RECORDS
        except (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError):
            return None
        return content if intact else None

    def cells(self, folder: str) -> Iterator[dict[str, Any]]:
        """Every intact cell below `folder`, in the order of their names."""
        for path in sorted((self.root / folder).glob("**/*.json")):
            body = self.load(path)
            if body is not None:
                yield body

    def damaged(self, folder: str) -> list[Path]:
        """The files below `folder` that cannot be trusted."""
        paths = sorted((self.root / folder).glob("**/*.json"))
        return [path for path in paths if self.load(path) is None]


def write_atomically(path: Path, content: bytes) -> None:
    """The library's, imported when there is a result to write: it brings JAX."""
    from fisher8_jax import artifacts

    artifacts.write_atomically(path, content)


def _checksum(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def plain(value: Any) -> Any:
    """`value` in JSON's own types, as it will be read back."""
    if isinstance(value, Mapping):
        named = {str(key): plain(item) for key, item in value.items()}
        if len(named) < len(value):
            raise ValueError(f"Two keys have the same text: {', '.join(map(repr, value))}.")
        return named
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
