"""Docstrings of this house as reStructuredText: formulas and code that are indented stay as they are written."""

import re

SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields):$")


def as_rst(lines: list[str]) -> list[str]:
    """Escape what reStructuredText would read as markup; an indented block outside a section becomes a literal one."""
    made: list[str] = []
    section = literal = False
    for line in lines:
        text = line.strip()
        indented = line.startswith("    ")
        if SECTION.match(line):
            section, literal = True, False
        elif text and not indented:
            section = literal = False
        if indented and not section and not literal and (not made or not made[-1].strip()):
            made += ["::", ""]
            literal = True
        made.append(line if literal and indented else escaped(line))
    return made


def escaped(line: str) -> str:
    """With bars, stars and underscores that are none of markup's, outside backticks."""
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(p if p.startswith("`") else re.sub(r"([|*]|(?<=\w)_(?=\W|$))", r"\\\1", p) for p in parts)


LONG = {
    r"~?(?:numpy\.)?ndarray\[tuple\[.*?\.\.\.\], ~?(?:numpy\.)?dtype\[~?(?:numpy\.)?\w+\]\]": "ndarray",
    r"~?[\w.]*_Buffer \| .*?_NestedSequence\[complex \| bytes \| str\]": "ArrayLike",
    r"~[\w.]+\.(?=\w)": "",
}
"""What NumPy's types are to Python, and what they are to a reader."""


def shorter(app, what, name, obj, options, signature, returns) -> tuple[str | None, str | None]:
    """A signature in a reader's words."""
    for long, short in LONG.items():
        signature, returns = (text and re.sub(long, short, text) for text in (signature, returns))
    return signature, returns


PAGE = re.compile(r"`docs/([\w/-]+)\.md`")


def process(app, what, name, obj, options, lines) -> None:
    """Before napoleon reads the sections. A page that a docstring names by its file becomes a link."""
    lines[:] = as_rst([PAGE.sub(r":doc:`/\1`", line) for line in lines])


def untyped(app, what, name, obj, options, lines) -> None:
    """After napoleon, which takes what stands before a colon in a property's docstring for its type: ours say none."""
    found = [i for i, line in enumerate(lines) if line.startswith(":type: ")]
    if what in ("attribute", "data", "property") and found and lines:
        said = lines.pop(found[-1]).removeprefix(":type: ")
        lines[0] = f"{said}: {lines[0]}"


def setup(app) -> dict[str, bool]:
    """As Sphinx calls it."""
    app.connect("autodoc-process-docstring", process, priority=100)
    app.connect("autodoc-process-docstring", untyped, priority=900)
    app.connect("autodoc-process-signature", shorter)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
