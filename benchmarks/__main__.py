"""`python -m benchmarks NAME [options]`: one module per command, imported when asked for.

A command module has `add_arguments(parser)` and `run(args) -> int`, the exit code.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import NamedTuple


class Command(NamedTuple):
    """Where a command lives and what it does, in one line."""

    module: str
    help: str


COMMANDS = {
    "engel": Command(
        "benchmarks.experiments.engel.command", "Plain NLL beside Fisher8 on a small real data set."
    ),
    "overhead": Command(
        "benchmarks.costs.overhead", "Cost of Fisher8 in a compiled training step."
    ),
    "uci": Command(
        "benchmarks.experiments.uci.command", "The UCI tables: 8 sets, 20 splits, 9 tables."
    ),
    "sinusoid": Command(
        "benchmarks.experiments.sinusoid.command", "The one-dimensional sinusoid over training."
    ),
    "radius": Command(
        "benchmarks.experiments.radius.command", "The KL radius beside tuned learning rates."
    ),
    "rotated_mnist": Command(
        "benchmarks.experiments.rotated_mnist.command", "The angle of a rotated digit."
    ),
    "weak_lensing": Command(
        "benchmarks.experiments.weak_lensing.command", "Two cosmological parameters from maps."
    ),
    "estimator": Command(
        "benchmarks.experiments.tables.command", "The estimator beside gradient boosting, UCI."
    ),
    "scale_out": Command("benchmarks.costs.scale_out", "What many devices send each other."),
    "speed": Command("benchmarks.costs.speed", "The UCI sweep against PyTorch and the hardware."),
    "families": Command(
        "benchmarks.experiments.families.command", "Recovery of every family beside tuned Adam."
    ),
    "doctor": Command(
        "benchmarks.experiments.doctor.command", "False alarms and hits of the doctor."
    ),
    "dense": Command(
        "benchmarks.experiments.dense.command", "Disparity of every pixel of a stereo pair."
    ),
    "report": Command(
        "benchmarks.machinery.report", "Committed results beside the published figures."
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Parses the command line, imports the one module it names and runs it."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if not argv or argv[0] in ("-h", "--help"):
        print(_overview())
        return 0 if argv else 2
    name, *rest = argv
    if name not in COMMANDS:
        print(f"There is no benchmark {name!r}.\n\n{_overview()}", file=sys.stderr)
        return 2
    module = importlib.import_module(COMMANDS[name].module)
    parser = argparse.ArgumentParser(f"python -m benchmarks {name}", description=module.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    module.add_arguments(parser)
    return module.run(parser.parse_args(rest))


def _overview() -> str:
    rows = "\n".join(f"  {name:14} {command.help}" for name, command in COMMANDS.items())
    return f"usage: python -m benchmarks NAME [options]   (NAME --help for its options)\n\n{rows}"


if __name__ == "__main__":
    sys.exit(main())
