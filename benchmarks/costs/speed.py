"""The SGD sweep of the UCI tables (4,800 trainings) against PyTorch and against the hardware.

In every round the whole sweep runs here in fresh processes, with imports, loading and compilation,
and then the PyTorch script trains a sample of the same job; its time is extrapolated to the whole.
Beside the end-to-end time the loop alone is timed, per training step. The ratios are those of the
best round of each side. They mean something on a machine that does nothing else. PyTorch lives in
an environment of its own:

    python -m venv torch-env && torch-env/bin/pip install torch numpy
    python -m benchmarks speed --torch-python torch-env/bin/python
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.machinery.console import console
from benchmarks.machinery.data import VARIABLE, add_data_argument, data_dir
from benchmarks.machinery.document import Paragraph, Section
from benchmarks.machinery.provenance import machine, provenance
from benchmarks.machinery.store import DEFAULT_RESULTS, Store
from benchmarks.machinery.workers import default_workers

TRAININGS = 8 * 20 * 5 * 6
LOADS = 8 * 20
STEPS = 100
# Multiplications and additions of one step on a batch of 32: a forward and two backward products
# per layer, with the 16 padded features that are really computed.
FLOP_PER_STEP = 3 * 2 * 32 * (16 * 50 + 50 * 50 + 50 * 2)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where PyTorch and the data are, and how often to measure."""
    add_data_argument(parser)
    parser.add_argument("--torch-python", type=Path, required=True, help="its interpreter")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--splits", type=int, default=2, help="of the sample PyTorch trains")
    parser.add_argument(
        "--torch-threads", nargs="+", type=int, default=[1, 2], help="tried; the quickest counts"
    )
    parser.add_argument("--results", type=Path, default=DEFAULT_RESULTS)


def run(args: argparse.Namespace) -> int:
    """Measures, prints the ratios and keeps all figures."""
    folder = data_dir(args.data_dir)
    if folder is None:
        console.print(f"[red]`--data-dir` or {VARIABLE} must name the data for both sides.[/red]")
        return 1
    rounds = []
    for index in range(args.rounds):
        ours = {"sweep_seconds": sweep_seconds(folder), **loop_seconds(folder)}
        sample = (args.torch_python, folder, args.splits, index * args.splits)
        records = [torch_sample(*sample, threads) for threads in args.torch_threads]
        theirs = min(records, key=lambda record: record["seconds"]["train"])
        rounds.append({"ours": ours, "torch": theirs})
        console.print(f"round {index + 1}: {words(summarize(rounds[-1:]))}")
    summary = summarize(rounds)
    console.print(f"best of each side: {words(summary)}")
    Store(args.results).write(
        "speed/uci-sgd",
        spec={"trainings": TRAININGS, "steps": STEPS, "rounds": args.rounds},
        result={"summary": summary, "rounds": rounds, "machine": machine()},
        provenance=provenance(f"python -m benchmarks speed --rounds {args.rounds}"),
    )
    return 0


def section(store: Store) -> Section | None:
    """The measured ratios, or None without results."""
    result = store.read("speed/uci-sgd")
    if result is None:
        return None
    machine, summary = result["machine"], result["summary"]
    torch = result["rounds"][0]["torch"]
    versions = f"PyTorch {torch['torch']} with {torch['threads']} threads"
    where = (
        f"{machine['cores']} cores of {machine['processor']} (load average {machine['load']} at "
        f"the end), {versions}, best of {len(result['rounds'])} rounds"
    )
    return Section("Speed", [Paragraph(f"On {where}: {words(summary)}")])


def sweep_seconds(folder: Path) -> float:
    """The whole SGD sweep from the text files to the result files, in fresh processes."""
    with tempfile.TemporaryDirectory() as scratch:
        where = ["--results", f"{scratch}/results", "--cache-dir", f"{scratch}/fast"]
        command = [sys.executable, "-m", "benchmarks", "uci", "--optimizers", "sgd", *where]
        began = time.perf_counter()
        _call([*command, "--data-dir", str(folder)])
        return time.perf_counter() - began


