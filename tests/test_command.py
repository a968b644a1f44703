"""`python -m fisher8_jax`: what it writes, and what it says instead of a traceback."""

import argparse
import gzip
import html.parser
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from fisher8_jax import Gaussian
from fisher8_jax.artifacts import TargetScaler
from fisher8_jax.command import main
from fisher8_jax.command._arguments import _parser
from fisher8_jax.command._csv import CommandError, Dialect, read_csv
from fisher8_jax.command._fit import join_rows, make_estimator
from fisher8_jax.command._study import make_folds
from fisher8_jax.command._tables import columns_of_model, read_table, split_target
from fisher8_jax.ensembles import Mixture
from fisher8_jax.estimator import Fisher8Regressor, Prediction
from fisher8_jax.families import Poisson, VonMises

ROWS = 80
QUICK = ["--family", "gaussian", "--members", "2", "--max-steps", "60", "--folds", "2"]


@pytest.fixture(autouse=True)
def default_jax():
    with jax.enable_x64(False), jax.numpy_rank_promotion("allow"):
        yield


def options(**changed):
    """What `fit` gets from the command line."""
    defaults = {"target": "y", "ignore": [], "id": [], "group": None, "time": None}
    defaults |= {"folds": 4, "seed": 0, "separator": ",", "decimal": "."}
    return argparse.Namespace(**defaults | changed)


def make_frame():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=ROWS),
            "colour": rng.choice(["red", "<b>green</b>"], ROWS),
            "open": rng.random(ROWS) < 0.5,
            r"$\frac$": rng.normal(size=ROWS),
            "when": pd.date_range("2024-01-01", periods=ROWS),
            "id": np.arange(ROWS),
        }
    )
    noise = 0.1 * rng.normal(size=ROWS)
    frame["y"] = 1e9 + 5 * frame["size"] + 3 * (frame["colour"] == "red") + noise
    frame.loc[3, "size"] = np.nan
    frame.loc[5, "y"] = np.nan
    return frame


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("command")
    make_frame().to_csv(folder / "data.csv", index=False)
    files = ["--model", str(folder / "model.f8"), "--report", str(folder / "report.html")]
    words = ["--target", "y", "--id", "id", "--hidden-layer-sizes", "8,8", *files, *QUICK]
    with jax.enable_x64(False), jax.numpy_rank_promotion("allow"):
        assert main(["fit", str(folder / "data.csv"), *words]) == 0
    return folder


