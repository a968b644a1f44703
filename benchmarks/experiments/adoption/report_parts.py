"""Tables of what goes beyond one training: parts of the change, bde's sampler, whole PETS."""

import functools
from typing import Any

import numpy as np

from benchmarks.experiments.adoption.pictures import draw_returns
from benchmarks.experiments.adoption.plan import CAUSE_RATES, CAUSES, METHODS, PROGRAMS
from benchmarks.machinery.document import Block, Figure, Table
from benchmarks.machinery.store import Store

_STARTS = {"nll": "plain NLL", "fisher8": "Fisher8", "network": "natural gradient"}


def blocks(store: Store) -> list[Block]:
    """A table for each part that is stored."""
    tables = (causes_table(store), sampler_table(store), pets_table(store))
    found: list[Block] = [table for table in tables if table is not None]
    if returns := pets_returns(store):
        caption = "Returns of PETS by episode: mean over seeds and their range"
        found.append(Figure("adoption_pets", functools.partial(draw_returns, returns), caption))
    return found


def causes_table(store: Store) -> Table | None:
    """A row for each variant, a column for each problem; the best in bold."""
    cells = {
        problem: store.read(f"adoption/{name}-{problem}-{CAUSES}")
        for name, program in PROGRAMS.items()
        if CAUSES in program.methods
        for problem in program.problems
    }
    scores = {
        problem: {name: best_nll(runs) for name, runs in cell["runs"].items()}
        for problem, cell in cells.items()
        if cell is not None
    }
    if not scores:
        return None
    names = list(next(iter(scores.values())))
    best = {problem: min(by_name.values()) for problem, by_name in scores.items()}
    rows = []
    for name in names:
        texts = [f"{by_name[name]:.3f}" for by_name in scores.values()]
        is_best = [by_name[name] == best[problem] for problem, by_name in scores.items()]
        rows.append([name, *(f"**{t}**" if b else t for t, b in zip(texts, is_best, strict=True))])
    rates = ", ".join(f"{rate:g}" for rate in CAUSE_RATES)
    caption = (
        "Parts of the change one by one, with a loop of ours and Adam: test NLL, mean over seeds, "
        f"at the rate ({rates}) and evaluations with the best validation NLL"
    )
    return Table(caption, ["variant", *scores], rows)


def best_nll(runs: dict[str, Any]) -> float:
    """Mean test NLL at the best rate, each training at its best evaluation."""
    validation, test = (
        np.array([[_finite(rate) for rate in seed] for seed in runs[part]])
        for part in ("validation", "test")
    )
    rate = int(validation.min(axis=2).mean(axis=0).argmin())
    looks = validation[:, rate].argmin(axis=1)
    return float(test[np.arange(len(test)), rate, looks].mean())


def _finite(values: list[float | None]) -> list[float]:
    return [np.inf if value is None else value for value in values]


def sampler_table(store: Store) -> Table | None:
    """A row for each pre-training, a column for each number of warm-up steps."""
    rows, header = [], ["problem", "pre-training", "before"]
    for problem in PROGRAMS["bde_sampler"].problems:
        for method in PROGRAMS["bde_sampler"].methods:
            cell = store.read(f"adoption/bde_sampler-{problem}-{method}")
            if cell is not None:
                runs = cell["runs"][0]
                after = np.array([_finite(run["test_nll"]) for run in runs]).T
                before = np.array([run["start_nll"][0] for run in runs])
                rows.append([problem, _STARTS[method], *map(_range, (before, *after))])
                header = [*header[:3], *(f"{steps} warm-up steps" for steps in cell["steps"])]
    caption = "Test NLL of bde before and after its sampler, mean over seeds (smallest to largest)"
    return Table(caption, header, rows) if rows else None


def pets_returns(store: Store) -> dict[str, np.ndarray]:
    """Returns (seeds, episodes) by method; the first episode is random."""
    cells = {
        method: store.read(f"adoption/rl_blox_pets-pendulum-{method}")
        for method in PROGRAMS["rl_blox_pets"].methods
    }
    return {
        method: np.array([run["return"] for run in cell["runs"][0]])
        for method, cell in cells.items()
        if cell is not None
    }


def pets_table(store: Store) -> Table | None:
    """A row for each loss: the return of the random episode and of every planned one."""
    rows, header, seconds = [], ["loss", "rate", "random"], 0.0
    for method, returns in pets_returns(store).items():
        cell = store.load(store.path(f"adoption/rl_blox_pets-pendulum-{method}"))
        assert cell is not None
        seconds += cell["result"]["seconds"]
        means = [f"{value:.0f}" for value in returns.mean(axis=0)]
        planned = _range(returns[:, 1:].mean(axis=1), 0)
        rows.append([METHODS[method][0], f"{cell['spec']['rates'][0]:g}", *means, planned])
        header = [*header[:3], *(f"planned {number}" for number in range(1, len(means)))]
    caption = (
        "Returns of PETS on the pendulum by episode, mean over seeds, and the mean of the planned "
        f"ones (smallest to largest): {seconds / 60:.1f} minutes of one core"
    )
    return Table(caption, [*header, "mean"], rows) if rows else None


def _range(values: np.ndarray, digits: int = 3) -> str:
    ends = f"{values.min():.{digits}f} to {values.max():.{digits}f}"
    return f"{values.mean():.{digits}f} ({ends})"
