"""Simulated convergence maps in the file format of the weak-lensing challenge.

A stand-in for data that cannot be shipped: it exercises the pipeline and orders methods, its scores
compare with nothing published. Each map is a log-normal field,

    kappa = shift * (exp(g - var(g)/2) - 1),

with `g` Gaussian such that `kappa` has the convergence spectrum of a flat universe: the Limber
integral over a linear matter spectrum (BBKS transfer function, normalised to S8) for sources on one
plane. The nuisance parameters act as in the challenge: a hotter feedback (T_AGN) removes power on
small scales, stars (f0) add some on the smallest, and delta z moves the source plane.
"""

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.machinery.seeds import generator
from benchmarks.machinery.store import write_atomically

LABELS = ("omega_m", "s8", "t_agn", "f0", "delta_z")
PIXEL_ARCMIN = 2.0
PREFIX = "WIDE12H_bin2_2arcmin"
# Largest depth of the log-normal field: an empty line of sight to a redshift near 1.
SHIFT = 0.03
SOURCE_REDSHIFT = 1.0
HUBBLE = 0.7  # in units of 100 km/s/Mpc
SPEED_OF_LIGHT = 299792.458  # km/s
TILT = 0.96


class Simulation(NamedTuple):
    """How many maps, how large, from which seed."""

    height: int = 128
    width: int = 64
    cosmologies: int = 101
    realisations: int = 32
    seed: int = 0

    @property
    def name(self) -> str:
        """A folder name that says it all."""
        return "x".join(str(value) for value in self[:4]) + f"-seed{self.seed}"


def simulate(
    setting: Simulation,
    folder: Path,
    *,
    mask: np.ndarray | None = None,
    labels: np.ndarray | None = None,
) -> Path:
    """Writes mask, labels and noiseless maps below `folder` unless they are there already.

    Args:
        setting: what to simulate.
        folder: where simulations are kept; this one gets a folder of its own.
        mask: boolean (height, width), True where the sky is observed; drawn if None.
        labels: (cosmologies, realisations, 5) in the order of `LABELS`; drawn if None.

    Returns:
        The folder with the files.
    """
    target = folder / setting.name
    if (target / "simulated.json").exists():
        return target
    mask = draw_mask(setting) if mask is None else mask
    labels = draw_labels(setting) if labels is None else labels
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=folder, prefix=setting.name, suffix=".tmp"))
    _write_maps(setting, unfinished, mask, labels)
    note = {"simulated": True, "columns": LABELS, **setting._asdict()}
    write_atomically(unfinished / "simulated.json", (json.dumps(note) + "\n").encode())
    shutil.rmtree(target, ignore_errors=True)
    unfinished.rename(target)
    return target


def _write_maps(setting: Simulation, folder: Path, mask: np.ndarray, labels: np.ndarray) -> None:
    shape = (setting.cosmologies, setting.realisations, int(mask.sum()))
    np.save(folder / f"{PREFIX}_mask.npy", mask)
    np.save(folder / "label.npy", labels)
    maps = np.lib.format.open_memmap(
        folder / f"{PREFIX}_kappa.npy", mode="w+", dtype=np.float16, shape=shape
    )
    for cosmology in range(setting.cosmologies):
        for realisation in range(setting.realisations):
            rng = generator("weak_lensing", setting.seed, "map", cosmology, realisation)
            kappa = draw_map(labels[cosmology, realisation], mask.shape, rng)
            maps[cosmology, realisation] = kappa[mask]
    maps.flush()


def draw_labels(setting: Simulation) -> np.ndarray:
    """Cosmologies that fill the challenge's ranges evenly, and its nuisance distributions."""
    from scipy.stats import qmc

    shape = (setting.cosmologies, setting.realisations)
    rng = generator("weak_lensing", setting.seed, "labels")
    # A plain low-discrepancy sequence, started by the seed.
    sequence = qmc.Halton(2, rng=np.random.default_rng(rng.integers(2**32)))
    unit = sequence.random(setting.cosmologies)
    omega_m, s8 = 0.1 + 0.5 * unit[:, 0], 0.68 + 0.27 * unit[:, 1]
    columns = (
        np.broadcast_to(omega_m[:, None], shape),
        np.broadcast_to(s8[:, None], shape),
        rng.uniform(7.2, 8.5, shape),
        rng.uniform(0, 0.0265, shape),
        rng.normal(0, 0.022, shape),
    )
    return np.stack(columns, axis=-1)