class Page(html.parser.HTMLParser):
    """What a browser would see: headings, words and where pictures come from."""

    def __init__(self, text):
        super().__init__()
        self.words, self.sources, self.tags, self.open = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open += [] if tag in ("meta", "img") else [tag]
        self.sources += [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_the_report_is_one_whole_page(fitted):
    page = Page((fitted / "report.html").read_text())
    text = " ".join(page.words)
    assert page.open == []
    assert page.tags.count("img") == 5
    assert all(source.startswith("data:image/svg+xml;base64,") for source in page.sources)
    for words in (
        "y from data.csv",
        "79 rows, 5 columns. Left out: 1 row without y.",
        "CRPS",
        "held-out NLL",
        "The doctor",
    ):
        assert words in text
    assert "mostly" in text
    assert "<b>green" not in (fitted / "report.html").read_text()  # levels are escaped


def test_scores_of_targets_far_from_zero_keep_their_digits(fitted):
    """In float32, 1e9 has steps of 64: the error would be of that size."""
    page = Page((fitted / "report.html").read_text())
    rmse = float(page.words[page.words.index("RMSE") + 1])
    assert 0 < rmse < 6


def test_predictions_are_those_of_the_estimator(fitted, tmp_path, capsys):
    rows = make_frame().drop(columns="y").iloc[::-1]
    rows = rows[["when", "open", "colour", "size", r"$\frac$", "id"]].assign(more=1)
    rows.iloc[0, 2] = "never seen"
    rows.to_csv(tmp_path / "new.csv", index=False)
    output = tmp_path / "out" / "predictions.csv"
    options = ["--model", str(fitted / "model.f8"), "--output", str(output)]
    more = ["--quantiles", "0.1", "0.5", "0.9", "--id", "id"]
    assert main(["predict", str(tmp_path / "new.csv"), *options, *more]) == 0
    assert "80 predictions" in capsys.readouterr().out
    found = pd.read_csv(output)
    assert list(found.columns) == ["id", "mean", "std", "familiarity", "q0.1", "q0.5", "q0.9"]
    assert list(found["id"]) == list(rows["id"])
    model = Fisher8Regressor.load(fitted / "model.f8")
    frame = columns_of_model(read_csv(tmp_path / "new.csv", as_text=True), model)
    mean, std = model.predict(frame, return_std=True)
    np.testing.assert_allclose(found["mean"] - 1e9, mean - 1e9, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found["std"], std, rtol=1e-12)
    np.testing.assert_allclose(found["familiarity"], model.predict_familiarity(frame))
    assert (found["q0.1"] < found["q0.5"]).all()
    assert (found["q0.5"] < found["q0.9"]).all()
    assert sorted(path.name for path in output.parent.iterdir()) == ["predictions.csv"]


def test_few_rows_are_read_as_the_kinds_of_the_training(fitted, tmp_path):
    """One row whose category is empty, whose number is missing and whose boolean is too."""
    (tmp_path / "one.csv").write_text(
        "size,colour,open,when,$\\frac$\n,,,2024-05-01,1\n2,red,True,,\n"
    )
    model = Fisher8Regressor.load(fitted / "model.f8")
    frame = columns_of_model(read_csv(tmp_path / "one.csv", as_text=True), model)
    assert np.isfinite(model.predict(frame)).all()
    (tmp_path / "bad.csv").write_text(
        "size,colour,open,when,$\\frac$\nlarge,red,True,2024-05-01,\n"
    )
    with pytest.raises(CommandError, match=r"'size' held numbers in the training.*'large'"):
        columns_of_model(read_csv(tmp_path / "bad.csv", as_text=True), model)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "draw"),
    [
        ("poisson", lambda rng, x: rng.poisson(np.exp(x))),
        ("gamma", lambda rng, x: rng.gamma(3, np.exp(x))),
        # Around pi, so that the folds' mean directions differ and wrap.
        ("von_mises", lambda rng, x: np.angle(np.exp(1j * (3 + x + 0.2 * rng.normal(size=ROWS))))),
    ],
)
def test_targets_with_units_of_their_own_get_a_report(family, draw, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=ROWS)
    targets = draw(rng, 0.5 * x)
    pd.DataFrame({"x": x, "y": targets}).to_csv(tmp_path / "data.csv", index=False)
    report, options = tmp_path / "report.html", [*QUICK, "--family", family, "--target", "y"]
    assert main(["fit", str(tmp_path / "data.csv"), "--report", str(report), *options]) == 0
    cells = re.findall("<td>(.*?)</td>", report.read_text())
    baseline = cells[cells.index("NLL, with constant") + 3]
    assert (baseline == "") == (family == "poisson")  # a density beside probabilities


def test_predictions_of_folds_are_brought_to_the_units_of_another_model():
    standard = Mixture(VonMises(jnp.array([[0.25]]), jnp.zeros((1, 1))))
    turned = Prediction(standard, TargetScaler(np.array(3.0), np.array(1.0)))
    mixture = turned.in_units_of(TargetScaler(np.array(1.0), np.array(1.0)))
    np.testing.assert_allclose(mixture.mean, 2.25, rtol=1e-6)
    np.testing.assert_allclose(turned.members.location, 3.25, rtol=1e-6)
    standard = Mixture(Gaussian(jnp.array([[0.5]]), jnp.zeros((1, 1))))
    moved = Prediction(standard, TargetScaler(np.array(1e9), np.array(4.0)))
    mixture = moved.in_units_of(TargetScaler(np.array(1e9 - 8), np.array(2.0)))
    np.testing.assert_allclose([mixture.mean[0], mixture.std[0]], [5.0, 2.0], rtol=1e-6)
    counts = Mixture(Poisson(jnp.zeros((1, 1))))
    own = TargetScaler(np.array(0.0), np.array(1.0))
    np.testing.assert_allclose(Prediction(counts, own).members.mean, 1.0)


def test_folds_with_other_numbers_of_members_are_joined():
    rng = np.random.default_rng(0)
    one, two = (
        Mixture(Gaussian(*rng.normal(size=(2, members, 5)).astype(np.float32)))
        for members in (2, 3)
    )
    joined, targets = join_rows([one, two]), rng.normal(size=10).astype(np.float32)
    expected = np.concatenate([one.nll(targets[:5]), two.nll(targets[5:])])
    np.testing.assert_allclose(joined.nll(targets), expected, rtol=1e-5)


