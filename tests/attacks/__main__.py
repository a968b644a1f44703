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
    processes,
    round_trips,
    threads,
)
from tests.attacks.damage import DAMAGES

COMMAND = "python -m tests.attacks"
TABLE = Path(__file__).parents[2] / "docs" / "attacks_table.txt"
SEED, KILLS = 0, 10


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

    @property
    def cell(self) -> str:
        return f"attacks/{re.sub('[^a-zA-Z0-9]+', '_', self.title).strip('_')}"

    @property
    def spec(self) -> dict[str, Any]:
        return {"attack": self.title, "seed": SEED, **self.settings}


def _rounds(title: str, run: Callable[..., Mapping[str, int]], rounds: int) -> Attack:
    return Attack(title, lambda folder: run(folder, rounds, SEED), {"rounds": rounds})


def _damages(title: str, run: Callable[..., Mapping[str, int]], rounds: int) -> list[Attack]:
    return [
        _rounds(f"{title}: {d}", lambda folder, n, seed, d=d: run(folder, d, n, seed), rounds)
        for d in DAMAGES
    ]


def _kill(name: str) -> Attack:
    return Attack(
        f"`kill -9`: {name}", lambda f: kills.attack(name, f, KILLS, SEED), {"kills": KILLS}
    )


def _kill_one_of(count: int, victim: int, who: str) -> Attack:
    title = f"`kill -9`: {who} of {count} processes that train together"
    return Attack(title, lambda folder: processes.attack(folder, count, victim), {})


ATTACKS = [
    *_damages("artifact", artifacts.attack_bytes, 1000),
    _rounds("artifact: crafted headers, checksums right", artifacts.attack_headers, 3000),
    Attack(
        "artifact: foreign files, overlaps, deep trees and other crafted files",
        artifacts.attack_with_crafted_files,
        {},
    ),
    _rounds("artifact: header, metadata or data of another one", round_trips.attack_splices, 300),
    _rounds("artifact: random trees", round_trips.attack_trees, 1000),
    _rounds("artifact: random configurations", round_trips.attack_configs, 500),
    _rounds("artifact: odd names and places", round_trips.attack_paths, 300),
    _rounds(
        "file of the estimator: other fields, shapes and dtypes, checksums right",
        estimators.attack_estimators,
        1000,
    ),
    *_damages("cell of a benchmark", cells.attack_cells, 1000),
    _rounds("training state: every file, every damage above", cells.attack_checksums, 10),
    _rounds("training state: newest damaged, then restored", cells.attack_states, 60),
    _rounds("estimator: odd values in tables to predict", inputs.attack_cells, 1000),
    _rounds("estimator: odd settings and data to fit", inputs.attack_fits, 400),
    _rounds("estimator: fits and predictions in threads", threads.attack_threads, 6),
    _rounds("`network_gradient`: random options, a third wrong", gradients.attack_gradients, 120),
    _rounds("families: draws from extreme parameters, each family", draws.attack_families, 100),
    *map(_kill, kills.VICTIMS),
    _kill_one_of(2, 1, "one"),
    _kill_one_of(2, 0, "the coordinator"),
    _kill_one_of(4, 3, "one"),
]


def run(store: Store, attack: Attack) -> None:
    """Tries one attack unless its result is stored."""
    if store.read(attack.cell, attack.spec) is not None:
        return
    with tempfile.TemporaryDirectory() as folder:
        outcomes = dict(sorted(attack.run(Path(folder)).items()))
    print(attack.title, outcomes, flush=True)
    store.write(attack.cell, spec=attack.spec, result=outcomes, provenance=provenance(COMMAND))


def table(store: Store) -> str:
    """Markdown: one row per attack."""
    rows = ["| attack | outcomes |", "|---|---|"]
    for attack in ATTACKS:
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
        for attack in ATTACKS:
            run(store, attack)
    write_atomically(TABLE, table(store).encode())


if __name__ == "__main__":
    main()
