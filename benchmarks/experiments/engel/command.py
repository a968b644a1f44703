"""Plain NLL beside Fisher8 on household food expenditure against income.

Engel's data (235 Belgian households, 1857) come with statsmodels. Spending on food grows with
income, and so does its spread: the smallest real example that needs a predicted variance. Plain NLL
and Fisher8 train the same small network for the same few steps at several learning rates; Fisher8
with the KL radius has none. All run on twenty random splits at once. The network sees the logarithm
of the income, since few households have much of it. The table gives test scores over the splits;
the picture shows the first split's fits of each method at the rate with its best test NLL, above a
rate at which it does badly, and the methods that need no rate.
"""

import argparse
import functools
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from rich import box
from rich.table import Table

from benchmarks.machinery.baselines import BASELINES
from benchmarks.machinery.console import console, progress
from benchmarks.machinery.loop import Datasets, Schedule, start, train
from benchmarks.machinery.networks import Mlp, stack_members
from benchmarks.machinery.rows import shuffled_rows
from benchmarks.machinery.scoring import SCORES, score
from benchmarks.machinery.seeds import generator
from benchmarks.machinery.step import Run
from benchmarks.machinery.training import Setup
from fisher8_jax import Gaussian

SPLITS = 20
TRAINING_SHARE = 0.8
BATCH = 32
DIVERGED_RMSE = 2760.0  # francs, ten standard deviations of the food expenditure
CHUNK = 50  # steps between two movements of the progress bar

NETWORK = Mlp((50, 50))
RECIPES = {
    "NLL": Setup(NETWORK, BASELINES["nll"], optax.sgd),
    "Fisher8": Setup(NETWORK, BASELINES["fisher8"], optax.sgd),
    "Fisher8 + KL radius": Setup(
        NETWORK,
        BASELINES["fisher8_radius"].override(max_kl=0.2, radius_mode="target"),
        functools.partial(optax.sgd, momentum=0.9, nesterov=True),
    ),
}


class Splits(NamedTuple):
    """Log-income and food expenditure in francs, one split per entry of the first axis."""

    train: np.ndarray
    test: np.ndarray
    center: np.ndarray
    scale: np.ndarray

    def standardized(self, part: np.ndarray) -> Datasets:
        values = ((part - self.center) / self.scale).astype(np.float32)
        return Datasets(jnp.asarray(values[..., :1]), jnp.asarray(values[..., 1]))


class Trained(NamedTuple):
    """One method: test scores (rates, splits) and the first split's fit at every rate."""

    learning_rates: list[float]
    scores: dict[str, np.ndarray]
    fits: list[Callable[[Array], Gaussian]]

    def best_and_worst(self) -> tuple[int, int]:
        """Positions of the rates with the lowest and the highest mean test NLL.

        A rate at which a split diverged counts as worse than any other, but is not drawn: the worst
        one is the worst whose first split can be drawn.
        """
        nll = np.where(np.isfinite(self.scores["nll"]), self.scores["nll"], np.inf).mean(axis=1)
        drawable = np.isfinite(self.scores["nll"][:, 0])
        return int(np.argmin(nll)), int(np.argmax(np.where(drawable, nll, -np.inf)))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=200, help="gradient steps of each training")
    parser.add_argument("--learning-rates", type=float, nargs="+", default=[0.001, 0.01, 0.1])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--picture", type=pathlib.Path, default=pathlib.Path("engel.png"), help="where to save it"
    )


def run(args: argparse.Namespace) -> int:
    splits = load_splits(args.seed)
    trained = {}
    with progress("training", len(RECIPES) * args.steps) as advance:
        for name, setup in RECIPES.items():
            # The radius sets the length of its steps itself: one rate, without effect.
            rates = [1.0] if setup.method.max_kl else args.learning_rates
            trained[name] = train_and_score(setup, splits, rates, args, advance)
    show(trained, args.steps)
    save_picture(trained, splits, args.picture)
    console.print(difference(trained))
    console.print(f"The fits of the first split with their bands: {args.picture}")
    return 0