def test_the_report_has_a_baseline_without_columns(fitted):
    """Against NumPy: the mean and the standard deviation of the other fold."""
    page = Page((fitted / "report.html").read_text())
    cells = page.words[page.words.index("RMSE") :]
    frame = make_frame().dropna(subset="y").reset_index(drop=True)
    targets = frame["y"].to_numpy() - 1e9
    rows = split_target(make_frame(), options())
    errors = [
        (targets[test] - targets[train].mean()) ** 2
        for train, test in make_folds(rows, options(folds=2)).pairs
    ]
    assert float(cells[3]) == pytest.approx(np.sqrt(np.mean(np.concatenate(errors))), rel=1e-3)
    assert float(cells[1]) < float(cells[3])


@pytest.mark.parametrize("text", ["x,y\n{}", "x,y,\n{}", "x,y\r\n{}", "\ufeffx,y\n{}"])
def test_separators_at_the_end_of_rows_are_no_columns(text, tmp_path):
    rows = "".join(f"{k},{100 + k},\n" for k in range(12))
    (tmp_path / "data.csv").write_text(text.format(rows))
    found = split_target(read_table(tmp_path / "data.csv"), options())
    assert list(found.inputs.columns) == ["x"]
    np.testing.assert_array_equal(found.targets, 100 + np.arange(12))


def test_rows_with_a_field_more_than_the_header_are_refused(tmp_path, capsys):
    """pandas takes the first field for an index, and every column for its neighbour."""
    path = tmp_path / "data.csv"
    path.write_text("x,y\n" + "".join(f"{k},{k + 1},{100 + k}\n" for k in range(12)))
    message = run(capsys, "fit", path, "--target", "y", "--model", tmp_path / "m.f8")
    assert "Line 2" in message
    assert "has 3 fields, the header has 2" in message


def test_a_header_with_a_name_twice_is_refused(tmp_path, capsys):
    path = tmp_path / "data.csv"
    path.write_text("x,y,y\n" + "1,2,2\n" * 12)
    message = run(capsys, "fit", path, "--target", "y", "--model", tmp_path / "m.f8")
    assert "has 'y' more than once" in message


def test_a_column_without_a_name_is_left_out(tmp_path, capsys):
    """What pandas writes for an index: the number of a row would be a feature."""
    path = tmp_path / "data.csv"
    pd.DataFrame({"x": np.arange(12.0), "y": np.arange(12.0)}).to_csv(path)
    assert list(read_table(path).columns) == ["x", "y"]
    assert "1 column of data.csv without a name left out" in capsys.readouterr().err


def test_rows_that_end_early_are_noted(tmp_path, capsys):
    (tmp_path / "data.csv").write_text("x,y\n" + "1,2\n" * 12 + "3\n")
    assert split_target(read_table(tmp_path / "data.csv"), options()).dropped == 1
    assert "1 row of data.csv with too few fields" in capsys.readouterr().err


def test_separators_and_decimal_points(tmp_path, capsys):
    path = tmp_path / "data.csv"
    path.write_text("x;y\n" + "1,5;2,5\n" * 12)
    message = run(capsys, "fit", path, "--target", "y", "--model", tmp_path / "m.f8")
    assert "If semicolons separate the columns, add `--separator ';'`" in message
    frame = read_table(path, Dialect.of(options(separator=";", decimal=",")))
    assert frame.iloc[0].tolist() == [1.5, 2.5]
    path.write_text("x\ty\n" + "1\t2\n")
    assert list(read_csv(path, Dialect.of(options(separator="\\t"))).columns) == ["x", "y"]
    for changed in ({"separator": "::"}, {"decimal": ""}, {"separator": "."}):
        with pytest.raises(CommandError, match=r"one character|must differ"):
            Dialect.of(options(**changed))
    with gzip.open(tmp_path / "data.csv.gz", "wt") as file:
        file.write("x,y\n1,2\n")
    assert read_csv(tmp_path / "data.csv.gz").shape == (1, 2)


def test_nothing_that_is_read_is_overwritten(fitted, tmp_path, capsys):
    data, model = tmp_path / "data.csv", tmp_path / "model.f8"
    data.write_bytes((fitted / "data.csv").read_bytes())
    model.write_bytes((fitted / "model.f8").read_bytes())
    (tmp_path / "link.csv").symlink_to(data)
    before = data.read_bytes(), model.read_bytes()
    fit = ("fit", data, "--target", "y")
    for words in (
        (*fit, "--model", data),
        (*fit, "--report", tmp_path / "link.csv"),
        (*fit, "--model", tmp_path / "new", "--report", tmp_path / "x" / ".." / "new"),
        ("predict", data, "--model", model, "--output", data),
        ("predict", data, "--model", model, "--output", model),
    ):
        assert "the same file" in run(capsys, *words)
    assert "is a folder" in run(capsys, *fit, "--report", tmp_path)
    assert (data.read_bytes(), model.read_bytes()) == before


