"""The report's section on the KL radius: four tables, their claims, one picture."""

import functools
from collections.abc import Sequence

import numpy as np

from benchmarks.experiments.radius.claims import RadiusResults, Verdict
from benchmarks.experiments.radius.plan import AVERAGE_EPOCHS, CAP_MAX_KL, SELECTION, VARIANTS
from benchmarks.experiments.uci.comparison import METRICS
from benchmarks.experiments.uci.data import DATASETS
from benchmarks.machinery.document import Block, Figure, Paragraph, Section, Table
from benchmarks.machinery.store import Store


def section(store: Store, seed: int = 0) -> Section | None:
    """Tables and claims from result files; None if there are none."""
    results = RadiusResults(store, seed)
    blocks = [*_steps_blocks(results), *_cap_blocks(results), *_epochs_blocks(results)]
    blocks += _cost_blocks(store)
    if not blocks:
        return None
    if results.get("steps", "last", "wine"):
        caption = (
            "RMSE and NLL against the learning rate: published methods, SGD capped by the radius, "
            "and the default optimizer, without a learning rate, as a flat line."
        )
        blocks.append(Figure("radius_learning_rate", functools.partial(draw, store, seed), caption))
    return Section("The KL radius", blocks)


def draw(store: Store, seed: int = 0) -> bytes:
    """The picture as PNG."""
    from benchmarks.experiments.radius.figure import learning_rate_figure

    return learning_rate_figure(RadiusResults(store, seed))


def _steps_blocks(results: RadiusResults) -> list[Block]:
    verdicts = results.verdicts_of_steps()
    if not verdicts:
        return []
    caption = (
        "100 steps of `fisher8_optimizer(100)` for all sets, against the best published mean over "
        "five methods and six learning rates of SGD. The setting was chosen by the test scores of "
        "the sets marked *"
    )
    scored = [v for v in verdicts if v.metric != "ece"]
    calibrated = [v for v in verdicts if v.metric == "ece"]
    sentence = (
        f"Better mean RMSE and NLL in **{_count(scored)}** cells (sets not used for the choice: "
        f"{_count([v for v in scored if v.dataset not in SELECTION])}); ECE at most 0.005 above "
        f"the best published one in **{_count(calibrated)}** sets."
    )
    return [_verdict_table(caption, verdicts), Paragraph(sentence)]


def _cap_blocks(results: RadiusResults) -> list[Block]:
    rows = []
    for rate in VARIANTS["cap"]:
        cells = [(d, c) for d in DATASETS if (c := results.get("cap", rate, d))]
        if not cells:
            continue
        runs = sum(len(c["rmse"].folds) for _, c in cells)
        lost = sum(max(c["rmse"].diverged, c["nll"].diverged) for _, c in cells)
        lost += sum(results.non_finite["cap", rate, d] for d, _ in cells)
        worst = max(float(np.max(c["nll"].folds)) for _, c in cells)
        means = _means(results, "cap", rate)
        rows.append([rate, f"{lost} of {runs}", f"{worst:.2f}", *means])
    if not rows:
        return []
    caption = (
        f"Plain SGD for 100 steps, capped by a radius that falls from {CAP_MAX_KL} with the step "
        "linear: runs with a non-finite prediction or score, the worst NLL of any run, RMSE / NLL"
    )
    verdicts = results.verdicts_of_cap()
    sentence = (
        f"At 0.1 no worse than published Fisher8 at its best rate for each set and metric in "
        f"**{_count(verdicts)}** cells."
    )
    return [Table(caption, ["rate", "diverged", "worst", *DATASETS], rows), Paragraph(sentence)]


def _epochs_blocks(results: RadiusResults) -> list[Block]:
    blocks: list[Block] = []
    chosen = results.verdicts_of_epochs("held_out", "best_average")
    if chosen:
        caption = (
            "100 epochs of `fisher8_optimizer`, averaged over the last "
            f"{AVERAGE_EPOCHS} epochs, the best of all epochs on a held-out tenth of the training "
            "part; against the best published mean over five methods and three rates of Adam, at "
            "the printed precision"
        )
        blocks.append(_verdict_table(caption, chosen))
        blocks.append(Paragraph(f"At least as good in **{_count(chosen)}** cells."))
    rows = []
    for experiment in ("epochs", "held_out"):
        for variant in VARIANTS[experiment]:
            verdicts = results.verdicts_of_epochs(experiment, variant)
            if verdicts:
                means = _means(results, experiment, variant)
                rows.append([experiment, variant, _count(verdicts), *means])
    if rows:
        caption = "Guards for small data over 100 epochs: RMSE / NLL, and cells as good as Adam's"
        blocks.append(Table(caption, ["data", "parameters", "cells", *DATASETS], rows))
    return blocks


def _means(results: RadiusResults, experiment: str, variant: str) -> list[str]:
    """RMSE / NLL of every set; "-" where there is no cell."""
    cells = [results.get(experiment, variant, dataset) for dataset in DATASETS]
    return ["-" if c is None else f"{c['rmse'].mean:.3g} / {c['nll'].mean:.2f}" for c in cells]


def _cost_blocks(store: Store) -> list[Block]:
    cells = list(store.cells("radius-cost"))
    if not cells:
        return []
    rows = []
    for cell in cells:
        result = cell["result"]
        for name, ratio in result["ratios"].items():
            spread = f"{ratio['low']:.2f} to {ratio['high']:.2f}"
            flops = f"{ratio['flops']:.2f}"
            rows.append([cell["spec"]["network"], name, f"{ratio['median']:.2f}", spread, flops])
    caption = (
        "Cost of a step with the radius against plain Fisher8, interleaved: median ratio of times, "
        "quartiles, ratio of floating-point operations"
    )
    return [Table(caption, ["network", "measured on", "time", "quartiles", "operations"], rows)]


def _verdict_table(caption: str, verdicts: Sequence[Verdict]) -> Table:
    rows = []
    for verdict in verdicts:
        digits = METRICS[verdict.metric] + (2 if verdict.dataset == "naval" else 1)
        mark = "*" if verdict.dataset in SELECTION else ""
        rows.append(
            [
                verdict.dataset + mark,
                verdict.metric.upper(),
                f"{verdict.ours.mean:.{digits}f} ± {verdict.ours.std:.{digits}f}",
                f"{verdict.baseline.value:.4g} ({verdict.baseline.where})",
                "yes" if verdict.holds else "**no**",
            ]
        )
    return Table(caption, ["set", "", "ours", "best published", "holds"], rows)


def _count(verdicts: Sequence[Verdict]) -> str:
    return f"{sum(v.holds for v in verdicts)} of {len(verdicts)}"
