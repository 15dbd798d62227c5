"""What lies beside docs/: the exhibits, which the site shows as pages of their own, and links to them."""

import re
import shutil
from pathlib import Path

from sphinx.errors import ExtensionError

ROOT = Path(__file__).parents[2]
EXHIBITS = ROOT / "results" / "paper"
LINKS = {
    r"<header>": '<p class="jump"><a href="../index.html">MPT: the documentation</a></p>',
    r'<section id="table2"><h2>[^<]*</h2>': '<p class="caption">Why our numbers differ from the paper&rsquo;s: '
    '<a href="../explanation/claims.html#why-some-differ">claims</a>, <a href="../explanation/regimes.html">regimes of '
    "training</a>.</p>",
}
"""What the page of exhibits gets on the site, behind these places."""
SHOWN = {".html", ".csv", ".tex", ".svg", ".md"}


def to_exhibits(app, docname, source) -> None:
    """A link to an exhibit's file, which works in the repository, leads to its place on the page of all exhibits."""
    up = "../" * docname.count("/")

    def link(found: re.Match[str]) -> str:
        place = f"#{found[2]}" if found[3] == "md" else ""
        return f'<a class="reference internal" href="{up}paper/index.html{place}">{found[1]}</a>'

    source[0] = re.sub(r"\[([^\]]+)\]\((?:\.\./)+results/paper/([\w-]+)\.(md|html)\)", link, source[0])


def copy_exhibits(app, error) -> None:
    """results/paper as a part of the site."""
    if error is None and app.builder.format == "html":
        target = Path(app.outdir) / "paper"
        target.mkdir(exist_ok=True)
        for path in EXHIBITS.iterdir():
            if path.suffix in SHOWN:
                shutil.copy(path, target)
        page = target / "index.html"
        page.write_text(linked(page.read_text(encoding="utf-8")), encoding="utf-8")


def linked(page: str) -> str:
    """The page of exhibits with links into the site, which it does not have where it lies alone."""
    for place, link in LINKS.items():
        found = re.findall(place, page)
        if len(found) != 1:
            raise ExtensionError(f"{EXHIBITS / 'index.html'}: has {len(found)} of {place!r}, should have one")
        page = page.replace(found[0], found[0] + link)
    return page


def setup(app) -> dict[str, bool]:
    """As Sphinx calls it."""
    app.connect("source-read", to_exhibits)
    app.connect("build-finished", copy_exhibits)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
