"""The part of the report with the strongest baselines, and with the published protocol."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.experiments.tables.plan import (
    CHOSEN_ON,
    MODELS,
    MORE_EFFORT,
    OURS,
    PUBLISHED,
    SPLITS,
    STRONGEST,
    STRONGEST_SPLITS,
)
from benchmarks.experiments.tables.ranks import RANKED, Cells, Comparison, compare
from benchmarks.machinery.document import Block, Paragraph, Table

TITLES = MODELS | MORE_EFFORT | STRONGEST
COLUMNS = (OURS, *STRONGEST)
NEAR = 1.02  # times the lowest RMSE

# RMSE and NLL with their standard deviations over five seeds, as the paper of bde prints them
# (github.com/scikit-learn-contrib/bde, `paper/paper.md`), on ten cores.
PRINTED = {
    "airfoil_bde": {
        "bde": ("0.1215 ± 0.0042", "-0.9126 ± 0.0131"),
        "TabPFN v2": ("0.1359 ± 0.0028", "-0.9338 ± 0.0195"),
        "CatBoost": ("0.2393 ± 0.0036", "0.1479 ± 0.1414"),
        "deep ensemble": ("0.3650 ± 0.0038", "0.1760 ± 0.0043"),
    },
    "bike_bde": {
        "bde": ("0.2261 ± 0.0016", "-0.7315 ± 0.0098"),
        "TabPFN v2": ("0.2103 ± 0.0008", "-0.6856 ± 0.0063"),
        "CatBoost": ("0.2652 ± 0.0021", "-0.3737 ± 0.0229"),
        "deep ensemble": ("0.2880 ± 0.0052", "-0.4550 ± 0.0173"),
    },
}


def whole_cells(cells: Cells) -> Cells:
    """Those whose fits all finished and had all rows; others are shown, but have no rank."""
    return {key: result for key, result in cells.items() if _is_whole(result)}


def groups(cells: Cells) -> list[Comparison]:
    """What can be ranked: the models that have nearly all sets, then those that have half of them.

    A model with fewer sets is compared with the estimator alone.
    """
    found = whole_cells(cells)
    numbers = {model: _number(found, model) for model in _columns(found)}
    most = max((number for model, number in numbers.items() if model != OURS), default=0)
    if most == 0:
        return []
    sizes = [
        tuple(model for model, number in numbers.items() if number >= share * most)
        for share in (0.9, 0.5)
    ]
    return [compare(found, models) for models in dict.fromkeys(sizes)]


def notes(cells: Cells) -> Paragraph:
    """How the tables below are to be read."""
    return Paragraph(
        f"The strongest baselines have the first splits only, at most {STRONGEST_SPLITS}, and "
        "tables of their own: every figure below is a mean over the splits that all models of its "
        "row have. A model is ranked where all its fits finished and used all training rows. "
        "RealMLP trained on quantiles has no density, so no NLL. Of cells that used fewer rows the "
        "number is in brackets."
    )


def strongest_score_table(cells: Cells, score: str, name: str) -> Table | None:
    """Means over the splits of every set that one of the baselines has."""
    rows, columns = [], _columns(cells)
    for dataset in SPLITS:
        row = {model: cells[dataset, model] for model in columns if (dataset, model) in cells}
        if set(row) <= {OURS}:
            continue
        splits = min(len(result["rmse"]) for result in row.values())
        means = {model: _mean(result, score, splits) for model, result in row.items()}
        fair = [mean for model, mean in means.items() if _is_whole(row[model])]
        best = np.nanmin(fair) if score in RANKED else np.nan
        digits = ".2f" if np.nanmin(np.abs(list(means.values()))) >= 1 else ".3g"
        texts = [
            _text(row[model], means[model], best, digits) if model in row else ""
            for model in columns
        ]
        mark = "" if dataset in CHOSEN_ON else " *"
        rows.append([dataset + mark, str(splits), *texts])
    caption = f"{name} beside the strongest (* no setting was chosen on this set)"
    header = ["set", "splits", *(TITLES[model] for model in columns)]
    return Table(caption, header, rows) if rows else None


def seconds_table(cells: Cells) -> Table | None:
    """Processor seconds of a fit, of the same splits as the scores."""
    rows, columns = [], _columns(cells)
    for dataset in SPLITS:
        row = {model: cells[dataset, model] for model in columns if (dataset, model) in cells}
        if set(row) <= {OURS}:
            continue
        splits = min(len(result["rmse"]) for result in row.values())
        texts = [_seconds(row[model], splits) if model in row else "" for model in columns]
        rows.append([dataset, *texts])
    caption = "Processor seconds of a fit with one thread, searches included"
    return Table(caption, ["set", *(TITLES[m] for m in columns)], rows) if rows else None


def near_best_table(found: Comparison) -> Table:
    """On how many sets each model has the lowest RMSE or is close to it."""
    rmse, rows = found.means["rmse"], []
    unseen = np.array([name not in CHOSEN_ON for name in found.datasets], bool)
    is_near = rmse <= NEAR * rmse.min(axis=1, keepdims=True)
    for model, near in zip(found.models, is_near.T, strict=True):
        texts = [f"{near.sum()} of {len(near)}", f"{near[unseen].sum()} of {unseen.sum()}"]
        rows.append([TITLES[model], *texts])
    caption = "The lowest RMSE of these models, or at most 2 % more, on how many sets"
    return Table(caption, ["model", "all", "no setting was chosen on them"], rows)


def lowest_table(cells: Cells) -> Table:
    """Set by set the model whose RMSE is lowest beside the estimator's, each on its own splits."""
    found, rows = whole_cells(cells), []
    for dataset in SPLITS:
        ratios = {
            model: _rmse_beside(found[dataset, OURS], found[dataset, model])
            for model in (*MODELS, *STRONGEST)
            if model != OURS and {(dataset, model), (dataset, OURS)} <= set(found)
        }
        if ratios:
            best = min(ratios, key=lambda model: ratios[model])
            ahead = 1 / ratios[best]
            texts = [TITLES[best], f"{ahead:.2f}", "yes" if ahead <= NEAR else "no"]
            mark = "" if dataset in CHOSEN_ON else " *"
            rows.append([dataset + mark, str(len(ratios)), *texts])
    number = sum(row[-1] == "yes" for row in rows)
    caption = (
        f"The estimator's RMSE is the lowest, or at most 2 % more, on {number} of {len(rows)} sets:"
        " beside each baseline on the splits that both have (* no setting was chosen on this set)"
    )
    header = ["set", "baselines", "the best of them", "the estimator's RMSE, times its", "near"]
    return Table(caption, header, rows)


