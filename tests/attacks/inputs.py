"""Attacks on the estimator: odd tables to predict from, odd settings and data to fit."""

import copy
import datetime
import decimal
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import scipy.sparse

from fisher8_jax.estimator import Fisher8Regressor
from tests.attacks import BAD, returned_or_refused
from tests.estimator.methods import ADAM

COUNT = 30
FRAME = pd.DataFrame(
    {
        "number": np.linspace(-2, 3, COUNT),
        "kind": [("red", "green", "blue")[i % 3] for i in range(COUNT)],
        "when": pd.date_range("2024-01-01", periods=COUNT, freq="7h"),
    }
)
TARGETS = np.sin(np.arange(COUNT))
SMALL = {
    "n_members": 2, "hidden_layer_sizes": (4,), "max_steps": 5, "random_state": 0,
    "show_progress": False, "methods": ADAM,
}  # fmt: skip
CELLS: dict[str, list[Any]] = {
    "number": [
        0, -1.5, 1e308, -1e308, 5e-324, np.inf, -np.inf, np.nan, None, True, 10**30, 2**63, 1 + 2j,
        "1.5", "x", "", b"1", [1], {}, decimal.Decimal("0.1"), pd.NA, pd.NaT, np.float16(3),
        datetime.date(2024, 1, 1), float,
    ],
    "kind": [
        "red", "never seen", "", " ", "RED", "red\x00", "😀", "x" * 10**5, None, np.nan, pd.NA, 1,
        2.5, True, b"red", ("red",), object(), datetime.date(2024, 1, 1),
    ],
    "when": [
        pd.Timestamp("2024-01-05"), pd.Timestamp("1700-01-01"), pd.Timestamp("2262-01-01"), pd.NaT,
        None, np.nan, "2024-01-05", "2024-13-45", 0, 1.7e18, pd.Timestamp("2024-01-05", tz="UTC"),
        datetime.date(2024, 1, 5), datetime.datetime(9999, 1, 1), pd.Timedelta("1d"),
    ],
}  # fmt: skip


def attack_cells(folder: Path, rounds: int, seed: int = 0) -> Counter:
    """Odd values in rows to predict; a prediction is finite, or the column is refused."""
    model, rng = Fisher8Regressor(**SMALL).fit(FRAME, TARGETS), random.Random(seed)
    return Counter(_try_predict(model, _odd_table(rng)) for _ in range(rounds))


def _odd_table(rng: random.Random) -> Any:
    rows = rng.randint(1, 4)
    table = FRAME[:rows].astype(object).reset_index(drop=True)
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(list(CELLS))
        table[name] = pd.Series([rng.choice([*table[name], *CELLS[name]]) for _ in range(rows)])
        if rng.random() < 0.5:
            table[name] = table[name].infer_objects()
    return rng.choice(SHAPES)(table) if rng.random() < 0.3 else table


SHAPES: list[Callable[[pd.DataFrame], Any]] = [
    lambda table: table.iloc[:0],
    lambda table: table.drop(columns="kind"),
    lambda table: table[["when", "kind", "number"]],
    lambda table: table.assign(more=1),
    lambda table: pd.concat([table, table[["kind"]]], axis=1),
    lambda table: table.set_axis([5] * len(table), axis=0),
    lambda table: table.set_axis([1, 2, 3], axis=1),
    lambda table: table.to_numpy(),
    lambda table: table.to_dict(),
    lambda table: table["number"],
    lambda table: pl.DataFrame({"number": [1.0, None], "kind": ["red", None], "when": [None] * 2}),
    lambda table: pl.from_pandas(FRAME[:3]).lazy(),
    lambda table: None,
    lambda table: scipy.sparse.csr_array(np.eye(3)),
]


def _try_predict(model: Fisher8Regressor, table: Any) -> str:
    try:
        mean, std = model.predict(table, return_std=True)
    except (TypeError, ValueError) as error:
        return "refused" if len(str(error)) > 10 else f"{BAD}{error!r}"
    except Exception as error:
        return f"{BAD}{type(error).__name__}"
    is_right = mean.shape == std.shape == (len(table),)
    is_finite = np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0).all()
    return "predicted" if is_right and is_finite else f"{BAD}silently wrong"


