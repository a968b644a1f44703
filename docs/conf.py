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
]
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "fisher8_jax"

autodoc_member_order = "bysource"
autodoc_typehints = "none"
add_module_names = False
nitpicky = False

exclude_patterns = ["_build"]
