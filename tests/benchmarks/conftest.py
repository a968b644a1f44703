"""Small data sets in the layout of the public files, so that no test needs a download."""

from pathlib import Path

import jax
import numpy as np
import pytest

from benchmarks.experiments.uci.data import DATASETS
from benchmarks.experiments.uci.plan import SPLITS
from benchmarks.experiments.weak_lensing.simulator import Simulation, simulate

SMALL_SURVEY = Simulation(height=32, width=32, cosmologies=4, realisations=10)


def write_dataset(root: Path, name: str, rows: int = 80) -> Path:
    """`data.txt` and 20 splits of made-up numbers for the set called `name`."""
    columns = DATASETS[name]
    rng = np.random.default_rng(0)
    width = max(*columns.features, columns.target) + 1
    data = rng.normal(size=(rows, width))
    data[:, columns.target] = 3 + 2 * data[:, 0] + 0.3 * rng.normal(size=rows)
    folder = root / "uci" / columns.folder
    folder.mkdir(parents=True)
    np.savetxt(folder / "data.txt", data)
    for split in range(SPLITS):
        order = rng.permutation(rows)
        np.savetxt(folder / f"index_train_{split}.txt", order[: rows - 8], fmt="%d")
        np.savetxt(folder / f"index_test_{split}.txt", order[rows - 8 :], fmt="%d")
    return folder


@pytest.fixture
def data_root(tmp_path: Path) -> Path:
    """A data directory with two small sets."""
    for name in ("yacht", "power"):
        write_dataset(tmp_path / "data", name)
    return tmp_path / "data"


@pytest.fixture(scope="session")
def survey_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few simulated lensing maps in the challenge's files."""
    return simulate(SMALL_SURVEY, tmp_path_factory.mktemp("maps"))


@pytest.fixture
def float32() -> None:
    """JAX's default precision, in which benchmarks run."""
    jax.config.update("jax_enable_x64", False)
    jax.config.update("jax_numpy_rank_promotion", "allow")
