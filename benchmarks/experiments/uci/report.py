"""The UCI section of the report: coverage, fingerprints, nine tables, Pareto panels."""

from collections.abc import Sequence

import numpy as np

from benchmarks.experiments.uci.comparison import (
    METRICS,
    Comparison,
    Difference,
    Key,
    Ours,
)
from benchmarks.experiments.uci.pareto import pareto_figures
from benchmarks.experiments.uci.plan import BUDGETS, SPLITS
from benchmarks.machinery.baselines import BASELINES, WITH_VARIANCE
from benchmarks.machinery.document import Block, Paragraph, Section, Table
from benchmarks.machinery.store import Store

LABELS = {name: method.label for name, method in BASELINES.items()}
# Here the radius only bounds steps of the given learning rate; the default has its own tables.
LABELS["fisher8_radius"] = f"Fisher8, KL cap {BASELINES['fisher8_radius'].max_kl:g}"
# What one looks for first stands where no scrolling is needed.
COLUMNS = ("fisher8", "fisher8_radius", "nll", "beta_nll", "faithful", "unit_variance")
LOW_RATES = (0.001, 0.003, 0.005)


def section(store: Store) -> Section | None:
    """Everything about UCI, or None without results."""
    cells = list(store.cells("uci"))
    comparison = Comparison(store, cells=cells)
    if not comparison.ours:
        return None
    others = [Comparison(store, seed, cells) for seed in range(1, 10)]
    blocks: list[Block] = [Paragraph(_how_to_read())]
    others = [other for other in others if other.ours]
    blocks += [Paragraph(text) for text in coverage(comparison)]
    blocks.append(agreement_table(comparison))
    blocks += [Paragraph(text) for text in winner_noise(comparison, others)]
    blocks.append(fingerprint_table(comparison))
    blocks += [Paragraph(text) for text in fingerprints(comparison)]
    blocks.append(outside_table(comparison, others))
    blocks.append(winner_table(comparison))
    blocks += [table for name in BUDGETS if (table := methods_table(comparison, name))]
    blocks += [figure for name in BUDGETS for figure in pareto_figures(comparison, name, LABELS)]
    present = {key[:2] for key in comparison.ours}
    tables = [table for table in comparison.tables if table in present]
    blocks += [result_table(comparison, *table) for table in tables]
    return Section("UCI", blocks)


def coverage(comparison: Comparison) -> list[str]:
    """How many figures agree, in sentences."""
    sentences = []
    if comparison.missing:
        sentences.append(f"**{len(comparison.missing)} published cells have no result yet.**")
    for metrics in (("rmse", "nll"), ("ece",)):
        found = comparison.differences(metrics)
        inside = sum(d.within for d in found)
        name = " and ".join(m.upper() for m in metrics)
        sentences.append(
            f"{name}: {inside} of {len(found)} figures that did not diverge in the paper "
            f"({100 * inside / max(1, len(found)):.1f} %) lie within one published fold std of the "
            "published mean, ours rounded as the paper prints it; without rounding "
            f"{sum(d.within_unrounded for d in found)}."
        )
    return sentences


def agreement_table(comparison: Comparison) -> Table:
    """In how many rows (rate, set) the best method is the published one."""
    rows = []
    for optimizer in BUDGETS:
        for words, rounded in (("rounded as printed", True), ("unrounded", False)):
            counts = [comparison.agreement(optimizer, m, rounded=rounded) for m in METRICS]
            texts = [f"{agree} of {number}" for agree, number in counts]
            rows.append([optimizer.upper(), words, *texts])
    caption = (
        "Rows (learning rate, set) in which our best of the five methods is the published best "
        "one; a tie in printed figures counts as either"
    )
    return Table(caption, ["", "our means", *(metric.upper() for metric in METRICS)], rows)


def fingerprint_table(comparison: Comparison) -> Table:
    """Average ranks at every SGD rate, ours and published."""
    rows = []
    for metric in ("nll", "rmse"):
        for rate in BUDGETS["sgd"].rates:
            ranks = comparison.ranks(metric, rate)
            if ranks:
                cells = [f"{ranks[m][0]:.2f} ({ranks[m][1]:.2f})" for m in WITH_VARIANCE]
                rows.append([metric.upper(), f"{rate:g}", *cells])
    header = ["", "SGD rate", *(LABELS[m] for m in WITH_VARIANCE)]
    caption = "Average rank over the eight sets among the four methods: ours (published)"
    return Table(caption, header, rows)


def fingerprints(comparison: Comparison) -> list[str]:
    """The two marks of the published tables."""
    sentences = []
    for metric in ("nll", "rmse"):
        low = [r["fisher8"] for rate in LOW_RATES if (r := comparison.ranks(metric, rate))]
        high = comparison.ranks(metric, 0.1)
        if len(low) < len(LOW_RATES) or not high:
            continue
        ours, paper = np.mean(low, axis=0)
        sentences.append(
            f"Fisher8's average rank in {metric.upper()} at the three lowest SGD rates is "
            f"{ours:.2f} (published: {paper:.2f}); at 0.1 it is {high['fisher8'][0]:.2f} "
            f"(published: {high['fisher8'][1]:.2f})."
        )
    return sentences


