"""What a command says, and what it says instead of a traceback."""


class CommandError(Exception):
    """Something that the user of a command can correct; the message says how."""


def counted(number: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
