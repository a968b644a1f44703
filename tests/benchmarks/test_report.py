import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.experiments.sinusoid.plan import NOISES, true_mean
from benchmarks.experiments.uci.comparison import Comparison, Key
from benchmarks.experiments.uci.report import (
    agreement_table,
    coverage,
    outside_table,
    winner_noise,
    winner_table,
)
from benchmarks.machinery.document import Figure, Paragraph, Section, Table, to_html, to_markdown
from benchmarks.machinery.store import Store

PAIR = ("nll", "fisher8")


def add_cell(store, key, shift=0.0, seed=0, metrics=("rmse", "nll", "ece"), lost=0):
    """A cell whose folds have the published mean (plus a shift) and the published std."""
    published = Comparison(store).paper[key]
    result = {}
    for metric in metrics:
        value = published[metric]
        mean, std = (5.0, 1.0) if value is None else value
        folds = mean + shift + std * np.tile([1.0, -1.0], 10)
        folds[:lost] = np.nan
        result[metric] = folds
    optimizer, rate, dataset, method = key
    spec = {
        "optimizer": optimizer,
        "learning_rate": rate,
        "dataset": dataset,
        "method": method,
        "seed": seed,
    }
    name = f"uci/{optimizer}-{rate:g}-{dataset}-{method}-{seed}"
    store.write(name, spec=spec, result=result, provenance={})


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


@pytest.fixture
def row(store):
    """All published cells of one row."""
    return [key for key in Comparison(store).paper if key[:3] == ("sgd", 0.005, "energy")]


def test_published_figures_themselves_agree_everywhere(store, row):
    for key in row:
        add_cell(store, key)
    found = Comparison(store)
    assert len(found.missing) == 352 - len(row)
    assert all(difference.within for difference in found.differences())
    assert "8 of 8 figures" in coverage(found)[1]
    table = agreement_table(found)
    assert table.rows[0] == ["SGD", "rounded as printed", *["1 of 1"] * 3]
    assert table.rows[1] == ["SGD", "unrounded", *["1 of 1"] * 3]
    assert outside_table(found, []).rows == []
    assert winner_table(found).rows == []


def test_a_shifted_cell_is_outside_and_other_seeds_are_named(store, row):
    nll = Key("sgd", 0.005, "energy", "nll")  # published RMSE 3.74 and NLL 1.86
    for key in row:
        add_cell(store, key, shift=9.0 if key == nll else 0.0)
    add_cell(store, nll, seed=1)
    rows = outside_table(Comparison(store), [Comparison(store, 1)]).rows
    assert [r[1] for r in rows] == ["RMSE", "NLL"]
    assert rows[0][2].startswith("12.74")
    assert "with other seeds 3.74: 1 of 1 within" in rows[0][5]
    assert outside_table(Comparison(store), []).rows[0][5] == "open"


def test_lost_folds_are_called_diverged(store, row):
    for key in row:
        add_cell(store, key, lost=3 if key.method == "nll" else 0)
    rows = outside_table(Comparison(store), []).rows
    assert rows[0][2] == "diverged (3 of 20)"
    assert rows[0][5] == "3 of 20 folds diverged"


def test_another_winner_is_listed(store, row):
    for key in row:  # Fisher8 is the published winner of this row
        add_cell(store, key, shift=5.0 if key.method == "fisher8" else 0.0)
    table = winner_table(Comparison(store))
    assert [r[:4] for r in table.rows] == [["sgd 0.005", "energy", "NLL", "Fisher8"]]
    published = [Comparison(store).paper[Key("sgd", 0.005, "energy", m)]["nll"] for m in PAIR]
    expected = (published[0].mean - published[1].mean) / np.sqrt(
        (published[0].std ** 2 + published[1].std ** 2) / 20
    )
    assert table.rows[0][5] == f"{expected:.1f}"
    sentences = winner_noise(Comparison(store), [])
    assert sentences[0].startswith("In 0 of the 1 rows")


def test_ranks_share_ties_and_put_diverged_cells_last(store):
    for method, shift in (("nll", 0.0), ("beta_nll", 0.0), ("faithful", 0.0), ("fisher8", 0.0)):
        key = Key("sgd", 0.1, "naval", method)  # Fisher8 diverged here in the paper
        add_cell(store, key, shift, lost=20 if method == "fisher8" else 0)
    ranks = Comparison(store).ranks("nll", 0.1)
    assert ranks["fisher8"] == (4.0, 4.0)
    assert sum(ours for ours, _ in ranks.values()) == 10


def test_the_command_writes_markdown_and_one_self_contained_page(store, row, tmp_path, capsys):
    for key in row:
        add_cell(store, key)
    add_sinusoid(store)
    broken = store.path("uci/broken")
    broken.write_text("{")
    output, docs = tmp_path / "report", tmp_path / "tables.txt"
    arguments = ["report", "--results", str(store.root), "--output", str(output)]
    assert main([*arguments, "--docs", str(docs)]) == 0
    assert "broken.json is damaged" in capsys.readouterr().out.replace("\n", "")
    page = (output / "report.html").read_text()
    assert "data:image/png;base64," in page
    assert not any(word in page for word in ("http://", "https://", "<script", "<link"))
    text = (output / "report.md").read_text()
    assert "## UCI" in text
    assert "## Sinusoid" in text
    assert (output / "pictures" / "pareto-sgd.png").read_bytes().startswith(b"\x89PNG")
    assert "![" not in docs.read_text()


def test_without_results_the_command_says_so(tmp_path, capsys):
    assert main(["report", "--results", str(tmp_path / "none"), "--output", str(tmp_path)]) == 1
    assert "There are no results" in capsys.readouterr().out


def test_rendering_escapes_and_marks():
    figure = Figure("picture", lambda: b"\x89PNG", "a < b")
    table = Table("caption", ["x|y"], [["**1**"], ["`a<b`"]])
    sections = [Section("One & two", [Paragraph("**bold** <i>"), table, figure])]
    page = to_html("Title", sections)
    assert "<strong>bold</strong> &lt;i&gt;" in page
    assert "<code>a&lt;b</code>" in page
    assert 'id="one-two"' in page
    text = to_markdown("Title", sections, None)
    assert "| x\\|y |\n| --- |\n| **1** |" in text


def add_sinusoid(store):
    x = np.linspace(0, 12, 40)
    sigma = NOISES["constant"](x)
    rng = np.random.default_rng(0)
    result = {
        "rmse": [0.01, None],
        "sigma_error": [0.1, None],
        "steps": [0, 10, 20],
        "x": x,
        "targets": true_mean(x) + sigma * rng.normal(size=40),
        "mean": true_mean(x),
        "std": sigma,
        "log10_jacobian_variance": rng.normal(size=(3, 40)),
        "log10_kl_variance": np.where(rng.normal(size=(3, 40)) > 2, np.nan, 1.0),
    }
    spec = {"setting": "best", "noise": "constant", "method": "fisher8", "steps": 20}
    store.write("sinusoid/tiny", spec=spec, result=result, provenance={})
