"""The stereo pair inside scikit-image as a dense regression problem, split by blocks.

The motorcycle scene of the Middlebury 2014 set, left and right view with the true disparity of
nearly every pixel, ships with scikit-image. Both views are averaged down by `FACTOR`; the network
sees the left view and how much it differs from the right view shifted by every candidate disparity.
Blocks of pixels, never single pixels, are drawn for validation and test.
"""

from typing import NamedTuple

import numpy as np

FACTOR = 4
BLOCK = 20


class Scene(NamedTuple):
    """Inputs (height, width, channels), targets and masks (height, width)."""

    inputs: np.ndarray
    disparity: np.ndarray
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def load_scene(seed: int) -> Scene:
    """The scene, its blocks dealt to training, validation and test as 60 : 15 : 25."""
    from skimage.data import stereo_motorcycle

    left, right, disparity = stereo_motorcycle()
    left, right = _shrink(left / 255.0), _shrink(right / 255.0)
    disparity = _shrink(np.where(np.isfinite(disparity), disparity, np.nan)[..., None])[..., 0]
    is_known = np.isfinite(disparity)
    rng = np.random.default_rng(seed)
    height, width = disparity.shape
    grid = rng.uniform(size=(-(-height // BLOCK), -(-width // BLOCK)))
    lot = np.kron(grid, np.ones((BLOCK, BLOCK)))[:height, :width]
    return Scene(
        inputs=_matching_costs(left, right).astype(np.float32),
        disparity=np.where(is_known, disparity, np.nan).astype(np.float32),
        train=is_known & (lot < 0.6),
        validation=is_known & (lot >= 0.6) & (lot < 0.75),
        test=is_known & (lot >= 0.75),
    )


def _shrink(image: np.ndarray) -> np.ndarray:
    """The mean over squares; a square with an unknown pixel is unknown."""
    height, width = (n // (8 * FACTOR) * 8 * FACTOR for n in image.shape[:2])
    squares = image[:height, :width].reshape(height // FACTOR, FACTOR, width // FACTOR, FACTOR, -1)
    return squares.mean((1, 3))


def _matching_costs(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The left view and its distance to the right view moved by 0 to 16 small pixels."""
    costs = []
    for shift in range(17):
        moved = np.pad(right, ((0, 0), (shift, 0), (0, 0)), mode="edge")[:, : right.shape[1]]
        costs.append(np.abs(left - moved).mean(-1))
    stacked = np.stack(costs, -1)
    relative = stacked - stacked.mean(-1, keepdims=True)
    return np.concatenate([left - left.mean(), 4 * relative], -1)
