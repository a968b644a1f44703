"""What the user sees: tables that fit, progress on a terminal, plain lines elsewhere."""

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

console = Console(highlight=False, soft_wrap=True)

_COUNT_EVERY = 1.0  # seconds


@contextlib.contextmanager
def progress(title: str, total: float) -> Iterator[Callable[[float], None]]:
    """Yields a function that advances the bar; nothing is drawn when not on a terminal."""
    with _bar(TextColumn("{task.percentage:>3.0f} %")) as bar:
        task = bar.add_task(title, total=total)
        yield lambda amount: bar.advance(task, amount)


@contextlib.contextmanager
def stored_bar(
    title: str, work: float, left: float, cells: int, count: Callable[[], int]
) -> Iterator[Callable[[float], None]]:
    """A bar over the work of a command that says how many of its cells are stored.

    Args:
        title: what is computed.
        work: that of all cells.
        left: that of the cells which are missing; the bar begins with the others.
        cells: how many are wanted.
        count: how many are stored by now.
    """
    with _bar(TextColumn("{task.fields[stored]}/{task.fields[cells]} cells stored")) as bar:
        task = bar.add_task(title, total=work, stored=count(), cells=cells)
        bar.update(task, completed=work - left)
        counted = time.monotonic()

        def advance(amount: float) -> None:
            nonlocal counted
            bar.advance(task, amount)
            if time.monotonic() > counted + _COUNT_EVERY and console.is_terminal:
                bar.update(task, stored=count())
                counted = time.monotonic()

        yield advance
        bar.update(task, stored=count())


def _bar(column: ProgressColumn) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        column,
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    return Progress(*columns, console=console, disable=not console.is_terminal)
