"""What the command line takes; packages that a command needs are imported when it runs."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fisher8_jax._internal.extras import needs_extra
from fisher8_jax.command._csv import CommandError

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        argv: the words after `python -m fisher8_jax`; None takes those of this process.

    Returns:
        The exit code: 0, or 1 after a message on the standard error.

    Example:
        >>> import pathlib, tempfile
        >>> from fisher8_jax.command import main
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> main(["predict", str(folder / "rows.csv"), "--model", "m.st", "--output", "p.csv"])
        1
    """
    arguments = _parser().parse_args(argv)
    try:
        return _run(arguments)
    except (CommandError, ImportError) as error:
        print(f"{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        # Files are written whole or not at all, and each one is announced when it is there.
        print("\nInterrupted: no file was written but those named above.", file=sys.stderr)
        return 130


def _run(arguments: argparse.Namespace) -> int:
    if arguments.command == "check":
        from fisher8_jax.command._check import run_check

        return run_check(arguments)
    with needs_extra("command", package="pandas", needed_by="python -m fisher8_jax"):
        import pandas  # noqa: F401
    if arguments.command == "fit":
        from fisher8_jax.command._fit import run_fit

        run_fit(arguments)
    else:
        from fisher8_jax.command._predict import run_predict

        run_predict(arguments)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m fisher8_jax", description="Models of tables with honest uncertainty."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_fit(commands.add_parser("fit", help="train on a CSV file and report what to expect"))
    _add_predict(commands.add_parser("predict", help="predict the rows of a CSV file"))
    _add_check(commands.add_parser("check", help="versions, devices, exactness and step costs"))
    return parser


def _add_fit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, help="a CSV file with a header")
    parser.add_argument("--target", required=True, help="the column to predict")
    parser.add_argument("--model", type=Path, help="where to save the model")
    parser.add_argument("--report", type=Path, help="where to write the page, one HTML file")
    parser.add_argument(
        "--ignore", nargs="+", default=[], metavar="COLUMN", help="columns not to use"
    )
    parser.add_argument(
        "--id",
        nargs="+",
        default=[],
        metavar="COLUMN",
        help="columns that name rows: not used to predict",
    )
    _add_folds(parser)
    _add_estimator(parser)
    _add_dialect(parser)


def _add_folds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--folds", type=int, default=5, help="folds of the cross-validation; default 5"
    )
    parser.add_argument(
        "--group",
        metavar="COLUMN",
        help="rows with the same value stay in one fold; not used to predict",
    )
    parser.add_argument(
        "--time", metavar="COLUMN", help="every fold is predicted from the rows before it"
    )


def _add_estimator(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--family",
        default="auto",
        help="the likelihood, see `Fisher8Regressor`; default: chosen by held-out NLL",
    )
    parser.add_argument(
        "--effort",
        choices=("quick", "default", "best"),
        help="what a fit may cost: a fifth of the default, or ten times as much",
    )
    parser.add_argument("--members", type=int, help="networks in the ensemble")
    parser.add_argument("--max-steps", type=int, help="gradient steps of each network")
    parser.add_argument(
        "--hidden-layer-sizes", type=_widths, metavar="N,N,...", help="units, such as 50,50"
    )
    parser.add_argument("--seed", type=int, default=0, help="decides everything random; default 0")


def _add_predict(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, help="a CSV file with the columns of the training")
    parser.add_argument("--model", type=Path, required=True, help="what `fit` saved")
    parser.add_argument("--output", type=Path, required=True, help="the CSV file to write")
    parser.add_argument(
        "--id", nargs="+", default=[], metavar="COLUMN", help="copied to the predictions"
    )
    parser.add_argument(
        "--quantiles",
        type=float,
        nargs="+",
        default=list(_QUANTILES),
        help="probabilities; default: 0.05 0.25 0.5 0.75 0.95",
    )
    _add_dialect(parser)


def _add_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=64, help="rows of a batch; default 64")
    parser.add_argument("--width", type=int, default=64, help="units of a layer; default 64")


def _add_dialect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--separator", default=",", help="between columns; default: a comma")
    parser.add_argument("--decimal", default=".", help="the decimal point; default: a point")


def _widths(text: str) -> tuple[int, ...]:
    """The numbers of "50,50"."""
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        message = f"whole numbers separated by commas are needed, such as 50,50, got {text!r}"
        raise argparse.ArgumentTypeError(message) from None