def loop_seconds(folder: Path) -> dict[str, Any]:
    """Seconds per training step of the compiled loops, and the matmul rate, on one core."""
    command = [sys.executable, "-m", "benchmarks.costs.speed_loop", str(folder)]
    return json.loads(_call(command))


def torch_sample(
    python: Path, folder: Path, splits: int, first: int, threads: int
) -> dict[str, Any]:
    """The record of `torch_reference.py`."""
    script = Path(__file__).with_name("torch_reference.py")
    sample = ["--splits", str(splits), "--first-split", str(first % (21 - splits))]
    sample += ["--threads", str(threads)]
    record = json.loads(_call([str(python), str(script), "--data-dir", str(folder), *sample]))
    del record["results"]
    return record


def summarize(rounds: list[dict[str, Any]]) -> dict[str, float]:
    """Figures and ratios from the best round of each side: what else runs can only add time."""
    ours = {
        "sweep_seconds": min(r["ours"]["sweep_seconds"] for r in rounds),
        "uci_step_seconds": min(r["ours"]["uci_step_seconds"] for r in rounds),
        "sinusoid_step_seconds": min(r["ours"]["sinusoid_step_seconds"] for r in rounds),
        "matmul_flop_per_second": max(r["ours"]["matmul_flop_per_second"] for r in rounds),
    }
    quickest = min((r["torch"] for r in rounds), key=lambda torch: torch["seconds"]["train"])
    sinusoid = min(r["torch"]["sinusoid_step_seconds"] for r in rounds)
    return _figures(ours, {**quickest, "sinusoid_step_seconds": sinusoid})


def _figures(ours: dict[str, Any], torch: dict[str, Any]) -> dict[str, float]:
    seconds = torch["seconds"]
    per_training = (seconds["train"] + seconds["score"]) / torch["trainings"]
    torch_sweep = LOADS * seconds["load"] / torch["loads"] + TRAININGS * per_training
    torch_step = seconds["train"] / torch["trainings"] / torch["steps_per_training"]
    flop = FLOP_PER_STEP * TRAININGS * STEPS
    least = flop / (ours["matmul_flop_per_second"] * default_workers())
    return {
        "sweep_seconds": ours["sweep_seconds"],
        "torch_sweep_seconds_extrapolated": torch_sweep,
        "sweep_ratio": torch_sweep / ours["sweep_seconds"],
        "step_us": 1e6 * ours["uci_step_seconds"],
        "torch_step_us": 1e6 * torch_step,
        "step_ratio": torch_step / ours["uci_step_seconds"],
        "sinusoid_step_us": 1e6 * ours["sinusoid_step_seconds"],
        "torch_sinusoid_step_us": 1e6 * torch["sinusoid_step_seconds"],
        "sinusoid_ratio": torch["sinusoid_step_seconds"] / ours["sinusoid_step_seconds"],
        "gigaflop": flop / 1e9,
        "matmul_gigaflop_per_second_and_core": ours["matmul_flop_per_second"] / 1e9,
        "least_seconds": least,
        "sweep_over_least": ours["sweep_seconds"] / least,
        "loop_over_least": ours["uci_step_seconds"]
        * ours["matmul_flop_per_second"]
        / FLOP_PER_STEP,
    }


def words(figures: dict[str, float]) -> str:
    """The figures as a sentence or two."""
    return (
        "sweep {sweep_seconds:.1f} s, PyTorch {torch_sweep_seconds_extrapolated:.0f} s "
        "(extrapolated): {sweep_ratio:.1f} times; a training step on one core {step_us:.1f} us "
        "against {torch_step_us:.0f} us: {step_ratio:.1f} times; a sinusoid step "
        "{sinusoid_step_us:.0f} us against {torch_sinusoid_step_us:.0f} us: {sinusoid_ratio:.1f} "
        "times. The sweep is {gigaflop:.0f} GFLOP of matrix products, {least_seconds:.1f} s at the "
        "measured rate of large ones; the sweep takes {sweep_over_least:.1f} times as long, its "
        "loops alone {loop_over_least:.1f} times (small matrices, element-wise operations)."
    ).format(**figures)


def _call(command: list[str]) -> str:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise RuntimeError(f"{command} failed:\n{finished.stdout}{finished.stderr}")
    return finished.stdout
