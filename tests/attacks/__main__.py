"""Tries every attack, stores what came of it and writes the table of the documentation.

python -m tests.attacks            # all, some twenty minutes
python -m tests.attacks --table    # the table alone, from the stored results
"""

import argparse
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.store import Store, write_atomically
from tests.attacks import artifacts, cells, estimators, kills, processes
from tests.attacks.damage import DAMAGES

COMMAND = "python -m tests.attacks"
TABLE = Path(__file__).parents[2] / "docs" / "attacks_table.txt"
ROUNDS, HEADERS, STATES, KILLS, SEED = 1000, 3000, 60, 20, 0

Attack = Callable[[Path], dict[str, int]]


def attacks() -> dict[str, tuple[str, Attack]]:
    """What each row of the table is called, and how it is made."""
    found: dict[str, tuple[str, Attack]] = {}
    for damage in DAMAGES:
        found[f"artifact-{damage}"] = (
            f"artifact: {damage}",
            lambda f, d=damage: artifacts.attack_bytes(f, d, ROUNDS, SEED),
        )
    found["artifact-headers"] = (
        "artifact: crafted headers, checksums right",
        lambda f: artifacts.attack_headers(f, HEADERS, SEED),
    )
    found["artifact-crafted"] = (
        "artifact: foreign files, overlaps, deep trees and other crafted files",
        artifacts.attack_with_crafted_files,
    )
    found["estimator-fields"] = (
        "file of the estimator: other fields, shapes and dtypes, checksums right",
        lambda f: estimators.attack_estimators(f, ROUNDS, SEED),
    )
    for damage in DAMAGES:
        found[f"cell-{damage}"] = (
            f"cell of a benchmark: {damage}",
            lambda f, d=damage: cells.attack_cells(f, d, ROUNDS, SEED),
        )
    found["state-files"] = (
        "training state: every file, every damage above",
        lambda f: cells.attack_checksums(f, 10, SEED),
    )
    found["state-restored"] = (
        "training state: newest damaged, then restored",
        lambda f: cells.attack_states(f, STATES, SEED),
    )
    for name in kills.VICTIMS:
        found[f"kill-{name.strip('`')}"] = (
            f"`kill -9`: {name}",
            lambda f, n=name: kills.attack(n, f, KILLS, SEED),
        )
    for count, victim, who in ((2, 1, "one"), (2, 0, "the coordinator"), (4, 3, "one")):
        found[f"processes-{count}-{victim}"] = (
            f"`kill -9`: {who} of {count} processes that train together",
            lambda f, n=count, v=victim: processes.attack(f, n, v),
        )
    return found


def run(store: Store, name: str, title: str, attack: Attack) -> None:
    """Tries one attack unless its result is stored."""
    spec = {"attack": title, "rounds": ROUNDS, "kills": KILLS, "seed": SEED}
    cell = f"attacks/{re.sub('[^a-zA-Z0-9.-]+', '_', name)}"
    if store.read(cell, spec) is not None:
        return
    with tempfile.TemporaryDirectory() as folder:
        outcomes = dict(sorted(attack(Path(folder)).items()))
    print(title, outcomes, flush=True)
    store.write(cell, spec=spec, result=outcomes, provenance=provenance(COMMAND))


def table(store: Store) -> str:
    """Markdown: one row per attack."""
    rows = ["| attack | outcomes |", "|---|---|"]
    stored: dict[str, Any] = {
        cell["spec"]["attack"]: cell["result"] for cell in store.cells("attacks")
    }
    for title, _ in attacks().values():
        if title in stored:
            outcomes = ", ".join(f"{name}: {count}" for name, count in stored[title].items())
            rows.append(f"| {title} | {outcomes} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    """Runs what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="write the table alone")
    arguments = parser.parse_args()
    store = Store()
    if not arguments.table:
        for name, (title, attack) in attacks().items():
            run(store, name, title, attack)
    write_atomically(TABLE, table(store).encode())


if __name__ == "__main__":
    main()
