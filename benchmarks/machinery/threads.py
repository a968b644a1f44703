"""One thread per process, however many processes there are, so that cells repeat to the bit.

With several threads sums are made in another order and round otherwise. Besides, threads of
OpenBLAS that wait for each other on busy cores make a small factorisation ten times as expensive.
"""

import os

# XLA sizes its thread pool by `NPROC` where it is set, else by the cores that the process may use;
# the others are those of OpenBLAS and OpenMP (SciPy, boosted trees).
_XLA = "NPROC"
_VARIABLES = (_XLA, "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


def use_one_thread() -> None:
    """For this process and those that it starts; call it before JAX and NumPy are imported."""
    os.environ.update(dict.fromkeys(_VARIABLES, "1"))


def xla_threads() -> int:
    """How many threads XLA computes with on the CPU."""
    return int(os.environ.get(_XLA) or len(os.sched_getaffinity(0)))
