"""The page of settings has every one as the code has it, and no other page names one that does not exist."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra sim is not installed")
pytest.importorskip("flwr", reason="the extra fleet is not installed")

from mpt.fleet.flower.check import check
from mpt.fleet.flower.config import AppConfig, examined, settings
from mpt.fleet.flower.given import given
from mpt.fleet.flower.server_app import _MAY_CHANGE
from mpt.fleet.node import KEYS, NodeConfig

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.*")]
TEXT = (ROOT / "docs" / "reference" / "fleet-settings.md").read_text()


def rows(width):
    found = [re.fullmatch(r"\| `([a-z-]+)` \|(.*)\|", line) for line in TEXT.splitlines()]
    cells = [(row[1], *(cell.strip() for cell in row[2].split("|"))) for row in found if row]
    return [row for row in cells if len(row) == width]


def test_every_setting_of_a_run_is_in_the_table_as_the_code_has_it():
    assert rows(4) == [(s.key, f"`{s.default}`", s.should or s.kind, s.about) for s in settings()]


def test_every_setting_of_a_vehicle_too():
    assert rows(2) == list(KEYS.items())


def test_what_may_change_is_what_the_page_says():
    (sentence,) = re.findall(r"^(`state`, .*?) may change when", TEXT, flags=re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"`([a-z-]+)`", sentence)) == {name.replace("_", "-") for name in _MAY_CHANGE}


def test_the_check_prints_what_the_page_shows():
    command, printed = re.findall(r"\$ mpt fleet check -c '(.*)'\n((?:wrong: .*\n)+)", TEXT)[0]
    assert [f"wrong: {problem}" for problem in check([command]).problems] == printed.splitlines()


def commands(start):
    """What pages give to a command in quotes."""
    for page in PAGES:
        if page.is_file():
            for text in re.findall(rf"{start} '([^']*)'", page.read_text().replace("\\\n", " ")):
                yield page.name, text


def test_every_run_in_the_docs_has_settings_that_exist():
    shown = [(page, text) for page, text in commands(r"flwr run \S+ \S+ -c") if "..." not in text and "…" not in text]
    assert shown
    for page, text in shown:
        assert examined(given([text], "config"))[1] == [], (page, text)


def test_every_node_config_in_the_docs_is_right():
    shown = [(page, text) for page, text in commands("--node-config") if "..." not in text]
    assert shown
    for _, text in shown:
        NodeConfig.of(given([text], "node config"))


@pytest.mark.parametrize("page", ["how-to/deploy.md", "reference/fleet-settings.md"])
def test_settings_in_tables_are_spelled_as_flower_takes_them(page):
    """`watch_share` is a field of Python's; a run takes `watch-share`."""
    text = (ROOT / "docs" / page).read_text()
    wrong = [f.name for f in fields(AppConfig) if "_" in f.name and re.search(rf"^\| `{f.name}`", text, re.MULTILINE)]
    assert wrong == []
