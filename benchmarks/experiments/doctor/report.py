"""The doctor's section of the report: false alarms and hits, family by family."""

from typing import Any

from benchmarks.experiments.doctor.faults import FAULTS
from benchmarks.experiments.families.problems import PROBLEMS
from benchmarks.machinery.document import Block, Paragraph, Section, Table
from benchmarks.machinery.store import Store


def section(store: Store) -> Section | None:
    """The stored families; None if there are none."""
    tables = list(tables_of(store))
    if not tables:
        return None
    words = (
        "False alarms on the true distribution of every family, and the share of draws in which a "
        "fault made on purpose was named. The doctor's page says how to read it."
    )
    blocks: list[Block] = [Paragraph(words), *tables]
    return Section("The doctor", blocks)


def tables_of(store: Store) -> list[Table]:
    """Alarms and hits of every stored family, and how often a better family was named."""
    rows = [cell["result"] for cell in store.cells("doctor") if "family" in cell["result"]]
    if not rows:
        return []
    rows.sort(key=lambda row: list(PROBLEMS).index(row["family"]))
    codes = [code for code, _ in FAULTS.values()]
    header = ["family", "worst rule, false alarms", "any rule", *codes]
    tables = [Table("False alarms and hits", header, [_row(row) for row in rows])]
    pairs: dict[str, Any] = store.read("doctor/right_names") or {}
    if pairs:
        header = ["wrong family", "said", "named"]
        named = [_pair(name, entry) for name, entry in pairs.items()]
        tables.append(Table("Wrong families", header, named))
    cases: dict[str, Any] = store.read("doctor/cases") or {}
    if cases:
        header = ["case", "must say first", "must not say", "right"]
        tables.append(Table("Cases", header, [_case(*item) for item in cases.items()]))
    return tables


def _row(row: dict[str, Any]) -> list[str]:
    alarms, draws = row["alarms"], row["draws"]
    worst = max(alarms, key=lambda code: alarms[code], default=None)
    said = "0" if worst is None else f"{100 * alarms[worst] / draws:.1f} % (`{worst}`)"
    total = f"{100 * sum(alarms.values()) / draws:.1f} %"
    hits = [f"{100 * hit['named'] / hit['draws']:.0f} %" for hit in row["hits"].values()]
    return [row["family"], said, total, *hits]


def _pair(name: str, entry: dict[str, Any]) -> list[str]:
    share = f"{entry['named']} of {entry['draws']}"
    return [name, f"`{entry['code']}`: `{entry['family']}`", share]


def _case(name: str, entry: dict[str, Any]) -> list[str]:
    first = f"`{entry['first']}`" if entry["first"] else "nothing"
    never = ", ".join(f"`{code}`" for code in entry["never"])
    return [name, first, never, f"{entry['right']} of {entry['draws']}"]
