"""The report: one HTML page that needs nothing beside itself."""

import base64
import html
import io
from collections.abc import Callable

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fisher8_jax._internal.html import table
from fisher8_jax.command._csv import counted
from fisher8_jax.command._study import Study
from fisher8_jax.families import Predictive
from fisher8_jax.plots import (
    plot_importance,
    plot_intervals,
    plot_pit,
    plot_reliability,
    plot_residuals,
)

# Of more rows a random part is drawn: the page stays small, and dots do not cover each other.
_DRAWN_ROWS = 1500

_CALIBRATION_PLOTS = (plot_reliability, "Reliability curve"), (plot_pit, "Histogram of the PIT")
_RESIDUAL_PLOTS = (
    (plot_residuals, "Residuals against predicted standard deviations"),
    (plot_intervals, "Residuals in their intervals"),
)


def draw_importance(study: Study) -> str:
    """The columns that matter most."""
    found = study.importance
    figure = Figure(figsize=(7, 1.2 + 0.32 * min(len(found.names), 20)), layout="constrained")
    plot_importance(found.names, found.mean, found.spread, error=found.error, ax=figure.subplots())
    return _image(figure, "Permutation importance of the columns for mean and spread")


def _pair(study: Study, *pictures: tuple[Callable[..., Axes], str]) -> str:
    """Side by side, or one below the other where the page is narrow."""
    dist, targets = _drawn(study)
    images = []
    for plot, words in pictures:
        figure = Figure(figsize=(5, 4), layout="constrained")
        plot(dist, targets, ax=figure.subplots())
        images.append(_image(figure, words))
    return f"<div class='pair'>{''.join(images)}</div>"


def _drawn(study: Study) -> tuple[Predictive, np.ndarray]:
    number = len(study.predicted_targets)
    rows = np.arange(number)
    if number > _DRAWN_ROWS:
        rows = np.random.default_rng(0).choice(number, _DRAWN_ROWS, replace=False)
    return study.prediction[rows], study.predicted_targets[rows]


def _image(figure: Figure, words: str) -> str:
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "fisher8_jax"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="{html.escape(words)}" src="data:image/svg+xml;base64,{data}">'


_STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, sans-serif; color: #1a1a1a; background: #fff; margin: 0 auto;
       max-width: 62rem; padding: 1.5rem 1.25rem 4rem; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0.5rem 0 0.25rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 0.5rem; padding-top: 0.75rem;
     border-top: 1px solid #ddd; }
p { max-width: 44rem; }
.lead { color: #555; margin-top: 0; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.9rem 0.3rem 0; text-align: right; border-bottom: 1px solid #eee;
         white-space: nowrap; }
