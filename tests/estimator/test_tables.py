"""Real columns: data frames, missing values, wild numbers, and what is refused."""

import datetime
import decimal
import itertools

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from fisher8_jax.estimator import Fisher8Regressor
from fisher8_jax.estimator._columns import Encoder
from fisher8_jax.estimator._frames import TableColumn, columns_of_array, columns_of_frame
from tests.estimator.methods import RADIUS

ROWS = 240
SETTINGS = {
    "methods": RADIUS,
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


def encode(frame):
    columns = columns_of_frame(frame)
    return Encoder.fit(columns).transform(columns)


def test_pandas_polars_and_arrow_are_encoded_alike():
    columns, _ = make_columns()
    columns["words"] = np.array([f"a thing {k}" for k in range(ROWS)], dtype=object)
    pandas = pd.DataFrame(columns)
    polars = pl.DataFrame({**columns, "when": columns["when"].astype("datetime64[us]")})
    expected = encode(pandas)
    assert np.abs(expected).max() < 5
    np.testing.assert_array_equal(encode(polars), expected)
    np.testing.assert_array_equal(encode(polars.to_arrow()), expected)


def test_python_objects_keep_their_meaning():
    """Databases give dates, decimals and booleans as objects, with None among them."""
    day, number, flag = datetime.date(2024, 1, 1), decimal.Decimal("1.5"), True
    frame = pd.DataFrame({"d": [None, day], "n": [None, number], "f": [None, flag]}, dtype=object)
    columns = columns_of_frame(frame)
    assert [column.dtype for column in columns] == ["time", "number", "number"]
    assert [column.values[1] for column in columns] == [1704067200.0, 1.5, 1.0]
    assert all(np.isnan(column.values[0]) for column in columns)


def scale_independently(values, test):
    """skrub's `SquashingScaler` by its printed formula, with the range in units of a normal."""
    first, middle, third = np.nanpercentile(values, (25, 50, 75))
    z = (test - middle) * 1.349 / (third - first)
    return z / np.sqrt(1 + (z / 3) ** 2)


def test_numbers_are_scaled_by_the_published_formula():
    values = np.random.default_rng(0).standard_t(2, (100, 1))
    columns = columns_of_array(values)
    encoded = Encoder.fit(columns).transform(columns)
    np.testing.assert_allclose(encoded[:, :1], scale_independently(values, values), rtol=1e-6)


def bins_independently(values, knots, test):
    """One ramp between two knots after the other, by interpolation, of RMS 2 together."""
    pairs = list(itertools.pairwise(knots))
    known, new = (
        np.stack([np.interp(x, pair, (0, 1)) for pair in pairs], axis=1) for x in (values, test)
    )
    return 2 * (new - known.mean(axis=0)) / np.sqrt(np.sum(known.std(axis=0) ** 2))


@pytest.mark.parametrize(("rows", "levels"), [(200, None), (200, 7), (5, None), (60, 3)])
def test_numbers_are_cut_into_bins(rows, levels):
    rng = np.random.default_rng(0)
    values = rng.normal(size=rows) if levels is None else rng.integers(levels, size=rows) ** 2.0
    test = np.concatenate([values[:4], rng.normal(size=5), [-1e300, 1e300]])
    found = np.unique(values)
    knots = found if len(found) <= 17 else np.quantile(values, np.arange(17) / 16)
    encoder = Encoder.fit(columns_of_array(values[:, None]))
    encoded = encoder.transform(columns_of_array(test[:, None]))
    np.testing.assert_allclose(
        encoded[:, 1:], bins_independently(values, knots, test), rtol=1e-5, atol=1e-6
    )


def test_two_values_and_very_many_columns_have_no_bins():
    rng = np.random.default_rng(0)
    flags = columns_of_array(rng.integers(2, size=(50, 3)).astype(float))
    assert Encoder.fit(flags).transform(flags).shape == (50, 3)
    for columns, bins in ((10, 16), (100, 5), (300, 0)):
        table = columns_of_array(rng.normal(size=(50, columns)))
        assert Encoder.fit(table).transform(table).shape == (50, columns * (1 + bins))


def test_missing_numbers_are_in_the_middle_of_all_bins():
    values = np.array([[1.0], [2.0], [3.0], [np.nan], [9.0]])
    encoded = Encoder.fit(columns_of_array(values)).transform(columns_of_array(values))
    np.testing.assert_array_equal(encoded[3], [0, 1, 0, 0, 0])
    np.testing.assert_allclose(encoded[[0, 1, 2, 4], 2:].mean(axis=0), 0, atol=1e-6)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["2024-01-05", "2024-01-06", None], "time"),
        (["2024-01-05T10:00:00+02:00", "2024-01-06 10:00", "n/a"], "time"),
        (["2024-01-05", "2024-02-31", None], "category"),
        (["1", "2", "3"], "category"),
        ([f"{k / 7:.3f}" for k in range(40)] + ["", "N/A"], "number"),
        ([f"{k:05d}" for k in range(40)], "text"),
        ([f"number {k}" for k in range(40)], "text"),
        (pd.Categorical([f"{k}" for k in range(40)]), "text"),
        ([None, None], "category"),
    ],
)
def test_kinds_of_strings(values, kind):
    columns = columns_of_frame(pd.DataFrame({"a": values}))
    encoder = Encoder.fit(columns)
    assert encoder.kinds == (kind,)
    again = Encoder.from_config(encoder.to_config())
    np.testing.assert_array_equal(again.transform(columns), encoder.transform(columns))
    nothing = columns_of_frame(pd.DataFrame({"a": [None]}))
    assert np.isfinite(encoder.transform(nothing)).all()


