"""Plain NLL beside Fisher8 on household food expenditure against income.

Engel's data (235 Belgian households, 1857) come with statsmodels. Spending on food grows with
income, and so does its spread: the smallest real example that needs a predicted variance. Three
methods train the same small network for the same few steps, on twenty random splits at once; the
table gives test scores over the splits, the picture the fits of the first split with their bands.
"""

import argparse
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from rich.table import Table

from benchmarks.console import console, progress
from benchmarks.evaluation import Scores, score
from benchmarks.methods import METHODS
from benchmarks.networks import Mlp
from benchmarks.seeds import generator
from benchmarks.training import (
    Lanes,
    Recipe,
    Schedule,
    Sources,
    shuffled_rows,
    stack,
    start,
    train,
)
from fisher8_jax import Gaussian

SPLITS = 20
TRAINING_SHARE = 0.8
BATCH = 32
CHUNK = 50  # steps between two movements of the progress bar


class Splits(NamedTuple):
    """Income and food expenditure, one split per entry of the first axis, in original units."""

    train: np.ndarray
    test: np.ndarray
    center: np.ndarray
    scale: np.ndarray

    def standardized(self, part: np.ndarray) -> Sources:
        values = ((part - self.center) / self.scale).astype(np.float32)
        return Sources(jnp.asarray(values[..., :1]), jnp.asarray(values[..., 1]))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=200, help="gradient steps of each training")
    parser.add_argument("--learning-rate", type=float, default=0.001, help="of NLL and Fisher8")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--picture", type=pathlib.Path, default=pathlib.Path("engel.png"), help="where to save it"
    )


def run(args: argparse.Namespace) -> int:
    splits = load_splits(args.seed)
    methods = ("nll", "fisher8", "fisher8_radius")
    fits: dict[str, Callable[[Array], Gaussian]] = {}
    scores: dict[str, Scores] = {}
    with progress("training", len(methods) * args.steps) as advance:
        for name in methods:
            recipe = Recipe(Mlp((50, 50)), METHODS[name], optax.sgd)
            params = train_all(recipe, splits, args, advance)
            scores[name] = evaluate(recipe, params, splits)
            fits[name] = first_fit(recipe, params, splits)
    show(scores, args)
    save_picture(fits, splits, args.picture)
    console.print(f"The fits of the first split with their bands: {args.picture}")
    return 0


def load_splits(seed: int) -> Splits:
    from statsmodels.datasets import engel

    data = engel.load_pandas().data[["income", "foodexp"]].to_numpy()
    rows = int(TRAINING_SHARE * len(data))
    orders = [generator("engel", seed, split).permutation(len(data)) for split in range(SPLITS)]
    training = np.stack([data[order[:rows]] for order in orders])
    test = np.stack([data[order[rows:]] for order in orders])
    center, scale = training.mean(1, keepdims=True), training.std(1, keepdims=True)
    return Splits(training, test, center, scale)


def train_all(
    recipe: Recipe, splits: Splits, args: argparse.Namespace, advance: Callable[[float], None]
) -> Any:
    """Trains all splits at once and returns their parameters, stacked."""
    sources = splits.standardized(splits.train)
    lanes = Lanes(
        source=jnp.arange(SPLITS),
        learning_rate=jnp.full(SPLITS, args.learning_rate, jnp.float32),
        key=jax.random.split(jax.random.key(args.seed), SPLITS),
    )
    network = recipe.network
    params = stack([network.init(generator("engel", args.seed, "init", i), 1) for i in range(SPLITS)])
    schedule = make_schedule(splits.train.shape[1], args)
    state = start(recipe, params, None, sources, lanes)
    for first in range(0, args.steps, CHUNK):
        part, steps = schedule.chunk(first, CHUNK)
        state, losses = train(recipe, state, sources, lanes, part, steps)
        jax.block_until_ready(losses)
        advance(steps)
    return state.params


