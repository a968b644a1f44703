"""A progress bar on terminals and in notebooks; nothing elsewhere."""

import contextlib
import sys
from collections.abc import Callable, Iterator

Advance = Callable[[int, str], None]


@contextlib.contextmanager
def progress_bar(title: str, total: int, *, show: bool) -> Iterator[Advance]:
    """Yields `advance(amount, note)`; draws with rich if it is installed and somebody looks.

    Example:
        >>> with progress_bar("training", 10, show=False) as advance:
        ...     advance(5, "held-out NLL 1.234")
    """
    if not show or not (sys.stderr.isatty() or _in_notebook()):
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


def _in_notebook() -> bool:
    """Whether this is a Jupyter kernel, whose output rich knows how to draw in."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"
