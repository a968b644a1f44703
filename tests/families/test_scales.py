"""Every answer of every family in float32, against references over wide ranges of the parameters.

The tables of `reference/` hold what is right for exactly the float32 numbers in them. One compiled
program per family answers all questions, mapped over the rows.
"""

import functools
import json
import pathlib

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax import families as f8
from fisher8_jax._internal.numerics import materialize
from tests.families.conformance import QUICK

TABLES = sorted(pathlib.Path(__file__).parent.glob("reference/*.json"))
NAMES = [path.stem for path in TABLES]
COUNTS = ("Poisson", "ZeroInflatedPoisson", "NegativeBinomial", "Bernoulli", "Categorical")
DEGREES = (4.0, 1e9)
EPS = float(np.finfo(np.float32).eps)

pytestmark = pytest.mark.parametrize("name", NAMES)


def table_of(name: str) -> dict[str, np.ndarray]:
    path = next(path for path in TABLES if path.stem == name)
    table = {key: np.array(column, float) for key, column in json.loads(path.read_text()).items()}
    if name == "StudentT":  # every number of degrees of freedom is a program of its own
        kept = np.isin(table["parameter_2"], DEGREES)
        table = {key: column[kept] for key, column in table.items()}
    return table


def make(name: str, columns: list) -> f8.Family:
    if name == "StudentT":  # its third column is the static number of degrees of freedom
        return f8.StudentT(*columns[:2], df=float(columns[2][0]))
    return getattr(f8, name)(*columns)


def values(dist, targets, direction, other):
    """One row: everything that is asked of it."""
    cdf = dist.cdf(targets)
    close = jax.tree.map(jnp.add, dist, direction)
    return {
        "nll": dist.nll(targets),
        "cdf": cdf,
        "round_trip": dist.quantile(cdf),
        "crps": dist.crps(targets),
        "scores": [materialize(score) for score in dist.natural_score(targets).values()],
        "kl": dist.kl(close),
        "kl_other": dist.kl(other),
        "kl_self": dist.kl(dist),
        "quadratic": dist.fisher_norm_sq(direction),
    }


def answers(dist, targets, direction, other):
    """The values of one row, and derivatives in parameters and target."""

    def slopes(function):
        gradient = jax.grad(lambda d, y: jnp.sum(function(d, y)), argnums=(0, 1))
        return jax.tree.leaves(gradient(dist, targets))

    slopes_of_both = slopes(lambda d, y: d.nll(y)) + slopes(lambda d, y: d.cdf(y))
    return values(dist, targets, direction, other) | {"gradients": slopes_of_both}


_compiled = jax.jit(jax.vmap(answers), compiler_options=QUICK)


def columns_of(table, prefix: str) -> list[np.ndarray]:
    return [np.float32(table[key]) for key in table if key.startswith(prefix)]


@functools.cache
def report(name: str):
    """The table and the float32 answers to it."""
    table = table_of(name)
    columns, targets = columns_of(table, "parameter"), np.float32(table["targets"])
    others = columns_of(table, "other") or columns
    rows = [np.arange(len(targets))]
    if name == "StudentT":
        rows = [np.flatnonzero(columns[2] == df) for df in np.unique(columns[2])]
    parts = []
    for index in rows:
        dist, other = (
            make(name, [jnp.asarray(x[index]) for x in group]) for group in (columns, others)
        )
        parts.append(_compiled(dist, jnp.asarray(targets[index]), small_steps(dist), other))
    got = jax.tree.map(lambda *x: np.concatenate(x).astype(np.float64), *parts)
    order = np.argsort(np.concatenate(rows))
    return table, jax.tree.map(lambda x: x[order], got), targets.astype(np.float64)


def small_steps(dist):
    """A step of about a hundredth in every parameter, less what rounding takes of it."""

    def step(x):
        wanted = np.float32(1e-2 * np.cos(np.arange(x.size))).reshape(x.shape)
        return jnp.asarray((np.asarray(x) + wanted) - np.asarray(x))

    return jax.tree.map(step, dist)


