"""Lines of the library and how many of them are new: `python -m tests.library_size`.

It prints the table of docs/design.md. A definition (a function, a method, what is left of a class,
a constant) counts as new if `git blame` says that more than half of its lines were last written by
a commit that added a feature; it then counts whole, else not at all. Moved lines count for the
commit that wrote them first. The folder `posterior` is new as a whole. Needs the history of the
repository and takes some minutes.
"""

import ast
import collections
import re
import subprocess
from collections.abc import Iterator

from tests.places import LIBRARY, PACKAGE, ROOT

NEW_FOLDERS = ("posterior",)

# After this commit all add features but those that shorten or annotate what there was: the ones
# listed, and those whose messages have the line `Adds no feature.`
LISTED_UNTIL = "d794aee"
SHORTENING = (
    *("ad11900", "b136a4e", "5e633b0", "b54f73a", "8f1f308", "991cdec", "5b370ae", "b742401"),
    "d7af5f0",
)

# What each commit added, and in which folders and files: some also moved or restored what was not
# new. Finding a column's kind from its words came with text and dates, in one file beside theirs;
# what `_estimator_checks.py` has of the commit that restored files refuses mistakes of users
# (strings as widths, columns without a target, dates as targets).
FEATURES = {
    "8cc07c1": (
        ("command", "estimator/_estimator_checks.py"),
        "checks of CSV files and arguments, folds, `check`",
    ),
    "6b46c07": (
        ("estimator/_strings.py", "estimator/_columns.py"),
        "text and dates in strings",
    ),
    "4d65499": ("", "threads that do not wait for each other"),
    "d88e5cd": ("", "`center`, refused weights"),
    "b8bba95": ("", "mapped and Explicit axes"),
    "d56f557": ("", "batch statistics refused, `predict_one_fn`"),
    "3c74eb3": ("", "odd networks and mistakes"),
    "904e9e9": ("", "known weights"),
    "f672bda": ("", "training by evidence"),
    "0ca4d63": ("", "rules of the doctor"),
    "a1d0695": ("curvature", "rows of the Jacobian"),
    "756d658": ("", "preconditioned conjugate gradients"),
    "1898617": ("", "batches of factorisations"),
    "fd05a70": ("", "`step_kl` asked for"),
    "c9def94": ("", "natural parameters"),
    "9edeb75": ("", "epistemic part, conformal intervals, memory"),
    "12b6e3a": ("", "cheaper posteriors"),
    "1e8d5df": ("", "families compared by one method"),
    "07e2095": ("", "what attacks found"),
    "c42769a": ("", "rows instead of uses, a budget, kept programs"),
    "c2045e6": ("", "dtypes of a triangular solve"),
    "ca6df9d": ("", "`method` checked"),
    "0737e4c": ("", "priors on the host"),
    "6e69158": ("", "early-stopped networks"),
    "b0b6d75": ("", "a radius measured every few steps"),
}


def main() -> None:
    """Prints the table."""
    text = (ROOT / "docs" / "design.md").read_text()
    before = dict(re.findall(r"^\| (`\w+`|modules at the top) \| ([\d,]+) \|", text, re.M))
    now, new = collections.Counter(), collections.Counter()
    added = features()
    for path in LIBRARY:
        name = path.relative_to(PACKAGE).as_posix()
        part = f"`{name.partition('/')[0]}`" if "/" in name else "modules at the top"
        now[part] += len(path.read_text().splitlines())
        new[part] += new_lines(name, added)
    total = sum(int(number.replace(",", "")) for number in before.values())
    for part, number in before.items():
        print(f"| {part} | {number} | {now[part]:,} | {new[part]:,} |")
    print(f"| all | {total:,} | {now.total():,} | {new.total():,} |")


def features() -> dict[str, str | tuple[str, ...]]:
    """The commits that added features, and the folders or files in which they did."""
    adding = ("--invert-grep", "--grep=^Adds no feature\\.$", f"{LISTED_UNTIL}..HEAD")
    recent = git("rev-list", "--abbrev-commit", "--abbrev=7", *adding).split()
    found: dict[str, str | tuple[str, ...]]
    found = dict.fromkeys((c for c in recent if c not in SHORTENING), "")
    return found | {commit: where for commit, (where, _) in FEATURES.items()}


def git(*words: str) -> str:
    """What a command of git prints."""
    command = ["git", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def new_lines(name: str, added: dict[str, str | tuple[str, ...]]) -> int:
    """How many lines of a file belong to definitions that are new."""
    source = (PACKAGE / name).read_text()
    if name.startswith(tuple(f"{folder}/" for folder in NEW_FOLDERS)):
        return len(source.splitlines())
    blame = git("blame", "-w", "-M", "-C", "-C", "-s", "--abbrev=6", f"{PACKAGE / name}")
    commits = (line.split()[0].lstrip("^")[:7] for line in blame.splitlines())
    is_new = [c in added and name.startswith(added[c]) for c in commits]
    spans = definitions(ast.parse(source).body, len(is_new), is_new)
    return sum(last - first for first, last in spans if 2 * sum(is_new[first:last]) > last - first)


def definitions(body: list[ast.stmt], end: int, is_new: list[bool]) -> Iterator[tuple[int, int]]:
    """Where each definition begins and where the next one does; classes that are not new inside."""
    starts = [_start(node) for node in body]
    for node, first, last in zip(body, starts, [*starts[1:], end], strict=True):
        is_old_class = (
            isinstance(node, ast.ClassDef) and 2 * sum(is_new[first:last]) <= last - first
        )
        if is_old_class:
            yield from definitions(node.body, last, is_new)
        else:
            yield first, last


def _start(node: ast.stmt) -> int:
    """The first line, counted from 0, decorators included."""
    lines = [decorator.lineno for decorator in getattr(node, "decorator_list", [])]
    return min([node.lineno, *lines]) - 1


if __name__ == "__main__":
    main()