ODD_SETTINGS: dict[str, list[Any]] = {
    "family": ["normal", None, 3, [], float, "gaussian ", np.nan],
    "methods": ["sgd", [], None, 3, (ADAM, 3), {}, ""],
    "n_members": [0, -1, 2.5, "2", None, True, np.nan, 10**30, 10**9],
    "hidden_layer_sizes": [
        0, (4, 0), "32", None, (2.5,), (-1,), ((4,),), np.nan, 10**30, (10**6, 10**6),
    ],
    "max_steps": [0, -1, 2.5, "many", None, np.nan, [5], np.inf, 10**30, 2**31 - 1],
    "batch_size": [0, -1, 2.5, "big", None, np.nan, [5], 10**30],
    "validation_fraction": [0, 1, -0.1, 1.5, np.nan, "x", None, [0.1]],
    "patience": [-1, np.nan, "x", None, [1], 1j],
    "bins": [None, "yes", 2, [], np.nan],
    "effort": ["high", None, 2, [], np.nan],
    "shrink_variance": [None, "yes", 2, [], np.nan],
    "random_state": ["x", -1, 2.5, [1], {}],
    "checkpoint_dir": [3, [], 2.5],
    "show_progress": [],
}  # fmt: skip
ODD_DATA: dict[str, list[Any]] = {
    "X": [
        None, [], [[]], "x", 3, np.zeros(COUNT), np.zeros((COUNT, 0)), np.zeros((COUNT, 2, 2)),
        np.zeros((COUNT - 1, 3)), np.full((COUNT, 2), np.inf), np.full((COUNT, 2), 1j), FRAME[:1],
        FRAME[:0], scipy.sparse.csr_array(np.eye(COUNT)), np.array([[object()]] * COUNT),
        np.ma.masked_array(np.zeros((COUNT, 2)), True), {"a": [1]}, np.array([["x"]] * COUNT),
    ],
    "y": [
        None, [], "x", 3, np.full(COUNT, np.nan), np.full(COUNT, np.inf), np.zeros(COUNT - 1),
        np.zeros((COUNT, 0)), np.zeros((COUNT, 2, 2)), np.full(COUNT, 1j), np.array(["a"] * COUNT),
        np.array([object()] * COUNT), np.ma.masked_array(TARGETS, True), FRAME["when"],
    ],
    "sample_weight": [
        "x", -np.ones(COUNT), np.zeros(COUNT), np.full(COUNT, np.nan), np.full(COUNT, np.inf),
        np.ones(COUNT - 1), np.ones((COUNT, 2)), np.full(COUNT, 1j), np.array(["a"] * COUNT),
    ],
}  # fmt: skip


def attack_fits(folder: Path, rounds: int, seed: int = 0) -> Counter:
    """One odd setting or argument: refused before training, and the model stays as it was."""
    model, rng = Fisher8Regressor(**SMALL).fit(FRAME, TARGETS), random.Random(seed)
    before = model.predict(FRAME)
    odd = [(name, value) for name, values in (ODD_SETTINGS | ODD_DATA).items() for value in values]
    return Counter(_try_fit(copy.deepcopy(model), before, *rng.choice(odd)) for _ in range(rounds))


def _try_fit(model: Fisher8Regressor, before: np.ndarray, name: str, value: Any) -> str:
    data, usual = {"X": FRAME, "y": TARGETS, "sample_weight": None}, model.get_params()
    if name in data:
        data[name] = value
    else:
        model.set_params(**{name: value})
    outcome = returned_or_refused(lambda: model.fit(**data))
    model.set_params(**usual)
    if outcome == "returned":
        return f"{BAD}accepted {name}={str(value)[:20]}"
    if not np.array_equal(model.predict(FRAME), before):
        return f"{BAD}another model after a refused {name}"
    return outcome