def assert_rows(holds, name, table, **columns):
    """Names the first rows that fail, with their parameters."""
    holds = holds.reshape(len(holds), -1).all(axis=1)  # a vector's entries together
    bad = np.flatnonzero(~holds)[:3]
    shown = {key: table[key] for key in table if key.startswith(("parameter", "targets"))}
    lines = [{k: np.asarray(v)[i].tolist() for k, v in (shown | columns).items()} for i in bad]
    assert holds.all(), f"{name}: {(~holds).sum()} of {holds.size} rows, such as {lines}"


def test_likelihood(name):
    table, got, _ = report(name)
    error = np.abs(got["nll"] - table["nll"])
    holds = (error <= 1e-5 * np.abs(table["nll"])) | (error <= 1e-4)
    assert_rows(holds, name, table, got=got["nll"], right=table["nll"])


def test_cdf_in_the_middle_and_in_the_tails(name):
    table, got, _ = report(name)
    error = np.abs(got["cdf"] - table["cdf"])
    holds = (error <= 1e-5) & ((error <= 1e-3 * table["cdf"]) | (table["cdf"] < 1e-8))
    assert_rows(holds, name, table, got=got["cdf"], right=table["cdf"])


def test_quantile_of_the_cdf_is_the_target(name):
    """Within what the rounding of a target and of a probability allow."""
    table, got, targets = report(name)
    p, back = got["cdf"], got["round_trip"]
    mass = np.exp(-table["nll"])
    if name in COUNTS:
        # Counts whose mass is lost in the roundings of a cdf in the tail go to a neighbour.
        is_seen = (mass > 200 * EPS * p) & (p < 1)
        holds = (back == targets) | ~is_seen
    else:
        allowed = 16 * EPS * np.abs(targets) + 64 * EPS * p / mass
        holds = (np.abs(back - targets) <= allowed) | (p == 1) | (p < 1e-30)
    assert_rows(holds, name, table, got=back, p=p)


def test_crps(name):
    """Within 1e-3 of itself, or 1e-5 of what a right prediction expects; nan where infinite."""
    table, got, _ = report(name)
    right, crps = table["crps"], got["crps"]
    holds = np.abs(crps - right) <= np.maximum(1e-3 * np.abs(right), 1e-5 * table["spread_crps"])
    assert_rows(holds | (np.isnan(right) & np.isnan(crps)), name, table, got=crps, right=right)


def test_natural_score(name):
    """Within 1e-3 of itself, or where it crosses 0 within 1e-5 of its own standard deviation."""
    table, got, _ = report(name)
    for i, score in enumerate(got["scores"]):
        right, spread = table[f"score_{i}"], table[f"spread_{i}"]
        holds = np.abs(score - right) <= np.maximum(1e-3 * np.abs(right), 1e-5 * spread)
        holds &= (np.sign(score) == np.sign(right)) | (np.abs(right) < 1e-5 * spread)
        assert_rows(holds, f"{name} {i}", table, got=score, right=right, spread=spread)


def test_divergence(name):
    """Never negative, 0 of itself, and half the quadratic form of a small step."""
    table, got, _ = report(name)
    kl, half = got["kl"], 0.5 * got["quadratic"]
    assert_rows(kl >= -1e-6, name, table, kl=kl)
    assert_rows(np.abs(got["kl_self"]) <= 1e-6, name, table, kl=got["kl_self"])
    is_small = (half < 2e-3) & (half > 1e-12)
    if name == "StudentTLearnedDf":  # a step is small beside the square root of the degrees, too
        is_small &= table["parameter_2"] > -2.5
    # The quadratic form of a mixture is that of the complete data, an upper bound.
    least = np.where(name == "GaussianMixture", 0, 0.95 * half - 1e-7)
    holds = ~is_small | ((kl >= least) & (kl <= 1.05 * half + 1e-7))
    assert_rows(holds, name, table, kl=kl, half=half)


