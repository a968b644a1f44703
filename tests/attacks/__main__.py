"""Tries every attack, stores what came of it and writes the table of the documentation.

python -m tests.attacks            # what is not stored; all takes some thirty minutes
python -m tests.attacks --table    # the table alone, from the stored results
"""

import argparse
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.store import Store, write_atomically
from tests.attacks import (
    artifacts,
    cells,
    draws,
    estimators,
    gradients,
    inputs,
    kills,
    posteriors,
    processes,
    round_trips,
    threads,
    trainings,
)
from tests.attacks.damage import DAMAGES

COMMAND = "python -m tests.attacks"
DOCS = Path(__file__).parents[2] / "docs"
SEED, KILLS, NEXT_SEED = 0, 10, 1


class Attack(NamedTuple):
    """A row of the table.

    Attributes:
        title: what the row says; its letters and digits are the name of the stored cell.
        run: from an empty folder to how often each outcome was seen.
        settings: what the stored result depends on.
    """

    title: str
    run: Callable[[Path], Mapping[str, int]]
    settings: dict[str, Any]
    seed: int = SEED

    @property
    def cell(self) -> str:
        folder = "attacks" if self.seed == SEED else f"attacks/seed_{self.seed}"
        return f"{folder}/{re.sub('[^a-zA-Z0-9]+', '_', self.title).strip('_')}"

    @property
    def spec(self) -> dict[str, Any]:
        return {"attack": self.title, "seed": self.seed, **self.settings}


def _rounds(
    title: str, run: Callable[..., Mapping[str, int]], rounds: int, seed: int = SEED
) -> Attack:
    return Attack(title, lambda folder: run(folder, rounds, seed), {"rounds": rounds}, seed)


def _damages(
    title: str, run: Callable[..., Mapping[str, int]], rounds: int, seed: int = SEED
) -> list[Attack]:
    return [
        _rounds(f"{title}: {d}", lambda folder, n, seed, d=d: run(folder, d, n, seed), rounds, seed)
        for d in DAMAGES
    ]


def _kill(name: str) -> Attack:
    return Attack(
        f"`kill -9`: {name}", lambda f: kills.attack(name, f, KILLS, SEED), {"kills": KILLS}
    )


def _kill_one_of(count: int, victim: int, who: str) -> Attack:
    title = f"`kill -9`: {who} of {count} processes that train together"
    return Attack(title, lambda folder: processes.attack(folder, count, victim), {})


FOREIGN = "artifact: foreign files, overlaps, deep trees and other crafted files"
HEADERS = "artifact: crafted headers, checksums right"
SPLICES = "artifact: header, metadata or data of another one"
TREES, CONFIGS = "artifact: random trees", "artifact: random configurations"
PATHS = "artifact: odd names and places"
MODELS = "file of the estimator: other fields, shapes and dtypes, checksums right"
STATES = "training state: every file, every damage above"
RESTORED = "training state: newest damaged, then restored"
TABLES = "estimator: odd values in tables to predict"
FITS = "estimator: odd settings and data to fit"
THREADS = "estimator: fits and predictions in threads"
GRADIENTS = "`network_gradient`: random options, a third wrong"
FAMILIES = "families: draws from extreme parameters, each family"

ATTACKS = [
    *_damages("artifact", artifacts.attack_bytes, 1000),
    _rounds(HEADERS, artifacts.attack_headers, 3000),
    Attack(FOREIGN, artifacts.attack_with_crafted_files, {}),
    _rounds(SPLICES, round_trips.attack_splices, 300),
    _rounds(TREES, round_trips.attack_trees, 1000),
    _rounds(CONFIGS, round_trips.attack_configs, 500),
    _rounds(PATHS, round_trips.attack_paths, 300),
    _rounds(MODELS, estimators.attack_estimators, 1000),
    *_damages("cell of a benchmark", cells.attack_cells, 1000),
    _rounds(STATES, cells.attack_checksums, 10),
    _rounds(RESTORED, cells.attack_states, 60),
    _rounds(TABLES, inputs.attack_cells, 1000),
    _rounds(FITS, inputs.attack_fits, 400),
    _rounds(THREADS, threads.attack_threads, 6),
    _rounds(GRADIENTS, gradients.attack_gradients, 120),
    _rounds(FAMILIES, draws.attack_families, 100),
    *map(_kill, kills.VICTIMS),
    _kill_one_of(2, 1, "one"),
    _kill_one_of(2, 0, "the coordinator"),
    _kill_one_of(4, 3, "one"),
]
# The same with other draws, after the library had changed, and some more.
AGAIN = [
    *_damages("artifact", artifacts.attack_bytes, 300, NEXT_SEED),
    _rounds(HEADERS, artifacts.attack_headers, 600, NEXT_SEED),
    _rounds(SPLICES, round_trips.attack_splices, 100, NEXT_SEED),
    _rounds(TREES, round_trips.attack_trees, 200, NEXT_SEED),
    _rounds(CONFIGS, round_trips.attack_configs, 200, NEXT_SEED),
    _rounds(PATHS, round_trips.attack_paths, 100, NEXT_SEED),
    _rounds(MODELS, estimators.attack_estimators, 300, NEXT_SEED),
    *_damages("cell of a benchmark", cells.attack_cells, 100, NEXT_SEED),
    _rounds(STATES, cells.attack_checksums, 2, NEXT_SEED),
    _rounds(RESTORED, cells.attack_states, 12, NEXT_SEED),
    _rounds("`predict` of the command: odd tables", trainings.attack_command, 300, NEXT_SEED),
    _rounds(TABLES, inputs.attack_cells, 300, NEXT_SEED),
    _rounds(FITS, inputs.attack_fits, 300, NEXT_SEED),
    _rounds("posterior: random options, half wrong", posteriors.attack_posteriors, 200, NEXT_SEED),
    _rounds(
        "`training.fit`: plans and data, most wrong", trainings.attack_trainings, 120, NEXT_SEED
    ),
    _rounds(FAMILIES, draws.attack_families, 50, NEXT_SEED),
    _rounds(GRADIENTS, gradients.attack_gradients, 20, NEXT_SEED),
    _rounds(THREADS, threads.attack_threads, 2, NEXT_SEED),
]


TABLES_OF = {DOCS / "attacks_table.txt": ATTACKS, DOCS / "attacks_again_table.txt": AGAIN}


def run(store: Store, attack: Attack) -> None:
    """Tries one attack unless its result is stored."""
    if store.read(attack.cell, attack.spec) is not None:
        return
    with tempfile.TemporaryDirectory() as folder:
        outcomes = dict(sorted(attack.run(Path(folder)).items()))
    print(attack.title, outcomes, flush=True)
    store.write(attack.cell, spec=attack.spec, result=outcomes, provenance=provenance(COMMAND))


def table(store: Store, attacks: list[Attack]) -> str:
    """Markdown: one row per attack."""
    rows = ["| attack | outcomes |", "|---|---|"]
    for attack in attacks:
        stored = store.read(attack.cell)
        if stored is not None:
            outcomes = ", ".join(f"{name}: {count}" for name, count in stored.items())
            rows.append(f"| {attack.title} | {outcomes} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    """Runs what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="write the table alone")
    arguments = parser.parse_args()
    store = Store()
    if not arguments.table:
        for attack in [*ATTACKS, *AGAIN]:
            run(store, attack)
    for path, attacks in TABLES_OF.items():
        write_atomically(path, table(store, attacks).encode())


if __name__ == "__main__":
    main()
