"""Runs the notebooks and writes their outputs: `python -m tests.notebooks [NAME ...]`.

All of them run in one kernel, each in an empty namespace: starting it and importing JAX takes
longer than what they compute.
"""

import contextlib
import pathlib
import sys
from collections.abc import Iterator

import nbformat
from nbclient import NotebookClient
from nbclient.client import KernelManager

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


class Kernel:
    """A kernel that runs one notebook after the other, from the root of the repository."""

    def __init__(self, manager: KernelManager):
        self.manager = manager

    def run(self, notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
        """The notebook with its outputs; raises at the first error and at warnings."""
        reset = nbformat.v4.new_code_cell(
            "%reset -f\n%matplotlib inline\nimport warnings\nwarnings.simplefilter('error')"
        )
        whole = nbformat.v4.new_notebook(cells=[reset, *notebook.cells])
        client = NotebookClient(
            whole, km=self.manager, timeout=300, resources={"metadata": {"path": str(ROOT)}}
        )
        try:
            client.execute(cleanup_kc=False)
        finally:
            client.kc.stop_channels()
        return nbformat.v4.new_notebook(cells=whole.cells[1:], metadata=notebook.metadata)


@contextlib.contextmanager
def kernel() -> Iterator[Kernel]:
    """A kernel for as long as the context lasts."""
    manager = KernelManager(kernel_name="python3", transport="ipc")
    try:
        yield Kernel(manager)
    finally:
        manager.shutdown_kernel(now=True)


def main(names: list[str]) -> None:
    """Writes outputs into the files; what differs from run to run is left out."""
    with kernel() as running:
        for path in NOTEBOOKS:
            if not names or path.stem in names:
                notebook = running.run(nbformat.read(path, as_version=4))
                for count, cell in enumerate(c for c in notebook.cells if c.cell_type == "code"):
                    cell.metadata.pop("execution", None)
                    cell.execution_count = count + 1
                    for output in cell.outputs:
                        if "execution_count" in output:
                            output["execution_count"] = count + 1
                notebook.metadata.pop("language_info", None)
                nbformat.write(notebook, path)
                print(path.relative_to(ROOT), f"{path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
