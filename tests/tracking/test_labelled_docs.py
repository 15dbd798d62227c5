"""The code in docs/how-to/any-devices.md runs and prints what stands there."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "any-devices.md"


def test_the_code_runs_and_prints_what_it_says(tmp_path, monkeypatch, capsys):
    text = PAGE.read_text()
    story, keeping = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    (printed,) = re.findall(r"^It prints:\n\n```text\n(.*?)```", text, flags=re.DOTALL | re.MULTILINE)
    names = {}
    exec(story, names)
    assert capsys.readouterr().out == printed
    before = names["tracker"].to_bytes()
    monkeypatch.chdir(tmp_path)
    exec(keeping, names)
    assert names["tracker"].to_bytes() == before


def test_the_example_is_there():
    text = PAGE.read_text()
    (folder,) = set(re.findall(r"`(examples/[a-z_]+)`", text))
    assert (PAGE.parents[2] / folder / "play.py").is_file()