th { border-bottom: 2px solid #999; font-weight: 600; }
th:first-child, td:first-child { text-align: left; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: 0.75rem;
         margin: 1.25rem 0; }
.card { border: 1px solid #ddd; border-radius: 6px; padding: 0.6rem 0.8rem; }
.card b { display: block; font-size: 1.3rem; }
.card span { color: #555; font-size: 0.85rem; }
.fine { border-left: 4px solid #009E73; padding: 0.5rem 1rem; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr));
        gap: 0 1rem; }
img { max-width: 100%; height: auto; display: block; margin: 0.75rem 0; }
footer { color: #777; font-size: 0.85rem; margin-top: 3rem; }
"""

_CALIBRATION = (
    "<p>First: the share of targets below each predicted quantile; the diagonal is right. Second: "
    "where in its predicted distribution each target lies; flat is right.</p>"
)
_BASELINE = (
    "<p>The baseline predicts the mean and the standard deviation of the training rows for every "
    "row, as a normal distribution: what can be said without any column.</p>"
)
_RESIDUALS = (
    "<p>First: errors against the spread that was predicted; the diamonds should lie on the line. "
    "Second: errors inside and outside their 90 % intervals.</p>"
)


def make_page(study: Study) -> str:
    """The whole page."""
    title = f"{study.target} from {study.source}"
    sections = [
        ("What to expect", _expectation(study)),
        ("The data", _data(study)),
        ("The model", _model(study)),
        ("Calibration", _CALIBRATION + _pair(study, *_CALIBRATION_PLOTS)),
        ("Residuals", _RESIDUALS + _pair(study, *_RESIDUAL_PLOTS)),
        ("What the predictions depend on", _importance(study)),
        ("The doctor", _doctor(study)),
    ]
    body = "".join(f"<h2>{_text(name)}</h2>{content}" for name, content in sections)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{_text(title)}</h1><p class='lead'>{_lead(study)}</p>{body}"
        f"<footer>Made by <code>python -m fisher8_jax fit</code>.</footer></body></html>\n"
    )


def _lead(study: Study) -> str:
    rows, dropped = len(study.rows.targets), study.rows.dropped
    left_out = f"Left out: {counted(dropped, 'row')} without {study.target}. " if dropped else ""
    columns = counted(len(study.rows.inputs.columns), "column")
    return _text(
        f"{rows} rows, {columns}. {left_out}Scores, pictures and findings are from {study.folds}."
    )


def _expectation(study: Study) -> str:
    scores = study.scores
    spread = float(np.std(study.predicted_targets))
    explained = 1 - (float(scores.rmse) / spread) ** 2 if spread > 0 else float("nan")
    cards = [
        (_number(scores.rmse), "typical error (RMSE)"),
        (f"{100 * explained:.0f} %", "of the variance explained"),
        (f"{100 * float(scores.coverage[-1]):.0f} %", "of the targets in 90 % intervals"),
        (_number(scores.interval_width[-1]), "mean width of these intervals"),
    ]
    boxes = "".join(f"<div class='card'><b>{b}</b><span>{_text(s)}</span></div>" for b, s in cards)
    return f"<div class='cards'>{boxes}</div>{_scores(study)}"


def _scores(study: Study) -> str:
    scores = study.scores
    assert scores.lower is not None
    assert scores.upper is not None
    names = {
        "rmse": "RMSE",
        "mae": "mean absolute error",
        "nll": "NLL, with constant",
        "crps": "CRPS",
        "ece": "calibration error (ECE)",
        "coverage_0.5": "coverage of 50 % intervals",
        "coverage_0.9": "coverage of 90 % intervals",
        "interval_width_0.9": "width of 90 % intervals",
    }
    records = (scores, scores.lower, scores.upper, study.baseline)
    values, low, high, baseline = (one.as_dict() for one in records)
    # A density of the baseline has no place beside probabilities of counts and classes.
    is_density = study.prediction.members.support not in ("counts", "closed unit interval")
    rows = [
        [
            label,
            _number(values[name]),
            f"{_number(low[name])} to {_number(high[name])}",
            _number(baseline[name]) if is_density or name != "nll" else "",
        ]
        for name, label in names.items()
    ]
    return _BASELINE + table(["score", "value", "95 % interval", "baseline"], rows)


def _data(study: Study) -> str:
    inputs, targets, rows = study.rows.inputs, study.rows.targets, []
    for name, kind in zip(inputs.columns, study.model.encoder_.kinds, strict=True):
        rows.append([str(name), kind, *_summary(inputs[name])])
    rows.insert(0, [f"{study.target} (target)", "number", *_summary(pd.Series(targets))])
    header = ["column", "kind", "missing", "distinct", "smallest", "median", "largest"]
    strangest = np.argsort(study.model.predict_familiarity(inputs), kind="stable")[:5] + 1
    sentence = (
        "<p>The rows that resemble the others least, counted from the first with a target: "
        f"{', '.join(map(str, sorted(strangest.tolist())))}. <code>predict</code> writes the "
        "familiarity of every new row: the share of these rows that are no more familiar.</p>"
    )
    return table(header, rows) + sentence


def _summary(column: pd.Series) -> list[str]:
    known = column.dropna()
    counts = [f"{column.isna().sum()}", f"{known.nunique()}"]
    if pd.api.types.is_bool_dtype(known):
        known = known.astype(float)
    if pd.api.types.is_numeric_dtype(known) and len(known):
        return [*counts, *(_number(v) for v in (known.min(), known.median(), known.max()))]
    if pd.api.types.is_datetime64_any_dtype(known) and len(known):
        return [*counts, *(f"{v:%Y-%m-%d}" for v in (known.min(), known.median(), known.max()))]
    most = str(known.mode().iloc[0]) if len(known) else ""
    return [*counts, "", f"mostly {most}" if most else "", ""]


def _model(study: Study) -> str:
    model = study.model
    tried = [
        [name, _number(value)]
        for name, value in sorted(model.candidates_.items(), key=lambda item: item[1])
    ]
    method = " + ".join(map(str, model.methods_))
    sentence = (
        f"<p>An ensemble of {len(model.held_out_nll_)} networks with the likelihood "
        f"<b>{_text(model.family_)}</b>, trained by the method <b>{_text(method)}</b>. "
        "Rows that a network held out chose among the candidates:</p>"
    )
    return sentence + table(["likelihood and method", "held-out NLL"], tried)


def _importance(study: Study) -> str:
    words = (
        "<p>By how many nats the NLL grows when a column is shuffled, for the predicted mean alone "
        "and for the predicted spread alone. The lines are one standard error over the folds.</p>"
    )
    return words + draw_importance(study)


def _doctor(study: Study) -> str:
    if not study.diagnosis:
        return "<p class='fine'>No fault found.</p>"
    return study.diagnosis._repr_html_()


def _number(value: object) -> str:
    """Four digits, without an exponent where it is not needed."""
    if value is None:
        return "not finite"
    number = float(np.asarray(value))
    if not 1e-4 <= abs(number) < 1e7:
        return f"{number:.4g}"
    return np.format_float_positional(number, precision=4, fractional=False, trim="-")


def _text(value: object) -> str:
    return html.escape(str(value))
