"""What a command says instead of a traceback."""


class CommandError(Exception):
    """Something that the user of a command can correct; the message says how."""
