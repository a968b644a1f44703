"""A progress bar on terminals and in notebooks; nothing elsewhere."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from fisher8_jax._internal.html import progress

Advance = Callable[[int, str], None]


@contextlib.contextmanager
def progress_bar(title: str, total: int, *, show: bool) -> Iterator[Advance]:
    """Yields `advance(amount, note)`; draws if somebody looks, with rich on a terminal.

    Example:
        >>> with progress_bar("training", 10, show=False) as advance:
        ...     advance(5, "held-out NLL 1.234")
    """
    if show and _in_notebook():
        with _notebook_bar(title, total) as advance:
            yield advance
        return
    if not show or not sys.stderr.isatty():
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


@contextlib.contextmanager
def _notebook_bar(title: str, total: int) -> Iterator[Advance]:
    """The browser's own bar, ten times a second at most; it leaves when the work is done."""
    from IPython.display import HTML, display  # running, or this would not be a notebook

    shown = display(HTML(progress(title, 0.0, "")), display_id=True)
    done, last = 0, 0.0

    def advance(amount: int, note: str) -> None:
        nonlocal done, last
        done += amount
        if time.monotonic() - last >= 0.1 or done >= total:
            last = time.monotonic()
            shown.update(HTML(progress(title, min(1.0, done / max(1, total)), note)))

    try:
        yield advance
    finally:
        shown.update(HTML(""))


def _in_notebook() -> bool:
    """Whether this is a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"
