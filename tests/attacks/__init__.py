"""Attacks, counted; `python -m tests.attacks` tries all and stores a table.

An attack returns how often each outcome was seen. What must never be seen begins with `BAD`.
"""

from collections.abc import Callable

BAD = "BAD: "


def returned_or_refused(
    call: Callable[[], object], refusals: tuple[type[Exception], ...] = (TypeError, ValueError)
) -> str:
    """'returned', or 'refused' by an error of the promised kind that says something."""
    try:
        call()
    except refusals as error:
        return "refused" if len(str(error)) > 10 else f"{BAD}{error!r}"
    except Exception as error:
        return f"{BAD}{type(error).__name__}"
    return "returned"
