"""Every link of a built site that leads into the site itself: its page is there, and so is its place on the page.

python docs/check_links.py docs/_build/html
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links of a page and the names that others may lead to."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[str] = []
        self.names: set[str] = {"", "top"}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """As HTMLParser calls it."""
        given = dict(attrs)
        self.names |= {str(given[key]) for key in ("id", "name") if given.get(key)}
        wanted = {"a": "href", "link": "href", "img": "src", "script": "src", "source": "src"}.get(tag)
        if wanted and given.get(wanted):
            self.links.append(str(given[wanted]))


def broken(site: Path) -> list[str]:
    """A line for each link that leads nowhere."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        for link in dict.fromkeys(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                found.append(f"{path.relative_to(site)}: {link}: no such file")
            elif target in pages and unquote(parts.fragment) not in pages[target].names:
                found.append(f"{path.relative_to(site)}: {link}: no such place on that page")
    return found


if __name__ == "__main__":
    lines = broken(Path(sys.argv[1]).resolve())
    print(*lines, sep="\n")
    print(f"{len(lines)} broken links" if lines else "all links lead somewhere")
    sys.exit(bool(lines))
