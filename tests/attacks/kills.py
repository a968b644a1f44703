"""`kill -9` at random moments: the same final bits, and nothing left behind."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
TIMEOUT = 300  # seconds; a hanging process must not hang the tests


class Victim(NamedTuple):
    """A program that goes on where it was killed.

    Attributes:
        module: run as `python -m module *arguments(folder)`; its first line means it is at work.
        arguments: what follows, for a folder of its own.
        span: kills come within this many seconds after the first line.
    """

    module: str
    arguments: Callable[[Path], list[str]]
    span: float


def _sinusoid(folder: Path) -> list[str]:
    size = "--steps 40 --chunk 2 --seeds 2 --workers 1 --methods fisher8_radius --noises constant"
    return ["sinusoid", *size.split(), "--results", f"{folder}/results", "--runs", f"{folder}/runs"]


VICTIMS = {
    "saving artifacts": Victim("tests.attacks.save_often", lambda f: [f"{f}/model"], 0.3),
    "training with checkpoints": Victim(
        "tests.artifacts.train_and_die",
        lambda f: [f"{f}/states", f"{f}/result", "300", "10"],
        0.5,
    ),
    "`training.fit` with checkpoints": Victim(
        "tests.attacks.fit_network", lambda f: [f"{f}/states", f"{f}/result"], 1.0
    ),
    "the estimator's fit with checkpoints": Victim(
        "tests.attacks.fit_estimator", lambda f: [f"{f}/states", f"{f}/result"], 0.8
    ),
    "a benchmark": Victim("tests.attacks.run_benchmark", _sinusoid, 1.0),
}


def attack(name: str, folder: Path, kills: int, seed: int = 0) -> dict[str, int]:
    """Runs a victim to its end once, and once with kills; compares what they leave.

    Returns:
        How many kills hit the program before its end, files that differ, files left behind.
    """
    victim = VICTIMS[name]
    _finish(victim, folder / "whole")
    hit = sum(_kill(victim, folder / "killed", moment) for moment in _moments(victim, kills, seed))
    _finish(victim, folder / "killed")
    whole, killed = _contents(folder / "whole"), _contents(folder / "killed")
    return {
        "kills": hit,
        "files that differ": sum(killed.get(name) != whole[name] for name in whole),
        "files left behind": len(set(killed) - set(whole)),
    }


def _moments(victim: Victim, kills: int, seed: int) -> list[float]:
    rng = random.Random(seed)
    return [rng.uniform(0, victim.span) for _ in range(kills)]


def _start(victim: Victim, folder: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", victim.module, *victim.arguments(folder)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


def _kill(victim: Victim, folder: Path, moment: float) -> bool:
    """True if the program was still running."""
    process = _start(victim, folder)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(moment)
        return process.poll() is None
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT)


def _finish(victim: Victim, folder: Path) -> None:
    process = _start(victim, folder)
    try:
        process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
    if process.returncode:
        raise RuntimeError(f"{victim.module} ended with {process.returncode}.")


def _contents(folder: Path) -> dict[str, bytes]:
    """All files by name; of a state, whose files hold times and random names, the folder alone."""
    found = {}
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        state = next((index for index, part in enumerate(parts) if part.isdigit()), None)
        content = path.read_bytes() if state is None and path.is_file() else b""
        found["/".join(parts if state is None else parts[: state + 1])] = content
    return found
