"""The code in docs/how-to/own-loop.md runs and prints what stands there; docs/reference/fleet.md is complete."""

import re
from dataclasses import fields
from pathlib import Path

from mpt.fleet import TrackerSettings

DOCS = Path(__file__).parents[2] / "docs"
LOOP, REFERENCE = DOCS / "how-to" / "own-loop.md", DOCS / "reference" / "fleet.md"


def test_the_code_runs_and_prints_what_it_says(tmp_path, monkeypatch, capsys):
    text = LOOP.read_text()
    story, crossing, watching, keeping, asking = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    printed = re.findall(r"^It prints:\n\n```text\n(.*?)```", text, flags=re.DOTALL | re.MULTILINE)
    names = {}
    for code, expected in zip((story, crossing, watching), printed, strict=True):
        exec(code, names)
        assert capsys.readouterr().out == expected
    before = names["tracker"].to_bytes()
    monkeypatch.chdir(tmp_path)
    exec(keeping, names)
    assert names["tracker"].to_bytes() == before
    assert (tmp_path / "fleet.db").exists()
    exec(asking, names)
    assert (names["result"].tracked, names["result"].problems) == ((names["TRUCKS"],), ())


def test_every_setting_and_decision_is_described():
    text = REFERENCE.read_text()
    assert all(f"`{field.name}`" in text for field in fields(TrackerSettings))
    house = DOCS.parent / "src" / "mpt"
    source = "".join(path.read_text() for room in ("fleet", "tracking") for path in (house / room).glob("*.py"))
    decided = set(re.findall(r'Decision\([a-z.]+, "([a-z-]+)"', source)) | {
        "joined",
        "suspected",
        "departed",
        "returned",
    }
    assert len(decided) > 15
    assert all(what in text for what in decided)