def test_folds_by_groups_and_by_time():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=40), "y": rng.normal(size=40)})
    frame["who"], frame["when"] = rng.integers(0, 6, 40).astype(str), rng.permutation(40)
    rows = split_target(frame, options(group="who"))
    assert list(rows.inputs.columns) == ["x", "when"]
    folds = make_folds(rows, options(group="who"))
    who = frame["who"].to_numpy()
    assert all(not set(who[train]) & set(who[test]) for train, test in folds.pairs)
    assert sorted(np.concatenate([test for _, test in folds.pairs])) == list(range(40))
    rows = split_target(frame, options(time="when"))
    assert "when" in rows.inputs.columns
    when, folds = frame["when"].to_numpy(), make_folds(rows, options(time="when"))
    assert all(when[train].max() < when[test].min() for train, test in folds.pairs)
    assert "the 8 earliest rows were not predicted" in folds.words
    with pytest.raises(CommandError, match="one value only"):
        make_folds(split_target(frame.assign(who="a"), options(group="who")), options(group="who"))
    with pytest.raises(CommandError, match=r"'who' is missing in 1 row"):
        split_target(frame.assign(who=[None] + ["a"] * 39), options(group="who"))
    with pytest.raises(CommandError, match="ISO form"):
        split_target(frame.assign(when="soon"), options(time="when"))


def run(capsys, *words):
    assert main([str(word) for word in words]) == 1
    return capsys.readouterr().err


def test_widths_are_separated_by_commas(capsys):
    with pytest.raises(SystemExit):
        main(["fit", "data.csv", "--target", "y", "--hidden-layer-sizes", "50 50"])
    assert "separated by commas are needed, such as 50,50" in capsys.readouterr().err


def test_what_is_wrong_is_said_in_a_line(fitted, tmp_path, capsys):
    data, model = fitted / "data.csv", fitted / "model.f8"
    keep = ("--model", tmp_path / "m.f8")
    assert "no file" in run(capsys, "fit", tmp_path / "x.csv", "--target", "y", *keep)
    assert "There is no column 'z'" in run(capsys, "fit", data, "--target", "z", *keep)
    assert "no column 'k'" in run(capsys, "fit", data, "--target", "y", "--ignore", "k", *keep)
    assert "column of numbers" in run(capsys, "fit", data, "--target", "colour", *keep)
    assert "Nothing would be kept" in run(capsys, "fit", data, "--target", "y")
    both = ("--group", "colour", "--time", "when")
    assert "exclude each other" in run(capsys, "fit", data, "--target", "y", *both, *keep)
    assert "--folds" in run(capsys, "fit", data, "--target", "y", "--folds", "1", *keep)
    assert "family" in run(capsys, "fit", data, "--target", "y", "--family", "normal", *keep)
    out = ("--output", tmp_path / "p.csv")
    assert "no model" in run(capsys, "predict", data, "--model", tmp_path / "no.f8", *out)
    assert "artifact" in run(capsys, "predict", data, "--model", data, *out).lower()
    few = tmp_path / "few.csv"
    few.write_text("size,colour\n1,red\n")
    assert "'open', '$\\\\frac$', 'when'" in run(capsys, "predict", few, "--model", model, *out)
    wrong = ("--model", model, *out, "--quantiles", "1.5")
    assert "between 0 and 1" in run(capsys, "predict", data, *wrong)
    named = ("--model", model, *out, "--id", "nobody")
    assert "no column 'nobody'" in run(capsys, "predict", data, *named)
    assert not (tmp_path / "p.csv").exists()
    assert not (tmp_path / "m.f8").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read"),
        ("x,y\n", "no rows"),
        ("x,y\n1,2\n", "at least 10"),
        ("y\n" + "1\n2\n" * 10, "No column is left"),
    ],
)
def test_files_without_enough_in_them(text, message, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(text)
    with pytest.raises(CommandError, match=message):
        split_target(read_table(path), options())


def test_it_is_a_command(tmp_path):
    words = [sys.executable, "-m", "fisher8_jax", "predict", str(tmp_path / "no.csv")]
    words += ["--model", str(tmp_path / "no.f8"), "--output", str(tmp_path / "p.csv")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("There is no model")


def test_effort_reaches_the_estimator():
    for given, effort in (([], "default"), (["--effort", "best"], "best")):
        arguments = _parser().parse_args(["fit", "data.csv", "--target", "y", *given])
        assert make_estimator(arguments).effort == effort
    with pytest.raises(SystemExit):
        _parser().parse_args(["fit", "data.csv", "--target", "y", "--effort", "much"])
