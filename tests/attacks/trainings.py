"""Attacks on `training.fit` and on the command: odd plans, data and tables."""

import contextlib
import io
import random
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fisher8_jax import Gaussian
from fisher8_jax.command import main
from fisher8_jax.training import Data, Plan, fit
from tests.attacks import BAD, returned_or_refused
from tests.attacks.estimators import fit_small

ROWS = 40
X = np.linspace(-1, 1, ROWS, dtype=np.float32)
Y = np.sin(3 * X)
START = {"slope": np.float32(0.1), "log_variance": np.float32(0)}
WRONG: dict[str, list[Any]] = {
    "steps": [0, -1, 2.5, "x", None, 10**30, np.nan],
    "batch_size": [0, -1, 2.5, "x", None, 10**30],
    "validation_fraction": [1, -0.1, np.nan, "x", None, 1j],
    "num_validations": [0, -1, 2.5, "x", None, 10**30],
    "patience": [0, -1, np.nan, "x", 1j],
    "average": [0, -1, np.nan, "x", 1j],
    "runs": [0, -1, 2.5, "x", 3, 10**30],
    "data": [
        None, X, (X,), (X, Y[:3]), (X[:0], Y[:0]), (X, Y, Y, Y, Y), "x",
        (X, np.array(["a"] * ROWS)), (X, 1j * Y), Data(X, Y, where=np.zeros(ROWS, bool)),
        Data(X, Y, weights=-np.ones(ROWS)), Data(X, Y, where=np.ones(3, bool)), (X, Y[:, None]),
    ],
    "params": [None, {}, {"slope": "x", "log_variance": 0.0}, 3],
    "network": [None, 3, lambda params, x: x],
    "method": [3, "adam", Gaussian],
    "seed": [-1, "x", 2.5, None],
    "unknown": [1],
}  # fmt: skip
VALID: dict[str, list[Any]] = {
    "steps": [1, 7, 30],
    "batch_size": [1, 8, 64],
    "validation_fraction": [0, 0.1, 0.9],
    "num_validations": [1, 3, 50],
    "patience": [None, 0.1, 3],
    "average": [None, 1, 100],
    "data": [(X, Y), Data(X, Y, where=X < 0.5), Data(X, Y, weights=X + 2), (X, 1e6 * Y)],
}
PLAN = ("steps", "batch_size", "validation_fraction", "num_validations", "patience", "average")


def network(params: Any, x: jax.Array) -> Gaussian:
    """A line through 0."""
    return Gaussian(params["slope"] * x, jnp.broadcast_to(params["log_variance"], x.shape))


def attack_trainings(folder: Path, rounds: int, seed: int = 0) -> Counter:
    """Three quarters have a wrong option; the others end finite, and twice with the same bits."""
    rng, found = random.Random(seed), Counter[str]()
    for _ in range(rounds):
        options = {name: rng.choice(values) for name, values in VALID.items()}
        if rng.random() < 0.75:
            name = rng.choice(list(WRONG))
            value = rng.choice(WRONG[name])
            outcome = returned_or_refused(lambda o=options | {name: value}: _call(o))
            if outcome != "refused":
                outcome = f"{BAD}{name}={str(value)[:20]}: {outcome}"
        else:
            outcome = _try_valid(options)
        found[outcome] += 1
    return found


def _call(options: dict[str, Any]) -> Any:
    options = dict(options)
    plan = Plan(**{name: options.pop(name) for name in PLAN})
    arguments = [options.pop(n, d) for n, d in (("network", network), ("params", START))]
    return fit(*arguments, options.pop("data"), plan, show_progress=False, **options)


def _try_valid(options: dict[str, Any]) -> str:
    try:
        first, second = (jax.tree.leaves(_call(options).params) for _ in range(2))
    except Exception as error:
        return f"{BAD}{type(error).__name__}"
    same = all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    finite = all(np.isfinite(leaf).all() for leaf in first)
    return "trained, twice the same bits" if same and finite else f"{BAD}silently wrong"


PIECES = [
    "a,b", "b,a", "a", "a,b,c", "a,a", "a;b", "", ",", "0.1,0.2", "1,nan", "1,", ",1", "x,1",
    "1,2,3",
    '"a,b"', '"', "1e999,1", "\x00,1", "ä,1", "1;2", "1.5,-2.5", "3,4", " 1 , 2 ", "true,1", "#,1",
    "2024-01-01,1", "1_000,2", "0x10,1", "--,1", "NA,1", "inf,1", "-0,0",
]  # fmt: skip


def attack_command(folder: Path, rounds: int, seed: int = 0) -> Counter:
    """`predict` of odd tables: finite numbers for every row, or a sentence and no file."""
    model, rng, found = folder / "model.f8", random.Random(seed), Counter[str]()
    fit_named().save(model)
    for _ in range(rounds):
        head = rng.choice(["a,b", "a,b", "a,b", "b,a", rng.choice(PIECES)])
        few = [*PIECES, *["3,4", "1.5,-2.5"] * len(PIECES)]
        lines = [head, *(rng.choice(few) for _ in range(rng.randint(0, 4)))]
        text = rng.choice(["\n", "\n", "\r\n"]).join(lines) + rng.choice(["", "\n", "\n\n"])
        content = text.encode(rng.choice(["utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1"]))
        found[_try_command(folder, model, content)] += 1
    return found


def fit_named() -> Any:
    """A model of two named columns."""
    import pandas as pd

    small = fit_small()
    rows = np.linspace(-1, 1, 40).reshape(20, 2)
    return small.fit(pd.DataFrame(rows, columns=["a", "b"]), rows[:, 0] + np.sin(9 * rows[:, 1]))


def _try_command(folder: Path, model: Path, content: bytes) -> str:
    import pandas as pd

    table, output = folder / "in.csv", folder / "out.csv"
    table.write_bytes(content)
    output.unlink(missing_ok=True)
    words = ["predict", str(table), "--model", str(model), "--output", str(output)]
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            code = main(words)
    except SystemExit as end:
        code = end.code
    except Exception as error:
        return f"{BAD}{type(error).__name__} {content!r}"
    if code:
        has_said = len(said.getvalue()) > 10 and not output.exists()
        return "refused" if has_said else f"{BAD}said nothing"
    found = pd.read_csv(output)
    columns = [name for name in found if name in ("mean", "std")]
    is_right = len(columns) == 2 and np.isfinite(found[columns].to_numpy(float)).all()
    return "predicted" if is_right and len(found) else f"{BAD}silently wrong {content!r}"
