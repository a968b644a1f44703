"""The progress of a long computation: a bar on terminals and in notebooks, lines elsewhere."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from fisher8_jax._internal.html import progress

Report = Callable[[int, str], None]
"""Called with the number of steps done and a note; an empty note is no news to print."""


def is_watched() -> bool:
    """Whether a bar can be drawn: on a terminal or in a notebook."""
    return _in_notebook() or sys.stderr.isatty()


@contextlib.contextmanager
def report_progress(title: str, total: int, *, show: bool) -> Iterator[Report]:
    """Yields `report(done, note)`.

    It draws a bar in a notebook, and with rich on a terminal. Elsewhere it prints one line for each
    note to the standard error.
    """
    if not show:
        yield lambda done, note: None
    elif _in_notebook():
        with _notebook_bar(title, total) as report:
            yield report
    else:
        with _terminal_bar(title, total) if sys.stderr.isatty() else _lines(title, total) as report:
            yield report


@contextlib.contextmanager
def _lines(title: str, total: int) -> Iterator[Report]:
    def report(done: int, note: str) -> None:
        if note:
            print(f"{title}: step {done}/{total}, {note}", file=sys.stderr, flush=True)

    yield report


@contextlib.contextmanager
def _terminal_bar(title: str, total: int) -> Iterator[Report]:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        with _lines(title, total) as report:
            yield report
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total, note="")

        def report(done: int, note: str) -> None:
            bar.update(task, completed=done)
            if note:
                bar.update(task, note=note)

        yield report


@contextlib.contextmanager
def _notebook_bar(title: str, total: int) -> Iterator[Report]:
    """The browser's own bar, ten times a second at most; it leaves when the work is done."""
    from IPython.display import HTML, display  # running, or this would not be a notebook

    shown = display(HTML(progress(title, 0.0, "")), display_id=True)
    last, newest = 0.0, ""

    def report(done: int, note: str) -> None:
        nonlocal last, newest
        newest = note or newest
        if time.monotonic() - last >= 0.1 or done >= total:
            last = time.monotonic()
            shown.update(HTML(progress(title, min(1.0, done / max(1, total)), newest)))

    try:
        yield report
    finally:
        shown.update(HTML(""))


def _in_notebook() -> bool:
    """Whether this is a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"