def outside_table(comparison: Comparison, others: Sequence[Comparison]) -> Table:
    """Every RMSE and NLL that is further than one published std away."""
    rows = []
    for found in comparison.differences(("rmse", "nll")):
        if not found.within:
            rows.append(
                [
                    _place(found.key),
                    found.metric.upper(),
                    _number(found.ours, found.metric),
                    _published(found),
                    _spreads(found),
                    reason(found, others),
                ]
            )
    header = ["cell", "metric", "ours", "paper", "spreads", "reason"]
    return Table("Figures outside one published fold std", header, rows)


def reason(found: Difference, others: Sequence[Comparison]) -> str:
    """What is known about a figure outside: lost folds, other seeds, or nothing ("open")."""
    parts = []
    folds = found.ours.folds
    if found.ours.diverged:
        parts.append(f"{found.ours.diverged} of {len(folds)} folds diverged")
    elif abs(np.median(folds) - found.paper.mean) <= found.paper.std:
        worst = folds[np.argmax(np.abs(folds - np.median(folds)))]
        parts.append(
            f"the median fold, {np.median(folds):.2f}, is within; the worst is {worst:.3g}"
        )
    again = [o.ours[found.key][found.metric] for o in others if found.key in o.ours]
    if again:
        inside = sum(found._replace(ours=ours).within for ours in again)
        means = ", ".join(_number(ours, found.metric).split(" ")[0] for ours in again)
        parts.append(f"with other seeds {means}: {inside} of {len(again)} within")
    return "; ".join(parts) or "open"


def winner_rows(
    comparison: Comparison, metric: str = "nll"
) -> list[tuple[str, float, str, str, set[str]]]:
    """One row per table and set: place, our best method, the published best ones."""
    rows = []
    for optimizer, rate in comparison.tables:
        for dataset in dict.fromkeys(key.dataset for key in comparison.paper):
            found = comparison.winners(optimizer, rate, dataset, metric)
            if found is not None:
                rows.append((optimizer, rate, dataset, *found))
    return rows


def winner_table(comparison: Comparison) -> Table:
    """The rows in which another method is best in NLL."""
    rows = []
    for optimizer, rate, dataset, ours, paper in winner_rows(comparison):
        if ours not in paper:
            key = Key(optimizer, rate, dataset, ours)
            baseline = key._replace(method=min(paper))
            values = [comparison.ours[k]["nll"].mean for k in (key, baseline)]
            words = ", ".join(sorted(LABELS[m] for m in paper))
            gap = f"{values[0]:.3f} against {values[1]:.3f}"
            errors = published_gap(comparison, key, baseline)
            size = "ours diverged there" if np.isinf(errors) else f"{errors:.1f}"
            rows.append([f"{optimizer} {rate:g}", dataset, LABELS[ours], words, gap, size])
    header = ["table", "set", "our best", "published best", "our NLL of the two"]
    caption = "Rows in which another method is best in NLL"
    return Table(caption, [*header, "published gap in standard errors"], rows)


def published_gap(comparison: Comparison, key: Key, baseline: Key) -> float:
    """How clearly the paper has `baseline` before `key`: the gap in standard errors over folds."""
    ours, best = (comparison.paper[k]["nll"] for k in (key, baseline))
    if ours is None or best is None:
        return np.inf
    error = np.hypot(ours.std, best.std) / np.sqrt(SPLITS)
    return (ours.mean - best.mean) / error if error else np.inf


def winner_noise(comparison: Comparison, others: Sequence[Comparison]) -> list[str]:
    """How much of the disagreement about winners is chance."""
    sentences = []
    different = [row for row in winner_rows(comparison) if row[3] not in row[4]]
    keys = [(Key(*row[:4]), Key(*row[:3], min(row[4]))) for row in different]
    clear = sum(published_gap(comparison, *pair) > 2 for pair in keys)
    sentences.append(
        f"In {len(different) - clear} of the {len(different)} rows with another winner the two "
        "methods differ by less than two standard errors in the paper itself (fold std over the "
        "root of 20)."
    )
    first = {row[:3]: row[3] for row in winner_rows(comparison)}
    for seed, other in enumerate(others, start=1):
        again = {row[:3]: row[3] for row in winner_rows(other)}
        if again:
            same = sum(first[place] == method for place, method in again.items())
            agree = sum(row[3] in row[4] for row in winner_rows(other))
            sentences.append(
                f"Our own run with seed {seed} has the winner of seed 0 in {same} of {len(again)} "
                f"rows, and the published one in {agree}."
            )
    return sentences


