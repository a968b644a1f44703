"""Sphinx settings."""

import importlib.metadata

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

html_theme = "furo"
html_title = "fisher8_jax"

default_role = "code"  # `name` in a docstring is code, as in Markdown
napoleon_use_ivar = True

autodoc_member_order = "bysource"
autodoc_typehints = "none"
add_module_names = False
nitpicky = False

exclude_patterns = ["_build", "gallery_source"]

# The programs are run while building, so their output and pictures are always true.
sphinx_gallery_conf = {
    "examples_dirs": "gallery_source",
    "gallery_dirs": "gallery",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "show_memory": False,
    "plot_gallery": True,
}


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


def setup(app):
    # Before napoleon, which turns sections into fields.
    app.connect("autodoc-process-docstring", formulas_are_literal, priority=100)
