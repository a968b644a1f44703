"""Makes the pictures of the documentation from the code that stands next to them.

Run it from the root of the repository: `python docs/images/make_images.py`. Every fenced Python
block of a page is executed in order; an image link that follows a block names the file that the
current figure is saved to.
"""

import re
import sys
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

DOCS = Path(__file__).resolve().parent.parent
PART = re.compile(
    r"^```python\n(?P<code>.*?)^```|^!\[[^\]]*\]\((?P<image>images/\S+\.png)\)", re.S | re.M
)


def make_images(page: Path) -> None:
    """Runs the code of one page and saves its figures."""
    namespace: dict[str, object] = {}
    for part in PART.finditer(page.read_text(encoding="utf-8")):
        if part["code"] is not None:
            exec(compile(part["code"], str(page), "exec"), namespace)
        else:
            # Without metadata the bytes do not depend on versions or dates.
            plt.savefig(DOCS / part["image"], dpi=130, metadata={"Software": None})
            plt.close("all")
            print(part["image"])


if __name__ == "__main__":
    sys.path.insert(0, str(DOCS.parent))
    for name in ("diagnostics.md", "getting_started.md", "plots.md"):
        make_images(DOCS / name)
