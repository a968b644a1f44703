"""Sphinx settings."""

import importlib.metadata
import pathlib
import shutil
import sys

from docutils import nodes
from latex2mathml.converter import convert

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.machinery.figures import style  # noqa: E402

project = "fisher8_jax"
author = "The fisher8_jax authors"
copyright = "2026, the fisher8_jax authors"  # noqa: A001, Sphinx wants this name
release = importlib.metadata.version("fisher8_jax")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3

html_math_renderer = "mathml"
html_theme = "furo"
html_title = "fisher8_jax"
html_static_path = ["_static"]
html_css_files = ["custom.css"]

default_role = "code"  # `name` in a docstring is code, as in Markdown
napoleon_use_ivar = True

autodoc_member_order = "bysource"
autodoc_typehints = "none"
add_module_names = False
nitpicky = False

exclude_patterns = ["_build", "gallery_source"]


# Every picture of the gallery looks like those of the pages. The context is kept: one that nobody
# holds is closed at once.
_in_style = style()
_in_style.__enter__()

# The programs are run while building, so their output and pictures are always true. Pages of
# programs that were renamed since the last build are none of the site.
shutil.rmtree(pathlib.Path(__file__).parent / "gallery", ignore_errors=True)
sphinx_gallery_conf = {
    "examples_dirs": "gallery_source",
    "gallery_dirs": "gallery",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "show_memory": False,
    "write_computation_times": False,
    "plot_gallery": True,
    "run_stale_examples": True,  # what they call may have changed, though they did not
    # By its name: Sphinx keeps settings in a file, which functions of this one cannot go into.
    "reset_modules": ("gallery_reset.forget_programs",),
    "reset_modules_order": "after",
}
sys.path.insert(0, str(pathlib.Path(__file__).parent))


def formulas_are_literal(app, what, name, obj, options, lines):
    """Shows an indented block below a line of text as it is typed, as Markdown would."""
    result = []
    for index, line in enumerate(lines):
        above = [text for text in lines[:index] if text.strip()][-1:]
        starts_block = (
            line.startswith("    ")
            and index > 0
            and not lines[index - 1].strip()
            and above
            and not above[0].startswith(" ")
        )
        result += ["::", "", line] if starts_block else [line]
    lines[:] = result


def math_inline(translator, node):
    """Formulas as MathML, which browsers draw by themselves: no script, no other site."""
    translator.body.append(convert(node.astext(), display="inline"))
    raise nodes.SkipNode


def math_block(translator, node):
    """A displayed formula; the style sheet lets a wide one scroll."""
    translator.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


_trees: dict[tuple, str] = {}


def one_tree_per_depth(app, pagename, templatename, context, doctree):
    """Makes the navigation of the source listings once: it depends on their depth alone."""
    if not pagename.startswith("_modules/"):
        return
    make = context["toctree"]

    def tree(**options):
        key = (pagename.count("/"), *sorted(options.items()))
        if key not in _trees:
            _trees[key] = make(**options)
        return _trees[key]

    context["toctree"] = tree


def setup(app):
    app.connect("html-page-context", one_tree_per_depth, priority=100)  # before the theme asks
    app.add_html_math_renderer("mathml", (math_inline, None), (math_block, None))
    # Before napoleon, which turns sections into fields.
    app.connect("autodoc-process-docstring", formulas_are_literal, priority=100)
