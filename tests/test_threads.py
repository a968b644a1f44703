"""Two threads of one process may train at once, and batched solves equal single ones.

JAX waits for a batch of factorisations on a thread of the pool that is to compute it. Without
`one_matrix_at_a_time` each program here waits for ever on two cores.
"""

import math
import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax._internal import batching
from fisher8_jax._internal.batching import one_matrix_at_a_time
from tests.processes.launch import ROOT, TIMEOUT_SECONDS

WORKS = ["fits", "plain_fits", "cross_validation", "gradients", "families", "posteriors"]


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The works that came to an end, one after the other in one process, and what it complained."""
    # As many of XLA's threads as of ours, on every machine.
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PJRT_NPROC": "2"}
    environment.pop("JAX_NUM_CPU_DEVICES", None)
    log = tmp_path_factory.mktemp("threads")
    with open(log / "out", "w") as out, open(log / "errors", "w") as errors:
        command = [sys.executable, "-m", "tests.processes.threads", *WORKS]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=errors)
        try:
            process.wait(3 * TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return (log / "out").read_text().split(), (log / "errors").read_text()[-3000:]


@pytest.mark.parametrize("work", WORKS)
def test_two_threads_come_to_an_end(ended, work):
    done, complaints = ended
    assert work in done, complaints or f"The first that waits for ever is number {len(done) + 1}."


@one_matrix_at_a_time
def _solve(matrix, vector):
    return jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(matrix), True), vector)


def _systems(*shape, size):
    rng = np.random.default_rng(0)
    root = rng.normal(size=(*shape, size, size + 3))
    return root @ np.swapaxes(root, -1, -2), rng.normal(size=(*shape, size))


@pytest.mark.parametrize("size", [3, 40])  # in one call of LAPACK, and one after the other
def test_batches_equal_numpy(size):
    matrices, vectors = _systems(2, 3, size=size)
    expected = np.linalg.solve(matrices, vectors[..., None])[..., 0]
    solved = jax.jit(jax.vmap(jax.vmap(_solve)))(matrices, vectors)
    np.testing.assert_allclose(solved, expected, rtol=1e-9)
    shared = jax.vmap(_solve, (None, 1), 1)(matrices[0, 0], vectors[0].T)
    expected = np.linalg.solve(matrices[0, 0], vectors[0].T)
    np.testing.assert_allclose(shared, expected, rtol=1e-9)


def test_a_large_batch_on_a_cpu_is_a_loop_over_single_matrices():
    matrices, vectors = _systems(2, 3, size=40)
    compiled = jax.jit(jax.vmap(jax.vmap(_solve))).lower(matrices, vectors).as_text()
    factorised = [line for line in compiled.splitlines() if "potrf" in line and "tensor<" in line]
    assert factorised
    assert all("x40x40" not in line for line in factorised)


def test_forward_derivatives():
    matrices, vectors = _systems(4, size=40)
    _, tangent = jax.jvp(jax.vmap(_solve), (matrices, vectors), (np.zeros_like(matrices), vectors))
    np.testing.assert_allclose(tangent, jax.vmap(_solve)(matrices, vectors), rtol=1e-9)


@pytest.mark.parametrize("rows", [4, 900])  # in one call of LAPACK, and in pieces
def test_small_matrices_equal_scipy_and_their_derivatives_jax(rows):
    """900 matrices of 5 rows are 112,500 operations, two pieces."""
    matrices, _ = _systems(rows, size=5)
    right = np.random.default_rng(1).normal(size=(rows, 5, 2))

    def ours(matrices, right):
        return batching.solve_cholesky(batching.cholesky(matrices), right)

    def plain(matrices, right):
        return jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(matrices), True), right)

    np.testing.assert_allclose(
        jax.jit(ours)(matrices, right), np.linalg.solve(matrices, right), rtol=1e-9
    )
    weights = np.cos(np.arange(right.size)).reshape(right.shape)
    losses = [lambda *args, f=f: jnp.sum(f(*args) * weights) for f in (ours, plain)]
    backwards = [jax.jit(jax.grad(loss, (0, 1)))(matrices, right) for loss in losses]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-12), *backwards)
    forwards = [jax.jit(jax.jvp, static_argnums=0)(f, (matrices, right), (matrices, right))[1]
                for f in (ours, plain)]  # fmt: skip
    np.testing.assert_allclose(*forwards, rtol=1e-8, atol=1e-12)


def test_members_of_small_matrices_are_taken_in_pieces():
    """Three members of 300 matrices: no call of LAPACK sees more than 100,000 operations."""
    matrices, _ = _systems(3, 300, size=5)
    program = jax.jit(jax.vmap(batching.cholesky))
    np.testing.assert_allclose(program(matrices), np.linalg.cholesky(matrices), rtol=1e-9)
    lines = program.lower(matrices).as_text().splitlines()
    calls = [re.findall(r"tensor<([\dx]+)xf64>", line) for line in lines if "potrf" in line]
    sizes = [math.prod(map(int, shape.split("x"))) for shapes in calls for shape in shapes]
    assert sizes
    assert max(sizes) * 5 <= 100_000
