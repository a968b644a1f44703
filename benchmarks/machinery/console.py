"""What the user sees: progress with the time left on a terminal, plain lines elsewhere."""

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

console = Console(highlight=False, soft_wrap=True)


@contextlib.contextmanager
def progress(title: str, total: float) -> Iterator[Callable[[float], None]]:
    """Yields a function that advances the bar; nothing is drawn when not on a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=total)

        def advance(amount: float) -> None:
            bar.advance(task, amount)

        yield advance
