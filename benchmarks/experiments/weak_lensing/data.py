"""Maps of the weak-lensing challenge: memory-mapped files, fixed noise, split, standardisation.

Files of one folder, as the challenge names them:

    label.npy                            (cosmologies, realisations, 5): Omega_m, S8, nuisances
    WIDE12H_bin2_2arcmin_mask.npy        (height, width), True where the sky is observed
    WIDE12H_bin2_2arcmin_kappa.npy       (cosmologies, realisations, observed pixels), noiseless

Nothing is read as a whole. A map is scattered into its image, and noise is added to its observed
pixels, when a batch needs it; the noise of a map is the same in every epoch.
"""

import functools
import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.machinery.data import DataUnavailableError
from benchmarks.machinery.seeds import generator

PREFIX = "WIDE12H_bin2_2arcmin"
TARGETS = ("omega_m", "s8")
PIXEL_ARCMIN = 2.0
SHAPE_NOISE = 0.4
NOISE_SEED = 31415
SPLIT_SEED = 5566
# Prepared maps are kept in memory as long as all of them fit into this.
CACHE_BYTES = 2**30


class Survey(NamedTuple):
    """The files of one folder, opened but not read."""

    maps: np.ndarray
    labels: np.ndarray
    mask: np.ndarray

    @property
    def size(self) -> int:
        """The number of maps."""
        return self.maps.shape[0] * self.maps.shape[1]


class Split(NamedTuple):
    """Flat map numbers of each part; every cosmology appears in all of them."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


class Scales(NamedTuple):
    """Standardisation by the training part: one pair for all pixels, one per target."""

    pixel_shift: float
    pixel_scale: float
    target_shift: np.ndarray
    target_scale: np.ndarray


def open_survey(folder: Path) -> Survey:
    """Opens the three files and checks that they belong together."""
    labels, mask, maps = (
        _open(folder / name) for name in ("label.npy", f"{PREFIX}_mask.npy", f"{PREFIX}_kappa.npy")
    )
    expected = (*labels.shape[:2], int(mask.sum()))
    if maps.shape != expected:
        raise DataUnavailableError(
            f"The maps in {str(folder)!r} must have the shape {expected} that labels and mask ask "
            f"for, got {maps.shape}."
        )
    return Survey(maps, np.asarray(labels[..., : len(TARGETS)]), np.asarray(mask, bool))


def _open(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise DataUnavailableError(
            f"The folder of the maps must hold {path.name!r}: {error}. The files come with the "
            "challenge; `--maps simulated` needs none."
        ) from error


def noise_std(galaxies: float) -> float:
    """Shape noise per pixel for `galaxies` per square arcminute, `0.4 / sqrt(2 n area)`."""
    return SHAPE_NOISE / math.sqrt(2 * galaxies * PIXEL_ARCMIN**2)


def split_survey(survey: Survey) -> Split:
    """56, 14 and 30 percent of the realisations, the last two rounded up."""
    cosmologies, realisations = survey.maps.shape[:2]
    order = generator("weak_lensing", SPLIT_SEED, "split").permutation(realisations)
    tests = math.ceil(0.3 * realisations)
    validations = math.ceil(0.2 * (realisations - tests))
    parts = order[tests + validations :], order[tests : tests + validations], order[:tests]
    rows = np.arange(cosmologies)[:, None] * realisations
    return Split(*((rows + np.sort(part)).ravel() for part in parts))


class Maps:
    """Noisy, standardised images by flat number.

    Args:
        survey: the files.
        galaxies: their number per square arcminute, which gives the noise.
        scales: the standardisation; None for images as they are.
    """

    def __init__(self, survey: Survey, galaxies: float, scales: Scales | None = None):
        self.survey = survey
        self.noise = noise_std(galaxies)
        self.scales = scales
        fits = 4 * survey.mask.size * survey.size <= CACHE_BYTES
        self.image = functools.lru_cache(maxsize=survey.size if fits else 0)(self._image)

    def _image(self, number: int) -> np.ndarray:
        """One image (height, width) in float32; outside the mask 0 before standardisation."""
        cosmology, realisation = divmod(int(number), self.survey.maps.shape[1])
        pixels = np.asarray(self.survey.maps[cosmology, realisation], np.float64)
        rng = generator("weak_lensing", NOISE_SEED, cosmology, realisation)
        image = np.zeros(self.survey.mask.shape, np.float32)
        image[self.survey.mask] = pixels + self.noise * rng.normal(size=pixels.shape)
        if self.scales is not None:
            image = (image - self.scales.pixel_shift) / self.scales.pixel_scale
        return image

    def images(self, numbers: Iterable[int]) -> np.ndarray:
        """A batch (batch, height, width, 1)."""
        return np.stack([self.image(int(number)) for number in numbers])[..., None]

    def targets(self, numbers: np.ndarray) -> np.ndarray:
        """Targets (batch, 2) in physical units."""
        return self.survey.labels.reshape(-1, len(TARGETS))[numbers]


def measure_scales(survey: Survey, galaxies: float, train: np.ndarray) -> Scales:
    """One pass over the training maps, masked pixels included, as the challenge's kit does."""
    maps = Maps(survey, galaxies)
    total, squares = 0.0, 0.0
    for number in train:
        image = maps._image(number).astype(np.float64)
        total += float(image.sum())
        squares += float(np.square(image).sum())
    count = len(train) * survey.mask.size
    mean = total / count
    targets = maps.targets(train)
    return Scales(
        mean, math.sqrt(squares / count - mean**2), targets.mean(axis=0), targets.std(axis=0)
    )