def make_schedule(rows: int, args: argparse.Namespace) -> Schedule:
    """The same batches for every method; the step falls linearly to zero, as the radius wants."""
    draws = [
        shuffled_rows(
            generator("engel", args.seed, "rows", split), rows, batch=BATCH, steps=args.steps
        )
        for split in range(SPLITS)
    ]
    order = np.stack([rows for rows, _ in draws], axis=1)
    decay = np.linspace(1, 0, args.steps, endpoint=False, dtype=np.float32)
    return Schedule(order, draws[0][1], decay)


def predictor(recipe: Recipe, splits: Splits) -> Callable[[Any, int, Array], Gaussian]:
    """`predict(params, split, standardised income)` in original units."""

    def predict(params: Any, split: Array, inputs: Array) -> Gaussian:
        dist, _ = recipe.predict(params, None, inputs)
        center, scale = (jnp.asarray(x[:, 0, 1], jnp.float32) for x in splits[2:])
        return dist.unscale(center[split], scale[split])

    return predict


def evaluate(recipe: Recipe, params: Any, splits: Splits) -> Scores:
    """Test scores of every split."""
    predict = predictor(recipe, splits)
    targets = jnp.asarray(splits.test[..., 1], jnp.float32)

    def of_split(params: Any, split: Array, inputs: Array, targets: Array) -> Scores:
        return score(predict(params, split, inputs), targets, jnp.ones(targets.shape, bool))

    inputs = splits.standardized(splits.test).inputs
    return jax.jit(jax.vmap(of_split))(params, jnp.arange(SPLITS), inputs, targets)


def first_fit(recipe: Recipe, params: Any, splits: Splits) -> Callable[[Array], Gaussian]:
    """The first split's prediction as a function of income in original units."""
    predict = predictor(recipe, splits)
    first = jax.tree.map(lambda leaf: leaf[0], params)

    def fit(income: Array) -> Gaussian:
        standard = (income - splits.center[0, 0, 0]) / splits.scale[0, 0, 0]
        return predict(first, 0, standard[:, None])

    return fit


def show(scores: dict[str, Scores], args: argparse.Namespace) -> None:
    table = Table(title=f"Test scores after {args.steps} steps, mean ± std over {SPLITS} splits")
    table.add_column("method")
    for name in ("RMSE", "NLL", "calibration error"):
        table.add_column(name, justify="right")
    for name, values in scores.items():
        cells = [
            f"{np.mean(values.rmse):.1f} ± {np.std(values.rmse):.1f}",
            f"{np.mean(values.nll):.3f} ± {np.std(values.nll):.3f}",
            f"{np.mean(values.ece):.4f} ± {np.std(values.ece):.4f}",
        ]
        table.add_row(METHODS[name].label, *cells)
    console.print(table)
    console.print(
        f"NLL and Fisher8 at learning rate {args.learning_rate}; the KL radius needs none.\n"
        "NLL in nats per household without ln(2 pi)/2; RMSE in Belgian francs."
    )


def save_picture(
    fits: dict[str, Callable[[Array], Gaussian]], splits: Splits, path: pathlib.Path
) -> None:
    """One panel per method: data, mean and bands of one and two standard deviations."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    from fisher8_jax.plots import plot_fit

    figure, axes = plt.subplots(1, len(fits), figsize=(4.2 * len(fits), 3.8), sharey=True)
    train_part, test_part = splits.train[0], splits.test[0]
    income = np.linspace(train_part[:, 0].min(), train_part[:, 0].max(), 200)
    for ax, (name, fit) in zip(axes, fits.items(), strict=True):
        plot_fit(fit(jnp.asarray(income, jnp.float32)), income, ax=ax)
        ax.plot(*train_part.T, ".", color="0.35", markersize=3, label="training")
        ax.plot(*test_part.T, "x", color="black", markersize=4, label="test")
        ax.set(title=METHODS[name].label, xlabel="income in francs")
    axes[0].set(ylabel="food expenditure in francs", ylim=(0, None))
    axes[0].legend(loc="upper left", fontsize="small")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
