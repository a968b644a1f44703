"""`python -m benchmarks NAME [options]`; the names are those of `registry.py`."""

import argparse
import sys
from collections.abc import Sequence

from benchmarks.machinery.threads import use_one_thread
from benchmarks.registry import BENCHMARKS


def main(argv: Sequence[str] | None = None) -> int:
    """Parses the command line, imports the one module it names and runs it."""
    argv = list(sys.argv[1:] if argv is None else argv)
    use_one_thread()
    if not argv or argv[0] in ("-h", "--help"):
        print(_overview())
        return 0 if argv else 2
    name, *rest = argv
    if name not in BENCHMARKS:
        print(f"There is no benchmark {name!r}.\n\n{_overview()}", file=sys.stderr)
        return 2
    return _run(name, rest)


def _run(name: str, options: Sequence[str]) -> int:
    from benchmarks.machinery.command import UsageError
    from benchmarks.machinery.data import DataUnavailableError
    from benchmarks.machinery.environments import NotInstalledError

    try:
        module = BENCHMARKS[name].load_command()
        parser = argparse.ArgumentParser(f"python -m benchmarks {name}", description=module.__doc__)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        module.add_arguments(parser)
        return module.run(parser.parse_args(options))
    except (UsageError, DataUnavailableError, NotInstalledError) as error:
        print(f"{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        unstored = "Interrupted: nothing is stored; the same command starts again."
        print(f"\n{stop}" if str(stop) else f"\n{unstored}", file=sys.stderr)
        return 130


def _overview() -> str:
    rows = "\n".join(f"  {name:14} {row.help}" for name, row in BENCHMARKS.items())
    return f"usage: python -m benchmarks NAME [options]   (NAME --help for its options)\n\n{rows}"


if __name__ == "__main__":
    sys.exit(main())
