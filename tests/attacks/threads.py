"""Attacks by threads: fits and predictions side by side end, with the result of one alone.

`python -m tests.attacks.threads rounds seed` is run as a process of its own, so that one that hangs
is ended and counted.
"""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from tests.attacks import BAD

ROOT = Path(__file__).parents[2]
SECONDS_A_ROUND = 60
X = np.random.default_rng(0).normal(size=(120, 3))
Y = X[:, 0] + 0.1 * np.random.default_rng(1).normal(size=120)


def attack_threads(folder: Path, rounds: int, seed: int = 0) -> Counter:
    """Starts the process and waits for it, but not for ever."""
    command = [sys.executable, "-m", "tests.attacks.threads", str(rounds), str(seed)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    limit = 120 + SECONDS_A_ROUND * rounds
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return Counter({f"{BAD}hangs": rounds})
    if done.returncode:
        return Counter({f"{BAD}{done.stderr[-200:]}": rounds})
    return Counter(json.loads(done.stdout.splitlines()[-1]))


def _jobs() -> dict[str, Callable[[int], Any]]:
    from fisher8_jax.estimator import Fisher8Regressor

    def fit(seed: int) -> Any:
        model = Fisher8Regressor(max_steps=20, random_state=seed, show_progress=False)
        return model.fit(X, Y).predict(X[:9], return_std=True)

    fitted = Fisher8Regressor(max_steps=20, random_state=0, show_progress=False).fit(X, Y)

    def predict(seed: int) -> Any:
        rows = np.random.default_rng(seed).normal(size=(1 + seed % 50, 3))
        return (*fitted.predict(rows, return_std=True), *fitted.predict_interval(rows))

    return {"fit": fit, "predict": predict}


def run(rounds: int, seed: int) -> Counter:
    """Two to four jobs at once, compared with the same ones in turn."""
    jobs, rng, found = _jobs(), random.Random(seed), Counter[str]()
    alone: dict[tuple[str, int], Any] = {}
    for _ in range(rounds):
        chosen = [(rng.choice(list(jobs)), rng.randrange(3)) for _ in range(rng.randint(2, 4))]
        chosen[0] = ("fit", rng.randrange(3))
        with ThreadPoolExecutor(len(chosen)) as pool:
            futures = [pool.submit(jobs[name], number) for name, number in chosen]
            results = [future.result() for future in futures]
        for key in chosen:
            if key not in alone:
                alone[key] = jobs[key[0]](key[1])
        pairs = zip(chosen, results, strict=True)
        is_same = all(
            np.array_equal(a, b) for k, r in pairs for a, b in zip(alone[k], r, strict=True)
        )
        found["the same bits as alone" if is_same else f"{BAD}other numbers"] += 1
    return found


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]))))