def load_splits(seed: int) -> Splits:
    """Random splits of the data set that comes with statsmodels."""
    from statsmodels.datasets import engel

    data = engel.load_pandas().data[["income", "foodexp"]].to_numpy()
    data[:, 0] = np.log(data[:, 0])
    rows = int(TRAINING_SHARE * len(data))
    orders = [generator("engel", seed, split).permutation(len(data)) for split in range(SPLITS)]
    training = np.stack([data[order[:rows]] for order in orders])
    test = np.stack([data[order[rows:]] for order in orders])
    return Splits(training, test, training.mean(1, keepdims=True), training.std(1, keepdims=True))


def train_and_score(
    setup: Setup,
    splits: Splits,
    rates: list[float],
    args: argparse.Namespace,
    advance: Callable[[float], None],
) -> Trained:
    """Trains every split at every rate in one compiled loop."""
    datasets = splits.standardized(splits.train)
    split_of_run = np.tile(np.arange(SPLITS), len(rates))
    runs = Run(
        dataset=jnp.asarray(split_of_run),
        settings=jnp.asarray(np.repeat(rates, SPLITS), jnp.float32),
        key=jax.random.split(jax.random.key(args.seed), len(split_of_run)),
    )
    initial = [NETWORK.init(generator("engel", args.seed, "init", i), 1) for i in range(SPLITS)]
    params = stack_members([initial[split] for split in split_of_run])
    state = start(setup.task, params, None, runs, datasets)
    schedule = make_schedule(splits.train.shape[1], args)
    for first in range(0, args.steps, CHUNK):
        part, steps = schedule.chunk(first, CHUNK)
        state, metrics = train(setup.task, state, datasets, runs, part, steps)
        jax.block_until_ready(metrics)
        advance(steps)
    predict = functools.partial(predict_in_francs, setup, splits)
    scores = score_runs(predict, state.params, splits, split_of_run)
    firsts = [
        jax.tree.map(lambda leaf, i=i: leaf[i * SPLITS], state.params) for i in range(len(rates))
    ]
    shape = (len(rates), SPLITS)
    return Trained(
        rates,
        {name: np.asarray(scores[name]).reshape(shape) for name in SCORES},
        [functools.partial(fit_of_first_split, predict, run, splits) for run in firsts],
    )


def make_schedule(rows: int, args: argparse.Namespace) -> Schedule:
    """The same batches for every method; steps fall linearly to zero."""
    draws = [
        shuffled_rows(
            generator("engel", args.seed, "rows", split), rows, batch=BATCH, steps=args.steps
        )
        for split in range(SPLITS)
    ]
    order = np.stack([rows for rows, _ in draws], axis=1)
    decay = np.linspace(1, 0, args.steps, endpoint=False, dtype=np.float32)
    return Schedule(order, draws[0][1], decay)


def predict_in_francs(
    setup: Setup, splits: Splits, params: Any, split: Array, inputs: Array
) -> Gaussian:
    """Predictions of one run for standardised log-incomes."""
    dist, _ = setup.predict(params, None, inputs)
    center, scale = (jnp.asarray(x[:, 0, 1], jnp.float32) for x in (splits.center, splits.scale))
    assert isinstance(dist, Gaussian)
    return dist.unscale(center[split], scale[split])


def score_runs(
    predict: Callable[..., Gaussian], params: Any, splits: Splits, split_of_run: np.ndarray
) -> dict[str, Array]:
    """Test scores of every run."""
    inputs = splits.standardized(splits.test).inputs
    targets = jnp.asarray(splits.test[..., 1], jnp.float32)

    def of_run(params: Any, split: Array) -> dict[str, Array]:
        dist = predict(params, split, inputs[split])
        return score(dist, targets[split], jnp.ones(targets.shape[1], bool))

    return jax.jit(jax.vmap(of_run))(params, jnp.asarray(split_of_run))


def fit_of_first_split(
    predict: Callable[..., Gaussian], params: Any, splits: Splits, income: Array
) -> Gaussian:
    """Predictions for incomes in francs."""
    standard = (jnp.log(income) - splits.center[0, 0, 0]) / splits.scale[0, 0, 0]
    return predict(params, jnp.asarray(0), standard[:, None])


