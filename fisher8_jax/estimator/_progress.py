"""A progress bar on a terminal; nothing elsewhere."""

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress(title: str, total: int, wanted: bool) -> Iterator[Callable[[int, str], None]]:
    """Yields `advance(amount, note)`; draws with rich if it is installed, on a terminal only."""
    if not wanted or not sys.stderr.isatty():
        yield lambda amount, note: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield lambda amount, note: None
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
        yield lambda amount, note: bar.update(task, advance=amount, note=note)
