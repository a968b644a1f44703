"""Real columns: data frames, missing values, wild numbers, and what is refused."""

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from fisher8_jax.estimator import Fisher8Regressor
from fisher8_jax.estimator._columns import Encoder
from fisher8_jax.estimator._frames import columns_of_array, columns_of_frame

ROWS = 240
SETTINGS = {
    "methods": "radius",
    "n_members": 2,
    "max_steps": 600,
    "hidden_layer_sizes": (16,),
    "random_state": 0,
}


@pytest.fixture(autouse=True)
def default_jax():
    with jax.enable_x64(False), jax.numpy_rank_promotion("allow"):
        yield


def make_columns(seed=0):
    rng = np.random.default_rng(seed)
    colour = rng.choice(["red", "green", "blue"], ROWS)
    hours = rng.integers(0, 24 * 40, ROWS)
    is_open = rng.random(ROWS) < 0.5
    size = np.where(rng.random(ROWS) < 0.2, np.nan, rng.normal(size=ROWS))
    effect = {"red": -2.0, "green": 0.0, "blue": 2.0}
    targets = np.array([effect[c] for c in colour]) + 2 * is_open
    targets = targets + np.where(np.isnan(size), 3.0, size) + np.sin(2 * np.pi * hours / 24)
    stamps = np.datetime64("2024-03-01T00", "h") + hours.astype("timedelta64[h]")
    columns = {"colour": colour, "when": stamps, "open": is_open, "size": size}
    return columns, targets + 0.1 * rng.normal(size=ROWS)


def pandas_frame(columns):
    frame = pd.DataFrame(columns)
    return frame.assign(
        when=pd.to_datetime(frame["when"]).dt.tz_localize("Europe/Berlin"),
        level=pd.Categorical(frame["colour"]),
        nullable=pd.array(np.where(np.isnan(frame["size"]), None, 1), dtype="Int64"),
    )


def polars_frame(columns):
    frame = pl.DataFrame({**columns, "when": columns["when"].astype("datetime64[us]")})
    return frame.with_columns(pl.col("colour").cast(pl.Categorical).alias("level"))


@pytest.mark.parametrize("make_frame", [pandas_frame, polars_frame])
def test_frames_with_categories_times_booleans_and_missing_values(make_frame, tmp_path):
    columns, targets = make_columns()
    frame = make_frame(columns)
    model = Fisher8Regressor(**SETTINGS | {"max_steps": 2000}).fit(frame, targets)
    fresh, truth = make_columns(seed=1)
    assert model.score(make_frame(fresh), truth) > 0.8
    assert list(model.feature_names_in_) == list(frame.columns)
    unknown = make_frame(fresh | {"colour": np.full(ROWS, "violet")})
    mean, std = model.predict(unknown, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    model.save(tmp_path / "model.f8")
    loaded = Fisher8Regressor.load(tmp_path / "model.f8")
    np.testing.assert_array_equal(loaded.predict(unknown), mean)


def test_pandas_and_polars_are_encoded_alike():
    columns, _ = make_columns()
    both = [
        Encoder.fit(columns_of_frame(frame)).transform(columns_of_frame(frame))
        for frame in (
            pd.DataFrame(columns),
            pl.DataFrame({**columns, "when": columns["when"].astype("datetime64[us]")}),
        )
    ]
    np.testing.assert_allclose(*both, atol=1e-6)
    assert np.abs(both[0]).max() < 5


def test_codes_survive_a_file():
    frame = pandas_frame(make_columns()[0])
    columns = columns_of_frame(frame)
    encoder = Encoder.fit(columns)
    again = Encoder.from_config(encoder.to_config())
    np.testing.assert_array_equal(again.transform(columns), encoder.transform(columns))


def test_missing_numbers_are_told_apart_from_average_ones():
    values = np.array([[1.0], [2.0], [3.0], [np.nan], [np.nan], [9.0]])
    encoder = Encoder.fit(columns_of_array(values))
    encoded = encoder.transform(columns_of_array(values))
    np.testing.assert_array_equal(encoded[:, 1], [0, 0, 0, 1, 1, 0])
    assert (encoded[3:5, 0] == 0).all()


def test_constant_duplicate_and_empty_columns_do_no_harm():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, ROWS)
    table = np.stack([x, x, np.full(ROWS, 1e9 + 0.1), np.full(ROWS, np.nan)], axis=1)
    targets = 3 * x + 0.1 * rng.normal(size=ROWS)
    model = Fisher8Regressor(**SETTINGS).fit(table, targets)
    assert model.score(table, targets) > 0.9
    nothing = Fisher8Regressor(**SETTINGS).fit(np.ones((ROWS, 1)), targets)
    np.testing.assert_allclose(nothing.predict(np.ones((3, 1))), targets.mean(), atol=0.5)


