"""What notebooks show: tables and notes that take the colours of the page, dark or light."""

import functools
import html
import math
import re
from collections.abc import Iterable, Sequence

import numpy as np
from jax.typing import ArrayLike

Plain = float | int | list["Plain"] | None


def json_number(value: float) -> float | None:
    """A Python float, or None where JSON knows no number."""
    number = float(value)
    return number if math.isfinite(number) else None


def json_numbers(values: ArrayLike) -> Plain:
    """A number, or nested lists of numbers; whole numbers stay whole."""
    array = np.asarray(values)
    if array.ndim:
        return [json_numbers(part) for part in array]
    is_whole = np.issubdtype(array.dtype, np.integer)
    return int(array) if is_whole else json_number(float(array))


# Between black and white in lightness, so that they stand out from either; the word says it, too.
_MARKS = {"error": "#D55E00", "warning": "#E69F00"}


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> str:
    """A table that scrolls where it is too wide; every text is escaped."""
    heads = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    above = f"<b>{html.escape(title)}</b>" if title else ""
    return (
        f'<div style="overflow-x:auto">{above}<table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def note(kind: str, title: str, paragraphs: Iterable[str]) -> str:
    """A heading with its kind, and paragraphs, behind a coloured line; every text is escaped."""
    mark = f"border-left:4px solid {_MARKS[kind]};padding-left:0.8em;margin:0.6em 0"
    code = functools.partial(re.sub, r"`([^`]+)`", r"<code>\1</code>")
    body = "".join(f"<p>{code(html.escape(text))}</p>" for text in paragraphs)
    return f'<div style="{mark}"><b>{html.escape(f"{kind}: {title}")}</b>{body}</div>'


def progress(title: str, share: float, words: str) -> str:
    """A bar of the browser's own kind."""
    bar = f'<progress value="{share:.3f}" max="1"></progress>'
    return f"{html.escape(title)} {bar} {100 * share:.0f} % {html.escape(words)}".rstrip()
