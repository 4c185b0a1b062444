"""Sphinx: pages in MyST, executed while building, readable without a network."""

import re
import sys
from pathlib import Path

import membptt

sys.path.insert(0, str(Path(__file__).parent))  # for mathml, beside this file

project = "membptt"
author = "The membptt developers"
copyright = "The membptt developers"
version = release = membptt.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml"]
exclude_patterns = ["_build", "_templates"]
default_role = "code"  # docstrings write `name` with single backticks

# A cell that raises fails the build; what a page shows is what this version does.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 60
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # types stand in the docstrings, with shapes and units
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

html_theme = "furo"
html_static_path = ["_static"]
templates_path = ["_templates"]
html_css_files = ["pages.css"]
html_title = f"membptt {release}"
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False


def escape_letters(app, what, name, obj, options, lines):
    """Keep a description that is a letter alone ("H.") from being read as a numbered list."""
    lines[:] = [re.sub(r"^(\s*[A-Z])\.", r"\1\\.", line) for line in lines]


def setup(app):
    """Connect before napoleon, whose priority is 500."""
    app.connect("autodoc-process-docstring", escape_letters, priority=400)