def result_table(comparison: Comparison, optimizer: str, rate: float) -> Table:
    """One published table beside ours."""
    present = {k.method for k in comparison.ours if k[:2] == (optimizer, rate)}
    methods = [m for m in COLUMNS if m in present]
    rows = []
    for dataset in dict.fromkeys(key.dataset for key in comparison.paper):
        for metric in METRICS:
            keys = [Key(optimizer, rate, dataset, method) for method in methods]
            best = _best(comparison, keys, metric)
            cells = [_cell(comparison, key, metric, key.method == best) for key in keys]
            rows.append([dataset, metric.upper(), *cells])
    budget = BUDGETS[optimizer].words
    caption = (
        f"{optimizer.upper()}, learning rate {rate:g}, {budget}: ours / paper "
        "[difference in published fold spreads], our best in bold"
    )
    return Table(caption, ["set", "", *(LABELS[m] for m in methods)], rows)


def methods_table(comparison: Comparison, optimizer: str) -> Table | None:
    """Every method that has results, also those that the paper does not run on these sets."""
    present = {key.method for key in comparison.ours if key.optimizer == optimizer}
    methods = [*COLUMNS, *(m for m in BASELINES if m not in COLUMNS)]
    methods = [method for method in methods if method in present]
    if set(methods) <= set(COLUMNS):
        return None
    rates, rows = BUDGETS[optimizer].rates, []
    for dataset in dict.fromkeys(key.dataset for key in comparison.paper):
        of_method = {
            m: [comparison.ours.get(Key(optimizer, rate, dataset, m)) for rate in rates]
            for m in methods
        }
        for metric in ("rmse", "nll"):
            best = {m: _lowest(cells, metric) for m, cells in of_method.items()}
            lowest = min(value for value, _ in best.values())
            texts = [_with_rate(*best[m], rates, bold=best[m][0] == lowest) for m in methods]
            rows.append([dataset, metric.upper(), *texts])
    rows.append(["all sets", "diverged", *(_diverged(comparison, optimizer, m) for m in methods)])
    caption = (
        f"{optimizer.upper()}, {BUDGETS[optimizer].words}, every method here: the lowest "
        "mean over the learning rates, chosen per cell by the test score itself, and the rate; "
        "the last row counts cells (set, rate) with a fold that diverged"
    )
    return Table(caption, ["set", "", *(LABELS[m] for m in methods)], rows)


def _lowest(cells: Sequence[dict[str, Ours] | None], metric: str) -> tuple[float, int]:
    """The lowest mean over rates and its place; infinite if none is finite."""
    means = [np.inf if cell is None else cell[metric].mean for cell in cells]
    means = [mean if np.isfinite(mean) else np.inf for mean in means]
    return min(means), int(np.argmin(means))


def _with_rate(value: float, place: int, rates: Sequence[float], *, bold: bool) -> str:
    if not np.isfinite(value):
        return "diverged"
    text = f"{value:.2f}"
    return (f"**{text}**" if bold else text) + f" ({rates[place]:g})"


def _diverged(comparison: Comparison, optimizer: str, method: str) -> str:
    cells = [
        v for k, v in comparison.ours.items() if (k.optimizer, k.method) == (optimizer, method)
    ]
    return f"{sum(cell['nll'].diverged > 0 for cell in cells)} of {len(cells)}"


def _cell(comparison: Comparison, key: Key, metric: str, best: bool) -> str:
    if key not in comparison.ours:
        return "not run"
    ours = comparison.ours[key][metric]
    text = _number(ours, metric)
    text = f"**{text}**" if best else text
    if key not in comparison.paper:
        return text
    paper = comparison.paper[key][metric]
    if paper is None:
        return f"{text} / diverged"
    found = Difference(key, metric, ours, paper)
    return f"{text} / {_published(found)} [{_spreads(found)}]"


def _best(comparison: Comparison, keys: list[Key], metric: str) -> str | None:
    known = [key for key in keys if key in comparison.ours]
    values = {key.method: comparison.ours[key][metric].mean for key in known}
    finite = {method: value for method, value in values.items() if np.isfinite(value)}
    return min(finite, key=lambda method: finite[method]) if finite else None


def _number(ours: Ours, metric: str) -> str:
    if ours.diverged:
        return f"diverged ({ours.diverged} of {len(ours.folds)})"
    if ours.mean > 1e4:
        return f"{ours.mean:.1e} ± {ours.std:.1e}"
    digits = METRICS[metric]
    return f"{ours.mean:.{digits}f} ± {ours.std:.{digits}f}"


def _published(found: Difference) -> str:
    digits = METRICS[found.metric]
    return f"{found.paper.mean:.{digits}f} ± {found.paper.std:.{digits}f}"


def _spreads(found: Difference) -> str:
    if not np.isfinite(found.ours.mean):
        return "diverged"
    return f"{found.spreads:+.1f}" if np.isfinite(found.spreads) else "std 0.00"


def _place(key: Key) -> str:
    return f"{key.optimizer} {key.rate:g}, {key.dataset}, {LABELS[key.method]}"


def _how_to_read() -> str:
    return (
        "Means and population standard deviations over the 20 predefined splits. RMSE and NLL are "
        "in the units of the data, the NLL without ln(2 pi)/2, the ECE over ten PIT bins. A "
        "figure diverged if a fold has no finite value; the paper's ECE leaves such folds out, "
        "ours counts non-finite predictions as a bin of their own."
    )
