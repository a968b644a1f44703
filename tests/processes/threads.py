"""Works in two threads at once: `python -m tests.processes.threads NAMES`, with two XLA threads.

It prints the name of each work that has come to an end.
"""

import sys
import threading
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from fisher8_jax import Gaussian, fisher8_nll
from fisher8_jax.curvature import network_gradient
from fisher8_jax.families import Family, LowRankGaussian, MultivariateGaussian
from fisher8_jax.posterior import batch_evidence, fit_posterior, leave_one_out


def _table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 3))
    return x, x[:, 0] + rng.normal(size=500)


def fits() -> None:
    """Two estimators are fitted and predict side by side; both equal one fitted alone."""
    from fisher8_jax.estimator import Fisher8Regressor

    x, y = _table()
    found: list[float] = []

    def fit() -> None:
        model = Fisher8Regressor(random_state=0, max_steps=60, show_progress=False).fit(x, y)
        found.append(float(model.score(x, y)))

    fit()
    _in_threads(fit)
    assert len(set(found)) == 1, found


def plain_fits() -> None:
    """`training.fit` of five runs with the whole network's gradient, as one alone."""
    from fisher8_jax.training import Method, NetworkNaturalGradient, Plan, fit

    def network(params: dict[str, jax.Array], x: jax.Array) -> Gaussian:
        return Gaussian(*jnp.moveaxis(jnp.tanh(x @ params["in"]) @ params["out"], -1, 0))

    rng = np.random.default_rng(0)
    x, y = (column.astype(np.float32) for column in _table())
    shapes = {"in": (5, 3, 16), "out": (5, 16, 2)}
    first = {k: 0.3 * rng.normal(size=s).astype(np.float32) for k, s in shapes.items()}
    found: list[float] = []

    def work() -> None:
        fitted = fit(
            network, first, (x, y), Plan(steps=200, batch_size=96), runs=5,
            method=Method(NetworkNaturalGradient()), show_progress=False,
        )  # fmt: skip
        found.append(float(fitted.validation_nll.sum()))

    work()
    _in_threads(work)
    assert len(set(found)) == 1, found


def cross_validation() -> None:
    """scikit-learn's threads, by joblib."""
    import joblib
    from sklearn.model_selection import cross_val_score

    from fisher8_jax.estimator import Fisher8Regressor

    model = Fisher8Regressor(random_state=0, max_steps=60, show_progress=False)
    with joblib.parallel_backend("threading", n_jobs=2):
        scores = cross_val_score(model, *_table(), cv=4)
    assert np.all(np.isfinite(scores)), scores


def gradients() -> None:
    """Two trainings of five members, in threads of one's own."""
    train = _make_training()
    train()
    _in_threads(train)


def _make_training() -> Callable[[], None]:
    def predict_one(params: dict[str, jax.Array], x: jax.Array) -> Gaussian:
        return Gaussian(*(jnp.tanh(x @ params["in"]) @ params["out"]))

    @jax.vmap
    def update(params: dict[str, jax.Array]) -> dict[str, jax.Array]:
        step = network_gradient(predict_one, params, x, y)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, step.gradient)

    @jax.jit
    def train(params: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return jax.lax.fori_loop(0, 300, lambda _, now: update(now), params)

    rng = np.random.default_rng(0)
    x, y = (jnp.asarray(column[:96], jnp.float32) for column in _table())
    shapes = {"in": (3, 16), "out": (16, 2)}
    first = {k: jnp.asarray(rng.normal(size=(5, *s)), jnp.float32) for k, s in shapes.items()}
    return lambda: jax.block_until_ready(train(first))


def families() -> None:
    """Gradients of the families whose elements are matrices, on as many rows as a table has."""
    rng = np.random.default_rng(0)
    rows, dim = 6000, 8

    def draw(*shape: int) -> jax.Array:
        return jnp.asarray(0.1 * rng.normal(size=(rows, *shape)), jnp.float32)

    targets = draw(dim)
    dists = (
        MultivariateGaussian(draw(dim), draw(dim), draw(dim * (dim - 1) // 2)),
        LowRankGaussian(draw(dim), draw(dim, 1), draw(dim)),
    )

    @jax.jit
    def train(dist: Family) -> Family:
        def step(_: int, dist: Family) -> Family:
            natural = jax.grad(lambda d: fisher8_nll(d, targets).sum())(dist)
            plain = jax.grad(lambda d: d.nll(targets).sum())(dist)
            return jax.tree.map(lambda x, a, b: x - 1e-3 * a - 1e-5 * b, dist, natural, plain)

        return jax.lax.fori_loop(0, 15, step, dist)

    def work() -> None:
        for dist in dists:
            found = jax.block_until_ready(train(dist))
            assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(found))

    work()
    _in_threads(work)


def posteriors() -> None:
    """Leave-one-out predictions of many rows, and the evidence of five members at once."""
    x, y = (jnp.asarray(column, jnp.float32) for column in _table())
    rng = np.random.default_rng(0)
    params = {"in": rng.normal(size=(3, 4)), "out": 0.1 * rng.normal(size=(4, 16))}
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), params)
    targets = jnp.broadcast_to(y[:, None], (len(y), 8))

    def predict_one(params: dict[str, jax.Array], x: jax.Array) -> Gaussian:
        return Gaussian(*jnp.split(jnp.tanh(x @ params["in"]) @ params["out"], 2))

    @jax.jit
    @jax.vmap
    def evidence(factor: jax.Array) -> jax.Array:
        moved = jax.tree.map(lambda leaf: factor * leaf, params)
        return batch_evidence(predict_one, moved, x[:8], targets[:8], jnp.zeros(2)).gradient

    def work() -> None:
        posterior = fit_posterior(predict_one, params, x, targets, tune=False)
        for _ in range(4):
            found = leave_one_out(posterior)
        assert bool(np.isfinite(found.nll).all())
        for _ in range(50):
            gradient = evidence(jnp.linspace(0.9, 1.1, 5))
        assert bool(jnp.isfinite(gradient).all())

    work()
    _in_threads(work)


def _in_threads(work: Callable[[], None]) -> None:
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


if __name__ == "__main__":
    chosen = (fits, plain_fits, cross_validation, gradients, families, posteriors)
    works = {f.__name__: f for f in chosen}
    for name in sys.argv[1:]:
        works[name]()
        print(name, flush=True)
