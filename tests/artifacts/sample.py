"""What the committed artifact holds, and files that nobody's `save_artifact` would write.

`python -m tests.artifacts.sample` writes the committed file anew.
"""

import json
import pathlib

import jax.numpy as jnp
import numpy as np

from fisher8_jax.artifacts import TargetScaler, save_artifact
from fisher8_jax.artifacts._safetensors import _digest

FORMATS = pathlib.Path(__file__).parent / "formats"
COMMITTED = FORMATS / "format_1.safetensors"
CONFIG = {"hidden": [50, 50], "name": "größe", "rate": 0.1, "none": None, "deep": {"a": [True]}}
CUBE = np.arange(24, dtype=np.float16).reshape(2, 3, 4)
TREES = {
    "params": {
        "dense": [{"kernel": np.arange(6, dtype=np.float32).reshape(2, 3) / 7}, np.ones((), "f4")],
        "half": (np.arange(3) / 3).astype(jnp.bfloat16),
        "quarter": np.array([0.5, -2, 448], jnp.float8_e4m3fn),
        "fifth": np.array([0.5, -2, 57344], jnp.float8_e5m2),
    },
    "scaler": TargetScaler(np.array([1e9 + 1 / 3]), np.array([2.0])),
    "numbers": [
        np.array([np.nan, -np.inf, -0.0, 5e-324]),
        np.array([2**63 - 1, -(2**63)]),
        np.array([255, 0], np.uint8),
        np.array([True, False]),
        np.array([1 + 2j], np.complex64),
        np.array([1.5, 65504], np.float16),
        np.zeros((3, 0), np.float32),
    ],
    "views": [CUBE.T, CUBE[:, ::-2, 1:], np.broadcast_to(np.float32(1.5), (2, 2))],
    "scalars": [np.float16(0.1), 3, 2.5, True, np.int64(2**62)],
    "array": np.array([1, 2], np.int32),
}


def craft(header: object, data: bytes = b"") -> bytes:
    """A file with this header, whatever it says."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def header_of(content: bytes) -> tuple[dict, dict, bytes]:
    """The tensors, the metadata and the data of a file."""
    size = int.from_bytes(content[:8], "little")
    tensors = json.loads(content[8 : 8 + size])
    body = json.loads(tensors.pop("__metadata__")["fisher8_jax"])
    return tensors, body, content[8 + size :]


def pack(tensors: object, body: object, data: bytes, arrays: dict | None = None) -> bytes:
    """A file with this metadata; with `arrays` the checksum is that of `body` and them."""
    if arrays is not None and isinstance(body, dict):
        body = {key: value for key, value in body.items() if key != "sha256"}
        body |= {"sha256": _digest(body, arrays)}
    metadata = {"__metadata__": {"fisher8_jax": json.dumps(body)}}
    return craft(metadata | tensors if isinstance(tensors, dict) else tensors, data)


if __name__ == "__main__":
    save_artifact(COMMITTED, TREES, config=CONFIG)
