"""The code in docs/reference/datasets.md runs."""

import re
from pathlib import Path

from mpt.data import LOADERS, load

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "datasets.md"


def test_the_code_runs(tmp_path, monkeypatch):
    use, own = re.findall(r"```python\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    names = {}
    exec(use, names)
    assert names["dataset"].train.images.shape == (2400, 32, 32, 3)
    (tmp_path / "docs_example.py").write_text(own)
    monkeypatch.chdir(tmp_path)
    assert load("docs_example:my_function").classes == ("car", "truck")


def test_every_loader_and_option_is_described():
    text = DOCS.read_text()
    for name, loader in LOADERS.items():
        assert f"`{name}" in text
        assert all(f"{option}=" in text or f"`{option}`" in text for option in loader.options)