def test_times_in_strings_are_those_of_their_zone():
    columns = columns_of_frame(pd.DataFrame({"a": ["2024-01-05T10:00:00+02:00", "2024-01-06"]}))
    stamps = pd.to_datetime(["2024-01-05T08:00", "2024-01-06T00:00"])
    code = Encoder.fit(columns).codes[0]
    expected = Encoder.fit(columns_of_frame(pd.DataFrame({"a": stamps}))).codes[0]
    assert code == expected


def test_the_phase_of_a_month_follows_the_calendar():
    stamps = pd.date_range("2023-01-01", "2024-12-31", freq="D")
    columns = columns_of_frame(pd.DataFrame({"a": stamps}))
    encoder = Encoder.fit(columns)
    assert encoder.codes[0].periods == ("week", "month", "year")
    sine, cosine = encoder.transform(columns)[:, 3:5].T
    phase = (stamps.day - 1) / stamps.days_in_month
    np.testing.assert_allclose(sine, np.sin(2 * np.pi * phase), atol=1e-6)
    np.testing.assert_allclose(cosine, np.cos(2 * np.pi * phase), atol=1e-6)


WORDS = [
    "senior",
    "junior",
    "police",
    "fire",
    "office",
    "school",
    "nurse",
    "manager",
    "driver",
    "engineer",
    "clerk",
]


def make_titles(rows, seed):
    """Titles of three words with typing errors; each word has an effect."""
    rng = np.random.default_rng(seed)
    picked = rng.integers(len(WORDS), size=(rows, 3))
    titles = [" ".join(WORDS[k] for k in row) for row in picked]
    for row in range(0, rows, 3):
        place = rng.integers(len(titles[row]))
        titles[row] = titles[row][:place] + "x" + titles[row][place + 1 :]
    effects = np.linspace(-1, 1, len(WORDS))
    return pd.DataFrame({"title": titles}), effects[picked].sum(axis=1)


def test_text_of_many_levels_is_understood_and_saved(tmp_path):
    frame, targets = make_titles(600, seed=0)
    fresh, truth = make_titles(200, seed=1)
    assert len(set(fresh["title"]) - set(frame["title"])) > 50
    model = Fisher8Regressor(**SETTINGS | {"max_steps": 1500}).fit(frame, targets)
    assert model.score(fresh, truth) > 0.6  # with one column for each of 32 levels: 0.1
    model.save(tmp_path / "model.f8")
    again = Fisher8Regressor.load(tmp_path / "model.f8")
    np.testing.assert_array_equal(again.predict(fresh), model.predict(fresh))
    assert (tmp_path / "model.f8").stat().st_size < 400_000


