"""Rotated digits with noisy angles as targets.

Every image is rotated once by its own angle, uniform on [-90, 90] degrees. The target is the angle
plus Gaussian noise, whose scale depends on the digit (`dependent`: 11 digit + 1 degrees) or not
(`independent`: 10 degrees). Targets are divided by the standard deviation of the noisy training
targets and not centred.

The images are MNIST from the data directory or a download. Without either, the 8 x 8 digits that
come with scikit-learn take their place; results then carry that name and compare with nothing
published.
"""

import gzip
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.machinery.data import DataUnavailableError, data_dir, fetch
from benchmarks.machinery.seeds import generator

SOURCE = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_HASHES = {
    "train-images-idx3": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
FILES = {f"{name}-ubyte.gz": digest for name, digest in _HASHES.items()}
REGIMES = ("independent", "dependent")
DIGITS_TEST_ROWS = 297


class Digits(NamedTuple):
    """Upright images and what they show."""

    name: str
    train_images: np.ndarray  # (rows, side, side), uint8
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    white: int  # the largest pixel value


class Rotated(NamedTuple):
    """One part of the regression problem, targets in degrees."""

    inputs: np.ndarray  # (rows, pixels), float32 in [0, 1]
    angles: np.ndarray
    noisy: np.ndarray
    labels: np.ndarray


class Problem(NamedTuple):
    """Both parts and the one number that scales the targets of both."""

    name: str
    train: Rotated
    test: Rotated
    scale: float

    @property
    def train_targets(self) -> np.ndarray:
        """What the network is trained on."""
        return (self.train.noisy / self.scale).astype(np.float32)


def load_digits(name: str, argument: Path | None) -> Digits:
    """The images called `name`: `mnist`, `digits` (8 x 8), or `auto` for whichever is there."""
    if name == "digits":
        return _embedded_digits()
    try:
        return _mnist(argument)
    except DataUnavailableError:
        if name == "mnist" or argument is not None:
            raise
        return _embedded_digits()


def make_problem(digits: Digits, regime: str, seed: int) -> Problem:
    """Rotations and noise of one seed; both regimes share the angles and the standard noise."""
    train = _part(digits.train_images, digits.train_labels, digits.white, regime, seed, "train")
    test = _part(digits.test_images, digits.test_labels, digits.white, regime, seed, "test")
    return Problem(digits.name, train, test, float(np.std(train.noisy, ddof=1)))


def noise_scale(labels: np.ndarray, regime: str) -> np.ndarray:
    """The standard deviation of each target in degrees."""
    if regime not in REGIMES:
        raise ValueError(f"`regime` must be one of {', '.join(REGIMES)}; got {regime!r}.")
    return 11.0 * labels + 1 if regime == "dependent" else np.full(len(labels), 10.0)


def rotate(images: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Each image about its centre by its angle in degrees, counter-clockwise, nearest neighbour.

    Pixels from outside the image are 0. A source coordinate half-way between two pixels goes to the
    even one.

    Args:
        images: (rows, side, side).
        angles: (rows,), degrees.
    """
    rotated = np.empty_like(images)
    for part in _slices(len(images), 2000):
        rotated[part] = _rotate_block(images[part], np.deg2rad(angles[part]))
    return rotated


def _rotate_block(images: np.ndarray, radians: np.ndarray) -> np.ndarray:
    rows, side, _ = images.shape
    centre = (side - 1) / 2
    offset = np.arange(side) - centre
    cos, sin = np.cos(radians)[:, None, None], np.sin(radians)[:, None, None]
    right, down = offset[None, None, :], offset[None, :, None]
    source_column = np.rint(centre + right * cos - down * sin).astype(np.int32)
    source_row = np.rint(centre + right * sin + down * cos).astype(np.int32)
    inside = (source_column >= 0) & (source_column < side) & (source_row >= 0) & (source_row < side)
    place = np.where(inside, source_row * side + source_column, 0).reshape(rows, -1)
    values = np.take_along_axis(images.reshape(rows, -1), place, axis=1)
    return np.where(inside, values.reshape(images.shape), 0)


def _part(images, labels, white, regime, seed, purpose) -> Rotated:
    rng = generator("rotated_mnist", seed, purpose)
    angles = rng.uniform(-90, 90, len(images))
    noisy = angles + noise_scale(labels, regime) * rng.normal(size=len(images))
    inputs = rotate(images, angles).reshape(len(images), -1).astype(np.float32) / white
    return Rotated(inputs, angles, noisy, labels)


def _mnist(argument: Path | None) -> Digits:
    root = data_dir(argument)
    folder = fetch(SOURCE, FILES, "mnist") if root is None else root / "mnist"
    train_images, train_labels, test_images, test_labels = (
        _read_idx(folder / name) for name in FILES
    )
    return Digits("MNIST", train_images, train_labels, test_images, test_labels, white=255)


def _read_idx(path: Path) -> np.ndarray:
    """An array of bytes in the idx format: two zeros, the type 8, the rank, the shape."""
    try:
        content = gzip.decompress(path.read_bytes())
        zeros, kind, rank = struct.unpack_from(">HBB", content)
        shape = struct.unpack_from(f">{rank}I", content, 4)
        array = np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape)
    except FileNotFoundError:
        raise DataUnavailableError(
            f"The data directory must hold `mnist/{path.name}`, but {str(path)!r} is not there. "
            "Name the folder that contains `mnist`, or leave the option out to download."
        ) from None
    except (OSError, EOFError, struct.error, ValueError) as error:
        raise DataUnavailableError(f"{str(path)!r} is not a whole idx file: {error}") from error
    if (zeros, kind) != (0, 8):
        raise DataUnavailableError(f"{str(path)!r} is not an idx file of bytes.")
    return array


def _embedded_digits() -> Digits:
    from sklearn.datasets import load_digits as load_embedded

    bundle = load_embedded()
    images, labels = bundle.images.astype(np.uint8), bundle.target
    order = generator("rotated_mnist", "digits").permutation(len(images))
    test, train = order[:DIGITS_TEST_ROWS], order[DIGITS_TEST_ROWS:]
    return Digits("digits 8x8", images[train], labels[train], images[test], labels[test], white=16)


def _slices(rows: int, length: int) -> Iterator[slice]:
    return (slice(first, first + length) for first in range(0, rows, length))