def draw_mask(setting: Simulation) -> np.ndarray:
    """A survey strip with slanted ends and round holes at bright stars; about half is observed."""
    height, width = setting.height, setting.width
    rng = generator("weak_lensing", setting.seed, "mask")
    row, column = np.mgrid[:height, :width]
    slope = 0.25 * width * (2 * column / width - 1)
    mask = (row > 0.2 * height + slope) & (row < 0.8 * height + slope)
    for _ in range(height * width // 400):
        centre_row, centre_column = rng.uniform(0, height), rng.uniform(0, width)
        radius = rng.uniform(0.5, 2.5)
        mask &= (row - centre_row) ** 2 + (column - centre_column) ** 2 > radius**2
    return mask


def draw_map(label: np.ndarray, shape: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """One noiseless convergence map."""
    # Twice the size, so that the periodic field's opposite edges do not meet in the map.
    padded = (2 * shape[0], 2 * shape[1])
    amplitude = np.sqrt(_gaussian_power(label, padded))
    white = np.fft.rfft2(rng.normal(size=padded))
    field = np.fft.irfft2(white * amplitude, s=padded)[: shape[0], : shape[1]]
    variance = _variance(amplitude, padded)
    return SHIFT * np.expm1(field - 0.5 * variance)


def _gaussian_power(label: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The power of `g` per mode for unit white noise, from that of `kappa` by its correlation."""
    pixel = np.deg2rad(PIXEL_ARCMIN / 60)
    ell_row = 2 * np.pi * np.fft.fftfreq(shape[0], pixel)[:, None]
    ell_column = 2 * np.pi * np.fft.rfftfreq(shape[1], pixel)[None, :]
    ell = np.hypot(ell_row, ell_column)
    # What a square pixel averages away.
    window = np.sinc(ell_row * pixel / (2 * np.pi)) * np.sinc(ell_column * pixel / (2 * np.pi))
    power = convergence_spectrum(np.maximum(ell, ell[0, 1]), label) * window**2 / pixel**2
    power[0, 0] = 0
    correlation = np.fft.irfft2(power, s=shape)
    return np.maximum(np.fft.rfft2(np.log1p(correlation / SHIFT**2)).real, 0)


def _variance(amplitude: np.ndarray, shape: tuple[int, int]) -> float:
    return float(np.fft.irfft2(amplitude**2, s=shape)[0, 0])


def convergence_spectrum(ell: np.ndarray, label: np.ndarray) -> np.ndarray:
    """The angular power spectrum C(ell) of the convergence, by the Limber integral."""
    omega_m, s8, t_agn, f0, delta_z = label
    redshift = np.linspace(1e-3, SOURCE_REDSHIFT + delta_z, 64)
    expansion = np.sqrt(omega_m * (1 + redshift) ** 3 + 1 - omega_m)
    step = np.gradient(redshift) * SPEED_OF_LIGHT / 100 / expansion  # in Mpc/h
    distance = np.cumsum(step)
    source = distance[-1] + step[-1]
    weight = 1.5 * omega_m * (100 / SPEED_OF_LIGHT) ** 2 * (1 + redshift)
    weight = weight * distance * (1 - distance / source)
    flat = np.geomspace(ell.min(), ell.max(), 128)
    wavenumber = flat[:, None] / distance
    growth = _growth(omega_m, redshift) / _growth(omega_m, np.zeros(1))
    matter = _matter_spectrum(wavenumber, omega_m, s8) * growth**2
    matter = matter * _baryons(wavenumber, t_agn, f0)
    values = np.sum(step * (weight / distance) ** 2 * matter, axis=1)
    return np.exp(np.interp(np.log(ell), np.log(flat), np.log(values)))


def _matter_spectrum(wavenumber: np.ndarray, omega_m: float, s8: float) -> np.ndarray:
    """The linear spectrum today in (Mpc/h)^3, scaled to sigma8 = S8 sqrt(0.3/omega_m)."""
    sigma8 = s8 * np.sqrt(0.3 / omega_m)
    grid = np.geomspace(1e-4, 50, 512)
    radius = 8.0
    x = grid * radius
    top_hat = 3 * (np.sin(x) - x * np.cos(x)) / x**3
    integrand = grid**3 * _shape(grid, omega_m) * top_hat**2 / (2 * np.pi**2)
    variance = np.trapezoid(integrand, np.log(grid))
    return sigma8**2 / variance * _shape(wavenumber, omega_m)


def _shape(wavenumber: np.ndarray, omega_m: float) -> Any:
    """k^n T(k)^2 with the transfer function of Bardeen et al. 1986."""
    q = np.maximum(wavenumber, 1e-6) / (omega_m * HUBBLE)
    bracket = 1 + 3.89 * q + (16.1 * q) ** 2 + (5.46 * q) ** 3 + (6.71 * q) ** 4
    transfer = np.log1p(2.34 * q) / (2.34 * q) * bracket**-0.25
    return wavenumber**TILT * transfer**2


def _growth(omega_m: float, redshift: np.ndarray) -> np.ndarray:
    """The linear growth factor by the formula of Carroll, Press and Turner 1992."""
    expansion = omega_m * (1 + redshift) ** 3 + 1 - omega_m
    matter, vacuum = omega_m * (1 + redshift) ** 3 / expansion, (1 - omega_m) / expansion
    ratio = matter / (matter ** (4 / 7) - vacuum + (1 + matter / 2) * (1 + vacuum / 70))
    return 2.5 * ratio / (1 + redshift)


def _baryons(wavenumber: np.ndarray, t_agn: float, f0: float) -> np.ndarray:
    """A dip of up to a quarter beyond k = 1 h/Mpc that grows with T_AGN, and a rise by stars."""
    depth = 0.05 + 0.2 * (t_agn - 7.2) / 1.3
    gas = wavenumber**2 / (1 + wavenumber**2)
    stars = wavenumber**2 / (100 + wavenumber**2)
    return 1 - depth * gas + 20 * f0 * stars
