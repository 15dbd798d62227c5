"""The page as text: escaped, self-contained, the same every time; and the command that makes it."""

import re
from html.parser import HTMLParser
from importlib import import_module
from itertools import pairwise

import pytest

from mpt.pages.svg import decades, spaced, ticks
from mpt.report import write_report
from mpt.report.page import render
from mpt.runs.reader import read_run
from tests.report.samples import LEVELS, write_run

VOID = {"meta", "link", "img", "path", "circle", "polygon", "br"}


class Tags(HTMLParser):
    """Counts elements, and finds those that are not closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.wrong = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def parsed(page):
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert tags.wrong == []
    return tags.seen


RUNS = {
    "one seed": {},
    "five seeds": {"seeds": 5},
    "one method": {"methods": ("mpt",)},
    "all methods, two readouts": {"methods": tuple(LEVELS), "readouts": ("mahalanobis", "cosine")},
    "no method of ours": {"methods": ("mine",)},
    "references only": {"methods": ("oracle", "live")},
    "no round after": {"rounds": 15},
    "one round": {"rounds": 1, "depart_at": 1, "eval_every": 1},
    "no distances": {"distances": False},
    "two classes": {"classes": ("a", "b"), "rare": 0},
    "a hundred classes": {"classes": tuple(f"c{i}" for i in range(100)), "rare": 99},
    "unfinished": {"finished": False},
    "no image": {"image": False},
}


@pytest.mark.parametrize("case", RUNS)
def test_every_kind_of_run_gives_a_page(tmp_path, case):
    page = write_report(write_run(tmp_path, **RUNS[case])).read_text(encoding="utf-8")
    tags = parsed(page)
    assert sum(tag == "h1" for tag, _ in tags) == 1
    assert ("unfinished" in page) == (case == "unfinished")
    assert "nan" not in re.sub(
        r"[a-z]nan|nan[a-z]", "", re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL).lower()
    )
    identifiers = [attrs["id"] for _, attrs in tags if "id" in attrs]
    assert len(identifiers) == len(set(identifiers))


def test_it_needs_nothing_from_outside(tmp_path):
    page = render(read_run(write_run(tmp_path, seeds=3)))
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\(", page)
    sources = [attrs[name] for _, attrs in parsed(page) for name in ("src", "href") if name in attrs]
    assert all(source.startswith("data:") for source in sources)
    assert "default-src 'none'" in page
    assert len(page.encode()) < 500_000


def test_the_same_files_give_the_same_page(tmp_path):
    folder = write_run(tmp_path, seeds=2)
    first = write_report(folder).read_bytes()
    assert write_report(folder).read_bytes() == first
    assert sorted(p.name for p in folder.iterdir() if p.suffix in {".html", ".tmp"}) == ["report.html"]


def test_names_are_escaped(tmp_path):
    names = ("</script><script>alert(1)</script>", '<b>&"x', "it's")
    page = render(read_run(write_run(tmp_path, classes=names, rare=1, methods=("mpt", *names), rounds=20)))
    tags = parsed(page)
    assert sum(tag == "script" for tag, _ in tags) == 2
    assert not any(tag == "b" for tag, _ in tags)
    assert "<title>Class &lt;b&gt;&amp;&quot;x departed after round 15" in page
    assert not any(name.startswith("on") for _, attrs in tags for name in attrs)


def test_settings_and_the_command_that_repeats_it(tmp_path):
    page = render(read_run(write_run(tmp_path)))
    for text in (
        "mpt run --config config.toml",
        "<dt>cov_ridge</dt><dd>0.1</dd>",
        "<dt>commit</dt><dd>8daa803aaaaa</dd>",
    ):
        assert text in page


def test_ticks_and_places():
    assert ticks(0.52) == [0, 0.2, 0.4, 0.6]
    assert ticks(100, 10) == [10 * i for i in range(11)]
    assert decades(0.02, 40) == [0.01, 0.1, 1, 10, 100]
    placed = spaced([5, 5, 5, 90, 300], 10, 0, 100)
    assert sorted(placed) == placed
    assert all(b - a >= 10 - 1e-9 for a, b in pairwise(placed))
    assert min(placed) >= 0
    assert max(placed) <= 100


def test_the_command(tmp_path):
    for package in ("typer", "rich"):
        pytest.importorskip(package, reason="the extra sim is not installed")
    app = import_module("mpt.cli.main").app
    runner = import_module("typer.testing").CliRunner()
    done = runner.invoke(app, ["report", str(write_run(tmp_path / "run"))])
    assert done.exit_code == 0
    assert done.output == f"written: {tmp_path}/run/report.html\n"
    wrong = runner.invoke(app, ["report", str(tmp_path)])
    assert wrong.exit_code == 2
    assert "has no metrics.csv, should be a folder that mpt run --out has written" in " ".join(wrong.output.split())
