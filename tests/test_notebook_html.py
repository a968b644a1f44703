"""What notebooks show: tables and notes instead of text, escaped, without colours of their own."""

import html.parser

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax import Gaussian, evaluate
from fisher8_jax._internal import progress as _progress
from fisher8_jax.diagnostics import doctor
from fisher8_jax.ensembles import Mixture
from fisher8_jax.estimator import Fisher8Regressor

EVIL = "<script>alert(1)</script>"


class Page(html.parser.HTMLParser):
    """Tags that are open, all tags seen, and the text between them."""

    def __init__(self, source):
        super().__init__()
        self.open, self.seen, self.styles, self.text = [], [], [], ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.seen.append(tag)
        self.styles += [value for name, value in attributes if name == "style"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def parsed(source):
    page = Page(source)
    assert page.open == []
    assert "script" not in page.seen
    for style in page.styles:  # the colours are those of the page, which may be dark
        assert "background" not in style
        assert not style.startswith("color")
        assert ";color" not in style
    return page


@pytest.fixture
def dist():
    return Gaussian(jnp.linspace(-1.0, 1.0, 200), jnp.full(200, -3.0))


def test_distributions(dist):
    page = parsed(dist._repr_html_())
    assert page.seen.count("tr") == 3
    assert "log_variance(200,)float64-3-3-30" in page.text
    members = Mixture(jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), dist))
    assert ".log_variance(2, 200)" in parsed(members._repr_html_()).text
    assert "(200,)" in parsed(jax.eval_shape(lambda d: d, dist)._repr_html_()).text
    assert "1" in parsed(Gaussian(jnp.array([jnp.nan]), jnp.zeros(1))._repr_html_()).text


def test_evaluations(dist):
    scores = evaluate(dist, jnp.zeros(200))
    page = parsed(scores._repr_html_())
    assert page.seen.count("tr") == 1 + len(scores.table().splitlines())
    assert f"{float(scores.rmse):.4g}" in page.text
    wide = Gaussian(jnp.zeros((9, 12)), jnp.zeros((9, 12)))
    page = parsed(evaluate(wide, jnp.zeros((9, 12)))._repr_html_())
    assert "and 4 more columns" in page.text
    shapes = jax.eval_shape(lambda d: evaluate(d, jnp.zeros(200)), dist)
    assert shapes._repr_html_() is None


def test_diagnoses(dist):
    ill = doctor(
        jax.tree.map(lambda leaf: leaf[:, None], dist), jnp.ones((200, 1)), target_names=[EVIL]
    )
    page = parsed(ill._repr_html_())
    assert ill.findings
    assert EVIL in page.text  # as text
    for finding in ill.findings:
        assert f"{finding.severity}: {finding.code}" in page.text
        assert finding.advice.replace("`", "") in page.text
        assert finding._repr_html_() in ill._repr_html_()
    noise = np.random.default_rng(0).normal(size=200)
    well = doctor(dist, dist.mean + jnp.asarray(np.exp(-1.5) * noise))
    assert parsed(well._repr_html_()).text == "No fault found."


def test_estimators_say_what_was_fitted():
    inputs = np.random.default_rng(0).normal(size=(60, 2))
    model = Fisher8Regressor(n_members=2, max_steps=40, hidden_layer_sizes=(4,), random_state=0)
    before = model._repr_mimebundle_()["text/html"]
    assert "gradient steps" not in before
    model.fit(inputs, inputs[:, 0])
    shown = model._repr_mimebundle_()["text/html"]
    for text in ("gradient steps", "held-out NLL", "gaussian", f"{model.n_iter_:,}"):
        assert text in shown
    assert "gradient steps" in model._repr_html_()
    assert shown.index("gradient steps") > before.index("max_steps")


def test_progress_in_a_notebook(monkeypatch):
    """Without ipywidgets: the bar is replaced in place, and leaves at the end."""
    display = pytest.importorskip("IPython.display")
    pages = []

    class Handle:
        def update(self, page):
            pages.append(page.data)

    monkeypatch.setattr(_progress, "_in_notebook", lambda: True)
    monkeypatch.setattr(
        display, "display", lambda page, display_id: pages.append(page.data) or Handle()
    )
    with _progress.report_progress("training", 4, show=True) as report:
        for done, note in ((2, "validation NLL 2"), (4, EVIL)):
            report(done, note)
    assert [parsed(page).seen for page in pages[:-1]] == [["progress"]] * (len(pages) - 1)
    assert "0 %" in pages[0]
    assert "100 %" in pages[-2]
    assert pages[-1] == ""