def test_a_wild_outlier_and_inputs_far_outside():
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1, 1, (ROWS, 2))
    targets = 3 * inputs[:, 0] + 0.3 * rng.normal(size=ROWS)
    calm = Fisher8Regressor(**SETTINGS).fit(inputs, targets)
    wild = inputs.copy()
    wild[0, 1] = 1e12
    model = Fisher8Regressor(**SETTINGS).fit(wild, targets)
    assert model.score(inputs, targets) > 0.9 * calm.score(inputs, targets)
    far = np.array([[1e3, 0.0], [-1e300, 0.0], [0.0, 1e300], [np.nan, 0.0]])
    mean, std = calm.predict(far, return_std=True)
    inside = calm.predict(inputs, return_std=True)[1]
    assert (np.abs(mean - targets.mean()) < 5 * targets.std()).all()
    # It grows to about the spread of the targets, and not beyond.
    assert (std[:3] > 2 * inside.mean()).all()
    assert (std < 3 * targets.std()).all()
    low, high = calm.predict_interval(far)
    assert np.isfinite([low, high]).all()


@pytest.mark.parametrize("size", [1e-300, 1e300, 7.0])
def test_weights_of_any_size(size):
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1, 1, (ROWS, 2))
    targets = 3 * inputs[:, 0] + 0.3 * rng.normal(size=ROWS)
    weights = rng.uniform(0.5, 1, ROWS)
    one = Fisher8Regressor(**SETTINGS).fit(inputs, targets, sample_weight=weights)
    same = Fisher8Regressor(**SETTINGS).fit(inputs, targets, sample_weight=size * weights)
    np.testing.assert_allclose(same.predict(inputs), one.predict(inputs), atol=0.05)


def test_what_cannot_be_read_is_refused_with_a_clear_word():
    inputs, targets = np.ones((4, 2)), np.arange(4.0)
    model = Fisher8Regressor()
    with pytest.raises(TypeError, match=r"[Ss]parse data was passed"):
        model.fit(sparse.csr_matrix(inputs), targets)
    masked = np.ma.masked_array(inputs, mask=inputs > 2)
    with pytest.raises(TypeError, match="`X` is a masked array"):
        model.fit(masked, targets)
    with pytest.raises(TypeError, match="`y` is a masked array"):
        model.fit(inputs, np.ma.masked_array(targets, mask=targets > 2))
    with pytest.raises(ValueError, match="Column 'a' of `X` contains infinity"):
        model.fit(pd.DataFrame({"a": [1.0, np.inf]}), [1.0, 2.0])
    with pytest.raises(ValueError, match="`X` must have at least 2 rows, got 1"):
        model.fit(pd.DataFrame({"a": [1.0]}), [1.0])


def test_a_column_that_changes_its_kind_is_named():
    encoder = Encoder.fit(columns_of_frame(pd.DataFrame({"a": ["x", "y"]})))
    with pytest.raises(ValueError, match="Column 'a' of `X` was a category in `fit` and is a num"):
        encoder.transform(columns_of_frame(pd.DataFrame({"a": [1.0, 2.0]})))