def show(trained: dict[str, Trained], steps: int) -> None:
    title = f"Test scores after {steps} steps, mean ± std over {SPLITS} splits"
    table = Table(title=title, box=box.SIMPLE)
    table.add_column("method")
    for name in ("rate", "RMSE", "NLL", "ECE", "diverged"):
        table.add_column(name, justify="right")
    for name, result in trained.items():
        for index, rate in enumerate(result.learning_rates):
            values = {name: scores[index] for name, scores in result.scores.items()}
            finite = (values["non_finite"] == 0) & (values["rmse"] < DIVERGED_RMSE)
            cells = [
                f"{np.mean(v[finite]):.{digits}f}±{np.std(v[finite]):.{digits}f}"
                if finite.any()
                else "-"
                for v, digits in ((values["rmse"], 1), (values["nll"], 3), (values["ece"], 3))
            ]
            shown_rate = f"{rate:g}" if len(result.learning_rates) > 1 else "none"
            table.add_row(name, shown_rate, *cells, f"{np.sum(~finite)} of {SPLITS}")
    console.print(table)
    console.print(
        "RMSE in francs, NLL in nats without ln(2 pi)/2, ECE the calibration error over ten\n"
        "bins of the predicted cdf. A split has diverged, and is left out of the means, if a\n"
        f"prediction is not finite or its RMSE exceeds {DIVERGED_RMSE:.0f} francs."
    )


def difference(trained: dict[str, Trained]) -> str:
    """What the table says, in words: the best rates beside each other, and the others."""
    lines = ["Mean test NLL at the best rate, and what the worst one drawn costs:"]
    for name, result in trained.items():
        best, worst = result.best_and_worst()
        if len(result.learning_rates) == 1:
            lines.append(f"  {name}: {_mean_nll(result, best)}, without a rate to choose")
            continue
        bad = f"{_mean_nll(result, worst)} at {result.learning_rates[worst]:g}"
        lines.append(
            f"  {name}: {_mean_nll(result, best)} at {result.learning_rates[best]:g}, {bad}"
        )
    return "\n".join(lines)


def _mean_nll(result: Trained, position: int) -> str:
    nll = result.scores["nll"][position]
    diverged = int(np.sum(~np.isfinite(nll)))
    return f"{nll.mean():.3f}" if not diverged else f"{diverged} of {nll.size} splits diverge"


def save_picture(trained: dict[str, Trained], splits: Splits, path: pathlib.Path) -> None:
    """The fits at the best rates in one row, at the worst ones below; without a rate one panel."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    from benchmarks.machinery.figures import style

    with style():
        figure = _panels(trained, splits)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
        plt.close(figure)


def _panels(trained: dict[str, Trained], splits: Splits) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        2, len(trained), figsize=(4.0 * len(trained), 6.6), sharex=True, sharey=True,
        layout="constrained",
    )  # fmt: skip
    for column, (name, result) in zip(axes.T, trained.items(), strict=True):
        best, worst = result.best_and_worst()
        for ax, position, word in zip(column, (best, worst), ("best", "worst"), strict=True):
            if len(result.learning_rates) == 1 and ax is column[1]:
                ax.set_axis_off()
                continue
            draw_fit(ax, result.fits[position], splits)
            rate = f"{word} rate, {result.learning_rates[position]:g}"
            ax.set_title(f"{name}: {'no rate' if len(result.learning_rates) == 1 else rate}")
    for ax in axes[:, 0]:
        ax.set_ylabel("food expenditure in francs")
    for ax in (*axes[1, :-1], axes[0, -1]):
        ax.set_xlabel("income in francs")
    axes[0, -1].tick_params(labelbottom=True)
    axes[1, -1].legend(*axes[0, 0].get_legend_handles_labels(), loc="center")
    return figure


def draw_fit(ax: Any, fit: Callable[[Array], Gaussian], splits: Splits) -> None:
    """Data, mean and bands of the first split; all of the bands is inside the axes."""
    from fisher8_jax.plots import plot_fit

    rows, test = (np.array(part[0]) for part in (splits.train, splits.test))
    for part in (rows, test):
        part[:, 0] = np.exp(part[:, 0])
    income = jnp.geomspace(rows[:, 0].min(), rows[:, 0].max(), 200, dtype=jnp.float32)
    plot_fit(fit(income), income, ax=ax)
    ax.plot(*rows.T, ".", color="0.35", markersize=3, label="training")
    ax.plot(*test.T, "x", color="black", markersize=4, label="test")
    ax.set(xlabel="", ylabel="")
    ax.legend().remove()  # one stands beside the panels, so no space is kept for it
    ax.autoscale(axis="y")
