"""Equations as MathML, made when the site is built: no script, no font and no network in the reader's browser."""

from docutils.nodes import SkipNode
from latex2mathml.converter import convert


def inline(translator, node) -> None:
    """$x$ in a line."""
    translator.body.append(convert(node.astext()))
    raise SkipNode


def block(translator, node) -> None:
    """$$x$$ on a line of its own, with its number where it has one."""
    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    translator.body.append(f'<div class="math">{number}{convert(node.astext(), display="block")}</div>')
    raise SkipNode


def setup(app) -> dict[str, bool]:
    """As Sphinx calls it."""
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
