"""Mathematics as MathML, converted while building: no script, no font, no network to read it.

TeX that math-core does not know is a warning, and warnings fail the build.
"""

from docutils import nodes
from math_core import LatexError, LatexToMathML
from sphinx.util import logging

logger = logging.getLogger(__name__)
converter = LatexToMathML(fancy_error=False)


def convert(node, displaystyle):
    """Return the MathML of a node's TeX."""
    try:
        return converter.convert_with_local_state(node.astext(), displaystyle=displaystyle)
    except LatexError as error:
        logger.warning("%s", error, location=node)
        return ""


def visit_inline(translator, node):
    """Write mathematics within a line, which the docutils writer has no children to visit for."""
    translator.body.append(convert(node, displaystyle=False))
    raise nodes.SkipNode


def visit_block(translator, node):
    """Write mathematics on lines of its own, scrollable where it is wider than the page."""
    translator.body.append(f'<div class="math">{convert(node, displaystyle=True)}</div>')
    raise nodes.SkipNode


def setup(app):
    """Register the renderer; `html_math_renderer` names it."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
