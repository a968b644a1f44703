"""How far steps really go when the KL radius is not measured in every step, or not on every row.

`fisher8_optimizer` trains on eight UCI sets. After every step the divergence of the whole batch is
measured and divided by the radius: at most 1 where every step is measured on all rows, up to
rounding, and below it where the bound on the parameters shortens a step. Held-out rows of the
training part tell whether the training suffers. Four sets are those on which settings of this
library were chosen, four are not.
"""

import argparse
import functools
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarks.experiments.curvature.plan import SELECTION
from benchmarks.experiments.curvature.training import Predict
from benchmarks.experiments.damping.kept import NETWORK, OTHERS
from benchmarks.experiments.damping.scales import Fold, held_out_nll, load_fold
from benchmarks.experiments.uci.data import default_cache_dir, prepare
from benchmarks.experiments.uci.jobs import PADDED_FEATURES
from benchmarks.machinery.console import progress
from benchmarks.machinery.data import add_data_argument
from benchmarks.machinery.document import Paragraph, Section, Table, print_section
from benchmarks.machinery.networks import stack_members
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.rows import shuffled_rows
from benchmarks.machinery.seeds import generator
from benchmarks.machinery.store import DEFAULT_RESULTS, Store
from fisher8_jax import fisher8_nll
from fisher8_jax.optimizers import default_max_kl, fisher8_optimizer

CELL = "measured_radius/uci"
STEPS, SPLITS = 500, 5
BATCHES = (32, 128)
GROUPS = {"chosen on": SELECTION, "others": OTHERS}


class Form(NamedTuple):
    """How many steps rely on one measurement, and the part of the rows that is measured."""

    every: int
    part: int

    def __str__(self) -> str:
        if self.every > 1:
            return f"every {self.every} steps"
        return "every step" if self.part == 1 else f"one row in {self.part}"


FORMS = (Form(1, 1), Form(4, 1), Form(8, 1), Form(1, 2), Form(1, 4))
SPEC: dict[str, Any] = {"steps": STEPS, "splits": SPLITS, "batches": BATCHES, "forms": FORMS}
SPEC |= {"sets": GROUPS, "hidden": NETWORK.hidden}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data_argument(parser)
    parser.add_argument("--results", default=DEFAULT_RESULTS, help="folder of the result files")


def run(args: argparse.Namespace) -> int:
    """Measures all forms, stores and prints them."""
    store = Store(args.results)
    if store.read(CELL, SPEC) is None:
        paths = prepare([*SELECTION, *OTHERS], args.data_dir, default_cache_dir())
        origin = provenance("python -m benchmarks measured_radius")
        store.write(CELL, spec=SPEC, result={"rows": measure(paths)}, provenance=origin)
    return print_section(section(store))


def measure(paths: dict[str, Path]) -> list[dict[str, Any]]:
    """One row for every batch size, form and set."""
    rows = []
    folds = {name: load_fold(name, path) for name, path in paths.items()}
    with progress("measured_radius", len(BATCHES) * len(FORMS) * len(folds)) as advance:
        for batch in BATCHES:
            for form in FORMS:
                for name, fold in folds.items():
                    found = train_all(name, fold, form, batch)
                    rows.append({"batch": batch, "form": str(form), "set": name} | found)
                    advance(1)
    return rows


def train_all(name: str, fold: Fold, form: Form, batch: int) -> dict[str, Any]:
    """What the steps of all splits were, in units of the radius, and the held-out NLL."""
    rngs = [generator("uci", name, split, 0, "init") for split in range(SPLITS)]
    networks = [NETWORK.init(rng, fold.features, PADDED_FEATURES) for rng in rngs]
    params = jax.tree.map(jnp.asarray, stack_members(networks))
    rows = np.stack(
        [
            mine[shuffled_rows(rng, len(mine), batch=batch, steps=STEPS)[0]]
            for mine, rng in zip(fold.kept[:SPLITS], rngs, strict=True)
        ]
    )
    data = fold.inputs[:SPLITS], fold.targets[:SPLITS]
    params, ratios = train(form, params, *data, jnp.asarray(rows))
    nll = held_out_nll(NETWORK, params, data, jnp.asarray(fold.held[:SPLITS]))
    return summary(np.asarray(ratios)) | {"nll": float(np.mean(np.asarray(nll)))}


def summary(ratios: np.ndarray) -> dict[str, float]:
    """Of the steps' divergence in units of the radius; the last step has no length."""
    ratios = ratios[:, :-1]
    return {
        "mean": float(ratios.mean()),
        "above_2": float(np.mean(ratios > 2)),
        "largest": float(ratios.max()),
    }


@functools.partial(jax.jit, static_argnums=0)
def train(form: Form, params: Any, inputs: Array, targets: Array, rows: Array) -> Any:
    """Last parameters of all splits, and the divergence of every step over the radius."""
    every = None if form.every == 1 else form.every
    optimizer = fisher8_optimizer(STEPS, measure_every=every)
    network = Predict(NETWORK)

    def of_split(params: Any, inputs: Array, targets: Array, rows: Array) -> Any:
        def step(carry: Any, now: Any) -> Any:
            (params, state), (count, index) = carry, now
            x, y = inputs[index], targets[index]
            measured = x[: len(index) // form.part]
            grads = jax.grad(lambda p: fisher8_nll(network(p, x), y).mean())(params)
            updates, state = optimizer.update(
                grads, state, params, predict=lambda p: network(p, measured)
            )
            dist, moved = jax.jvp(lambda p: network(p, x), (params,), (updates,))
            radius = default_max_kl(STEPS) * jnp.square(1 - count / STEPS)
            ratio = 0.5 * dist.fisher_norm_sq(moved).mean() / radius
            return (optax.apply_updates(params, updates), state), ratio

        counts = jnp.arange(STEPS)
        (params, _), ratios = jax.lax.scan(step, (params, optimizer.init(params)), (counts, rows))
        return params, ratios

    return jax.vmap(of_split)(params, inputs, targets, rows)


def section(store: Store) -> Section | None:
    """What is stored; None if there is nothing."""
    result = store.read(CELL)
    if result is None:
        return None
    header = [
        "batch",
        "measured",
        "sets",
        "mean",
        "steps above twice",
        "largest",
        "NLL over default",
    ]
    rows = [
        _line(result["rows"], batch, str(form), group)
        for batch in BATCHES
        for form in FORMS
        for group in GROUPS
    ]
    caption = "Divergence of single steps in units of the radius"
    words = (
        f"{STEPS} steps, {SPLITS} splits, 2x50 SiLU units. Mean and share run over steps of four "
        "sets, the largest is that of all of them. The NLL is that of held-out training rows less "
        "that of the default, which measures every step, the median of four sets: without early "
        "stopping Boston and Wine overfit batches of 128, and a mean would be theirs."
    )
    return Section(
        "The KL radius, measured seldom", [Table(caption, header, rows), Paragraph(words)]
    )


def _line(rows: list[dict[str, Any]], batch: int, form: str, group: str) -> list[str]:
    def values(key: str, form: str) -> list[float]:
        here = [r for r in rows if (r["batch"], r["form"]) == (batch, form)]
        return [np.inf if r[key] is None else r[key] for r in here if r["set"] in GROUPS[group]]

    excess = np.median(np.subtract(values("nll", form), values("nll", str(FORMS[0]))))
    share = 100 * np.mean(values("above_2", form))
    numbers = [f"{np.mean(values('mean', form)):.2f}", f"{share:.1f} %"]
    return [
        str(batch),
        form,
        group,
        *numbers,
        f"{max(values('largest', form)):.1f}",
        f"{excess:+.3f}",
    ]
