"""Works in two threads at once: `python -m tests.processes.threads NAMES`, with two XLA threads.

It prints the name of each work that has come to an end.
"""

import sys
import threading
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from fisher8_jax import Gaussian
from fisher8_jax.curvature import network_gradient


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
    works = {f.__name__: f for f in (fits, cross_validation, gradients)}
    for name in sys.argv[1:]:
        works[name]()
        print(name, flush=True)
