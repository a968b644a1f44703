"""Makes the pictures of the documentation: from the code next to them, and from stored results.

Run it from the root of the repository: `python docs/images/make_images.py [NAME ...]`; a name is a
page such as `plots.md` or a picture such as `front.png`. Every fenced Python block of a page is
executed in order; an image link that follows a block names the file that the current figure is
saved to. `front.png` comes from trainings of `front.py`, `geometry.png` from `geometry.py`,
`between.png` from `between.py`, `posterior.png` from the gallery, `engel.png` and `dense.png` from
the trainings of `python -m benchmarks engel` and `dense`, which draw them.
"""

import re
import runpy
import sys
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import between
import front
import geometry

DOCS = Path(__file__).resolve().parent.parent
PART = re.compile(
    r"^```python\n(?P<code>.*?)^```|^!\[[^\]]*\]\((?P<image>images/\S+\.png)\)", re.S | re.M
)
PAGES = ("getting_started.md", "plots.md")
# Pictures that the report draws, by their names there.
FROM_REPORT = {
    "adoption_bayesflow.png": "adoption_bayesflow",
    "adoption_bde.png": "adoption_bde",
    "adoption_flowjax.png": "adoption_flowjax",
    "adoption_pets.png": "adoption_pets",
    "adoption_ramsey.png": "adoption_ramsey",
    "adoption_rl_blox.png": "adoption_rl_blox",
    "comparison.png": "comparison",
    "convergence_maps.png": "weak-lensing-maps",
    "forecaster.png": "forecaster",
    "gaps.png": "gaps",
    "network_cost.png": "network_cost",
    "network_sinusoid.png": "curvature-sinusoid-linear",
    "network_time.png": "curvature-time-long",
    "one_default.png": "one_default",
    "posterior_cost.png": "posterior_cost",
    "radius_learning_rate.png": "radius_learning_rate",
    "rotated_digits_features.png": "rotated-digits-features",
    "sinusoid.png": "sinusoid-best-constant",
    "sinusoid_linear.png": "sinusoid-best-linear",
    "tables.png": "tables",
    "unfamiliar_digits.png": "unfamiliar_digits",
}


def from_page(page: Path) -> None:
    """Runs the code of one page and saves its figures."""
    from benchmarks.machinery.figures import style

    with style():
        _run(page)


def _run(page: Path) -> None:
    namespace: dict[str, object] = {}
    for part in PART.finditer(page.read_text(encoding="utf-8")):
        if part["code"] is not None:
            exec(compile(part["code"], str(page), "exec"), namespace)
        elif plt.get_fignums():  # other pictures are drawn elsewhere
            # Without metadata the bytes do not depend on versions or dates.
            plt.savefig(DOCS / part["image"], metadata={"Software": None})
            plt.close("all")
            print(part["image"])


def from_results(names: list[str]) -> None:
    """Draws pictures from the committed results."""
    from benchmarks.machinery.document import Figure
    from benchmarks.machinery.report import collect
    from benchmarks.machinery.store import DEFAULT_RESULTS, Store

    store = Store(DEFAULT_RESULTS)
    blocks = [block for section in collect(store) for block in section.blocks]
    figures = {block.name: block for block in blocks if isinstance(block, Figure)}
    for name in names:
        (DOCS / "images" / name).write_bytes(figures[FROM_REPORT[name]].png)
        print(f"images/{name}")


if __name__ == "__main__":
    asked = sys.argv[1:] or [
        *PAGES,
        *FROM_REPORT,
        "between.png",
        "front.png",
        "geometry.png",
        "posterior.png",
    ]
    for name in asked:
        if name in PAGES:
            from_page(DOCS / name)
    if "posterior.png" in asked:
        runpy.run_path(str(DOCS / "gallery_source" / "plot_6b_posterior.py"))
        plt.savefig(DOCS / "images" / "posterior.png", metadata={"Software": None})
        plt.close("all")
    if "between.png" in asked:
        between.make(DOCS / "images" / "between.png")
    if "front.png" in asked:
        front.make(DOCS / "images" / "front.png")
    if "geometry.png" in asked:
        geometry.make(DOCS / "images" / "geometry.png")
    if drawn := [name for name in asked if name in FROM_REPORT]:
        from_results(drawn)
