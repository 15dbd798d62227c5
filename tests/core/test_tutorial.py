"""The code in docs/tutorials/library.md runs and prints what stands there."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "tutorials" / "library.md"


def test_the_code_runs_and_prints_what_it_says(capsys):
    steps = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    assert len(steps) == 7
    names = {}
    for code, expected in steps:
        exec(code, names)
        assert capsys.readouterr().out == expected
