"""What lies beside docs/: the exhibits, which the site shows as pages of their own, and links to them."""

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXHIBITS = ROOT / "results" / "paper"
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


def setup(app) -> dict[str, bool]:
    """As Sphinx calls it."""
    app.connect("source-read", to_exhibits)
    app.connect("build-finished", copy_exhibits)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