def test_text_is_projected_on_principal_components():
    """By a route of its own: dense tf-idf rows, their covariance by NumPy."""
    from sklearn.feature_extraction.text import HashingVectorizer

    values = np.array([f"thing {k % 41} of {k % 7}" for k in range(200)], dtype=object)
    columns = [TableColumn("a", "string", values)]
    encoded = Encoder.fit(columns).transform(columns).astype(np.float64)
    hashing = HashingVectorizer(analyzer="char_wb", ngram_range=(2, 4), n_features=256, norm=None)
    counts = hashing.transform(values).toarray()
    share = np.maximum((counts != 0).mean(axis=0), 1 / 200)
    rows = counts * (1 - np.log(share))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    left, sizes, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    kept = min(32, np.sum(sizes**2 > 1e-6 * sizes[0] ** 2))
    scores = left[:, :kept] * sizes[:kept] / np.sqrt(np.mean(sizes[:kept] ** 2) / 200)
    expected = scores / np.sqrt(1 + (scores / 3) ** 2)
    # Up to the sign of each component.
    signs = np.sign(np.sum(encoded * expected, axis=0))
    np.testing.assert_allclose(encoded * signs, expected, atol=1e-3)


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("text", [[1.0] * 10, [0.0], [[0.0] * 10], False], "256 buckets"),
        ("text", [[1.0] * 256, [0.0], [[float("nan")] * 256], False], "not finite"),
        ("time", [[0.0, 1.0, False], ["century"]], "century"),
    ],
)
def test_damaged_codes_are_refused(kind, fields, message):
    with pytest.raises(ValueError, match=message):
        Encoder.from_config([[kind, fields]])


def test_codes_survive_a_file():
    frame = pandas_frame(make_columns()[0])
    columns = columns_of_frame(frame)
    encoder = Encoder.fit(columns)
    again = Encoder.from_config(encoder.to_config())
    np.testing.assert_array_equal(again.transform(columns), encoder.transform(columns))


def test_missing_numbers_differ_from_average_ones():
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
    plain = Fisher8Regressor(**SETTINGS).fit(inputs, targets)
    wild = inputs.copy()
    wild[0, 1] = 1e12
    model = Fisher8Regressor(**SETTINGS).fit(wild, targets)
    assert model.score(inputs, targets) > 0.9 * plain.score(inputs, targets)
    far = np.array([[1e3, 0.0], [-1e300, 0.0], [0.0, 1e300], [np.nan, 0.0]])
    mean, std = plain.predict(far, return_std=True)
    inside = plain.predict(inputs, return_std=True)[1]
    assert (np.abs(mean - targets.mean()) < 5 * targets.std()).all()
    # It grows to about the spread of the targets, and not beyond.
    assert (std[:3] > 2 * inside.mean()).all()
    assert (std < 3 * targets.std()).all()
    low, high = plain.predict_interval(far)
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
    with pytest.raises(TypeError, match=r"`X` is a lazy frame. Pass `X.collect\(\)`"):
        model.fit(pl.DataFrame({"a": [1.0, 2.0]}).lazy(), [1.0, 2.0])
    with pytest.raises(ValueError, match="`X` has columns of the same name"):
        model.fit(pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), [1.0, 2.0])
    with pytest.raises(ValueError, match="`X` has no columns"):
        model.fit(pd.DataFrame(index=range(4)), targets)
    days = pd.Series(pd.date_range("2024-01-01", periods=4))
    for times in (days, days.dt.tz_localize("UTC"), days - days[0], days.dt.date.to_list()):
        with pytest.raises(TypeError, match="`y` holds dates or durations"):
            model.fit(inputs, times)
    with pytest.raises(
        ValueError, match=r"`y` must hold numbers: .*'b'. Classes are not predicted"
    ):
        model.fit(inputs, np.array(list("bcbc")))
    with pytest.raises(
        ValueError, match=r"`X` must hold numbers: .*'b'. Words are read from a data"
    ):
        model.fit(np.array([["b", 1], ["c", 2]] * 2, dtype=object), targets)
    with pytest.raises(ValueError, match=r"such as \(50, 50\), got the string '50,50'"):
        Fisher8Regressor(hidden_layer_sizes="50,50").fit(inputs, targets)
    with pytest.raises(ValueError, match=r"At least 2 rows must have a target.*got 1 of 4"):
        model.fit(inputs, targets, sample_weight=[0, 0, 0, 1])
    with pytest.raises(ValueError, match="`X` must have at least 2 rows, got 1"):
        model.fit(pd.DataFrame({"a": [1.0]}), [1.0])


def test_a_column_that_changes_its_kind_is_named():
    encoder = Encoder.fit(columns_of_frame(pd.DataFrame({"a": ["x", "y"]})))
    with pytest.raises(ValueError, match="Column 'a' of `X` was a category in `fit` and is a num"):
        encoder.transform(columns_of_frame(pd.DataFrame({"a": [1.0, 2.0]})))
    encoder = Encoder.fit(columns_of_frame(pd.DataFrame({"a": ["2024-01-01", "2024-01-02"]})))
    with pytest.raises(ValueError, match="'a' of `X` held times in `fit` and has 'soon' now"):
        encoder.transform(columns_of_frame(pd.DataFrame({"a": ["2024-01-01", "soon"]})))