def test_divergence_from_another_member(name):
    """Within 1e-3 of itself, or 1e-8; infinite where it leaves float32."""
    table, got, _ = report(name)
    if "kl" not in table:
        return
    with np.errstate(over="ignore"):
        right, kl = table["kl"].astype(np.float32).astype(float), got["kl_other"]
    with np.errstate(invalid="ignore"):
        error = np.abs(kl - right)
    holds = (error <= 1e-3 * right) | (error <= 1e-8) | (kl == right) | np.isnan(right)
    assert_rows(holds, name, table, got=kl, right=right)


def test_gradients_are_finite(name):
    table, got, _ = report(name)
    for slope in got["gradients"]:
        assert_rows(np.isfinite(slope), name, table, slope=slope)


def test_half_precision_is_answered_in_float32(name):
    """Every method widens first, so equal parameters give equal answers."""
    table = table_of(name)
    columns = [column[:1] for column in columns_of(table, "parameter")]
    dist = make(name, [jnp.asarray(column) for column in columns])
    narrow = jax.tree.map(lambda x: x.astype(jnp.bfloat16), dist)
    targets = jnp.ones(1, jnp.float32)
    shapes = jax.eval_shape(jax.vmap(values), narrow, targets, narrow, narrow)
    for key in ("nll", "cdf", "round_trip", "crps", "scores", "kl", "quadratic"):
        assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(shapes[key])), key


def drawn(name: str, seed: int, width: float):
    """As many rows as the table has, so that the compiled program serves again."""
    rng = np.random.default_rng(seed)
    rows = len(table_of(name)["targets"])
    if name == "StudentT":
        rows //= len(DEGREES)
    shapes = [x.shape[1:] for x in columns_of(table_of(name), "parameter")]
    shapes = shapes[:2] if name == "StudentT" else shapes
    columns = [np.float32(rng.uniform(-width, width, (rows, *shape))) for shape in shapes]
    raw = rng.uniform(-width, width, rows)
    targets = {
        **dict.fromkeys(COUNTS, np.floor(np.exp(np.minimum(raw, 16)))),
        **dict.fromkeys(("Bernoulli", "Categorical"), np.float32(raw > 0)),
        **dict.fromkeys(("Gamma", "LogNormal", "Weibull"), np.exp(raw)),
        "Beta": np.clip(1 / (1 + np.exp(-raw)), 1e-30, 1 - 1e-6),
    }.get(name, raw)
    return columns, np.float32(targets)


def check_drawn(name: str, seed: int, width: float) -> None:
    columns, targets = drawn(name, seed, width)
    arrays = [jnp.asarray(x) for x in columns]
    # One of the numbers of degrees of freedom that the table has compiled.
    dist = make(name, [*arrays, DEGREES] if name == "StudentT" else arrays)
    got = _compiled(dist, jnp.asarray(targets), small_steps(dist), dist)
    table = {f"parameter_{i}": x for i, x in enumerate(columns)} | {"targets": targets}
    nll, cdf, kl = (np.asarray(got[key], np.float64) for key in ("nll", "cdf", "kl"))
    assert_rows(~np.isnan(nll), name, table, nll=nll)
    assert_rows((cdf >= 0) & (cdf <= 1), name, table, cdf=cdf)
    assert_rows((kl >= -1e-6) | np.isinf(kl), name, table, kl=kl)
    assert_rows(~np.isnan(np.asarray(got["round_trip"])), name, table, cdf=cdf)
    for score in got["scores"]:
        assert_rows(~np.isnan(np.asarray(score)), name, table, score=np.asarray(score))


SEEDS = st.integers(0, 2**32 - 1)
WIDTHS = st.sampled_from([1.0, 4.0, 12.0, 20.0])


@hypothesis.settings(max_examples=10)
@hypothesis.given(seed=SEEDS, width=WIDTHS)
def test_random_parameters(name, seed, width):
    check_drawn(name, seed, width)


@pytest.mark.slow
@hypothesis.settings(max_examples=500)
@hypothesis.given(seed=SEEDS, width=st.floats(0.01, 40.0))
def test_many_random_parameters(name, seed, width):
    check_drawn(name, seed, width)
