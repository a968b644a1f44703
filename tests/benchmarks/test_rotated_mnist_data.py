"""The rotated digits: rotation, noise, files."""

import gzip
import math
import struct

import numpy as np
import pytest
from scipy import stats

from benchmarks.experiments.rotated_mnist.data import (
    load_digits,
    make_problem,
    noise_scale,
    rotate,
)
from benchmarks.machinery.data import DataUnavailableError

pytestmark = pytest.mark.usefixtures("float32")


def reference_rotation(image, degrees):
    """One pixel at a time, as the protocol words it."""
    side = len(image)
    centre = (side - 1) / 2
    t = math.radians(degrees)
    result = np.zeros_like(image)
    for i in range(side):
        for j in range(side):
            x, y = j - centre, i - centre
            column = round(centre + x * math.cos(t) - y * math.sin(t))  # half to even
            row = round(centre + x * math.sin(t) + y * math.cos(t))
            if 0 <= column < side and 0 <= row < side:
                result[i, j] = image[row, column]
    return result


@pytest.mark.parametrize("side", [8, 28])
def test_rotation_agrees_with_a_loop_over_pixels(side):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5, side, side)).astype(np.uint8)
    angles = np.array([-90.0, -33.3, 0.0, 12.5, 71.0])
    expected = np.stack([reference_rotation(*pair) for pair in zip(images, angles, strict=True)])
    np.testing.assert_array_equal(rotate(images, angles), expected)


def test_positive_angles_turn_counter_clockwise():
    image = np.arange(64, dtype=np.uint8).reshape(1, 8, 8)
    np.testing.assert_array_equal(rotate(image, np.array([90.0]))[0], np.rot90(image[0]))
    np.testing.assert_array_equal(rotate(image, np.array([0.0])), image)


def test_noise_of_the_two_regimes():
    labels = np.array([0, 3, 9])
    np.testing.assert_array_equal(noise_scale(labels, "dependent"), [1, 34, 100])
    np.testing.assert_array_equal(noise_scale(labels, "independent"), [10, 10, 10])
    with pytest.raises(ValueError, match="`regime` must be one of independent, dependent"):
        noise_scale(labels, "both")


def test_problem_has_the_stated_distribution():
    digits = load_digits("digits", None)
    problem = make_problem(digits, "independent", seed=3)
    part = problem.train
    assert part.angles.min() > -90
    assert part.angles.max() < 90
    assert stats.kstest(part.angles, "uniform", (-90, 180)).pvalue > 0.01
    assert stats.kstest((part.noisy - part.angles) / 10, "norm").pvalue > 0.01
    # Scaled by the noisy training targets with ddof 1, not centred: sqrt(180^2/12 + 10^2) = 52.92.
    assert problem.scale == pytest.approx(np.std(part.noisy, ddof=1))
    assert problem.scale == pytest.approx(52.92, rel=0.03)
    np.testing.assert_allclose(problem.train_targets * problem.scale, part.noisy, rtol=1e-5)
    assert part.inputs.min() == 0
    assert part.inputs.max() == 1
    assert part.inputs.dtype == np.float32
    other = make_problem(digits, "dependent", seed=3)
    np.testing.assert_array_equal(other.train.angles, part.angles)
    assert not np.array_equal(make_problem(digits, "independent", 4).train.angles, part.angles)


def write_idx(path, array):
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(header + array.tobytes()))


def test_mnist_is_read_from_the_data_directory(tmp_path):
    folder = tmp_path / "mnist"
    folder.mkdir()
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (6, 28, 28)), np.arange(6)
    for part in ("train", "t10k"):
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", images.astype(np.uint8))
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", labels.astype(np.uint8))
    digits = load_digits("mnist", tmp_path)
    assert digits.name == "MNIST"
    np.testing.assert_array_equal(digits.train_images, images)
    np.testing.assert_array_equal(digits.test_labels, labels)


def test_missing_and_broken_files_are_named(tmp_path):
    with pytest.raises(DataUnavailableError, match="must hold `mnist/train-images"):
        load_digits("auto", tmp_path)
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(b"not a gzip file")
    with pytest.raises(DataUnavailableError, match="not a whole idx file"):
        load_digits("auto", tmp_path)