def _rmse_beside(ours: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    splits = min(len(ours["rmse"]), len(other["rmse"]))
    return _mean(other, "rmse", splits) / _mean(ours, "rmse", splits)


def printed_table(cells: Cells, dataset: str) -> Table | None:
    """One table of the published protocol: printed figures, then those computed here."""
    models = [model for model in TITLES if (dataset, model) in cells]
    if not models:
        return None
    rows = [
        [f"{name}, printed", "5", rmse, nll, "", "", "", ""]
        for name, (rmse, nll) in PRINTED[dataset].items()
    ]
    for model in models:
        result = cells[dataset, model]
        scores = ("rmse", "gaussian_nll", "nll", "crps", "coverage", "fit_seconds")
        digits = (4, 4, 4, 4, 3, 0)
        texts = [_spread(result.get(s), d) for s, d in zip(scores, digits, strict=True)]
        rows.append([TITLES[model], str(len(result["rmse"])), *texts])
    header = ["model", "seeds", "RMSE", "NLL by mean and variance", "NLL", "CRPS"]
    header += ["coverage of 90 % intervals", "processor seconds of a fit"]
    title = dataset.removesuffix("_bde")
    caption = f"{title.capitalize()} by the protocol of bde, in units of the standardised target"
    return Table(caption, header, rows)


def strongest_blocks(
    cells: Cells,
    rank_tables: Callable[[Comparison], list[Block]],
    pair_table: Callable[[Cells, Sequence[str]], Table],
) -> list[Block]:
    """Everything; nothing without results.

    Args:
        cells: by set and model.
        rank_tables: from a comparison to its tables of ranks.
        pair_table: each baseline beside the estimator.
    """
    found = groups(cells)
    tables = [strongest_score_table(cells, *score) for score in _SCORES]
    tables += [seconds_table(cells)]
    blocks: list[Block] = [table for table in tables if table is not None]
    if blocks:
        ranks = [table for one in found for table in rank_tables(one)]
        near = [near_best_table(one) for one in found[:1]]
        pairs = pair_table(whole_cells(cells), tuple(STRONGEST))
        blocks = [notes(cells), *ranks, *near, lowest_table(cells), pairs, *blocks]
    printed = (printed_table(cells, name) for name in PUBLISHED)
    return [*blocks, *(table for table in printed if table is not None)]


_SCORES = (("nll", "NLL"), ("crps", "CRPS"), ("rmse", "RMSE"), ("coverage", "Coverage of 90 %"))


def _columns(cells: Cells) -> list[str]:
    """The models that have a cell of a set with splits."""
    return [model for model in COLUMNS if _number(cells, model)]


def _number(cells: Cells, model: str) -> int:
    return sum((name, model) in cells for name in SPLITS)


def _is_whole(result: Mapping[str, Any]) -> bool:
    return None not in result["rmse"] and not any(result.get("rows_left_out", ()))


def _mean(result: Mapping[str, Any], score: str, splits: int) -> float:
    values = result[score][:splits]
    return float("nan") if None in values else float(np.mean(values))


def _text(result: Mapping[str, Any], mean: float, best: float, digits: str) -> str:
    if None in result["rmse"]:
        return "not finished"
    if np.isnan(mean):
        return ""
    text = format(mean, digits)
    if any(result.get("rows_left_out", ())):
        return f"{text} ({result['train_rows'][0]:,} rows)"
    return f"**{text}**" if text == format(best, digits) else text


def _seconds(result: Mapping[str, Any], splits: int) -> str:
    mark = "more than " if None in result["rmse"] else ""
    return f"{mark}{np.mean(result['fit_seconds'][:splits]):.1f}"


def _spread(values: Sequence[float | None] | None, digits: int) -> str:
    if values is None or None in values:
        return ""
    found = np.array(values, float)
    spread = f" ± {found.std():.{digits}f}" if len(found) > 1 else ""
    return f"{found.mean():.{digits}f}{spread}"
