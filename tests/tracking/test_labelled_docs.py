"""The code in docs/how-to/any-devices.md runs and prints what stands there."""

import re
from pathlib import Path

import numpy as np
import pytest

from mpt.core.health import whiten, whitening

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


def test_what_the_page_says_of_the_expected_error(capsys):
    """In deviations: the prototype is 6 off, its faults are 7 from it, and 12 from all others, which are 10 from it."""
    (story, _) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    names = {}
    exec(story, names)
    outcome, faults = names["outcome"], names["faults"]
    readout, made = outcome.plain.readout, outcome.reconstructions["bearing fault"]
    assert made.verdict == "degraded"
    off = whiten(made.prototype - faults.mean(axis=0), whitening(readout.covariance, readout.cov_ridge))
    assert np.linalg.norm(off) == pytest.approx(6, abs=0.5)
    own, *others = readout.distances(faults).mean(axis=0)
    assert own == pytest.approx(7, abs=0.5)
    assert others == pytest.approx([12, 12, 12], abs=0.5)
    _, *apart = readout.distances(made.prototype[None])[0]
    assert apart == pytest.approx([10, 10, 10], abs=1)
    assert 0.5 * made.expected_error > 0.45 * min(apart)

    measured = story.replace("grace=2", 'grace=2, method="mpt-x"')
    answered = "labels[device], {past: embed(device, past) for past in asked.references})"
    exec(measured.replace("labels[device])", answered), names)
    assert "round 6: class bearing fault verdict: good" in capsys.readouterr().out


def test_the_example_is_there():
    text = PAGE.read_text()
    (folder,) = set(re.findall(r"`(examples/[a-z_]+)`", text))
    assert (PAGE.parents[2] / folder / "play.py").is_file()
