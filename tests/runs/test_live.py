"""A bar in a notebook's cell; tests/test_notebooks.py has a real kernel's."""

import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.report.simulate import simulate
from mpt.runs import live, scenario
from mpt.runs.config import make_config
from mpt.runs.live import NotebookBar, notebook_display
from tests.runs.test_scenario import SCENARIO, small

SETTINGS = {
    "dataset": "road?train=12&test=4", "image_size": 28, "vehicles": 3, "rounds": 2, "depart_at": 1, "eval_every": 1,
    "epochs": 1, "batch_size": 16, "methods": ("frozen", "mpt"), "per_class": 12,
}  # fmt: skip


class Screen:
    """What a cell shows: every bundle that it was given."""

    def __init__(self):
        self.seen = []

    def __call__(self, bundle, *, raw, display_id=None):
        assert raw
        self.seen.append(bundle)
        return self

    def update(self, bundle, *, raw):
        self(bundle, raw=raw)


@pytest.fixture
def screen(monkeypatch):
    made = Screen()
    monkeypatch.setattr(live, "EVERY", 0.0)
    return made


def test_it_is_shown_in_a_kernel_alone(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert notebook_display() is None, "nobody has imported IPython"
    for shell, found in ((None, False), (SimpleNamespace(), False), (SimpleNamespace(kernel=object()), True)):
        running = SimpleNamespace(get_ipython=lambda shell=shell: shell, display=SimpleNamespace(display=print))
        monkeypatch.setitem(sys.modules, "IPython", running)
        assert (notebook_display() is print) == found


def test_a_bar_begins_counts_and_ends(screen):
    with NotebookBar("a <run>", 4, screen) as bar:
        bar.step(1, "round 1/4")
        bar.step(2, "round 2/4", "F1: mpt 0.500")
        bar.step(4, "round 4/4")
    first, one, two, last, end = (shown["text/html"] for shown in screen.seen)
    assert "a &lt;run&gt;: reading" in first
    assert "value" not in first
    assert 'value="1" max="4"' in one
    assert "left" not in one
    assert "s left" in two
    assert "F1: mpt 0.500" in last
    assert ("s left" in last, "done after" in end) == (False, True)
    assert screen.seen[-1]["text/plain"].startswith("a <run>: done after ")


def test_a_bar_that_is_stopped_says_so(screen):
    def stopped():
        with NotebookBar("a run", 4, screen) as bar:
            bar.step(1, "round 1/4")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert "a run: stopped after" in screen.seen[-1]["text/plain"]
    assert 'value="1" max="4"' in screen.seen[-1]["text/html"]


def test_updates_are_seldom(monkeypatch):
    monkeypatch.setattr(live, "EVERY", 3600.0)
    screen = Screen()
    with NotebookBar("a run", 100, screen) as bar:
        for number in range(100):
            bar.step(number, "x")
    assert len(screen.seen) <= 3


def test_a_simulation_shows_it_unless_told_otherwise(screen, monkeypatch):
    monkeypatch.setattr("mpt.report.simulate.notebook_display", lambda: screen)
    simulate(make_config(SETTINGS))
    lines = [shown["text/plain"] for shown in screen.seen]
    assert [line for line in lines if "round 2/2  F1: frozen 0." in line]
    assert "done after" in lines[-1]
    screen.seen.clear()
    rounds = []
    simulate(make_config(SETTINGS), progress=False)
    simulate(make_config(SETTINGS), progress=lambda seed, number, rows: rounds.append(number))
    assert (screen.seen, rounds) == ([], [1, 2])


def test_a_scenario_shows_it_too(screen, monkeypatch, tmp_path):
    monkeypatch.setattr(scenario, "notebook_display", lambda: screen)
    (tmp_path / "mine.toml").write_text(SCENARIO.replace("rounds = 6", "rounds = 5"), encoding="utf-8")
    rounds = []
    scenario.play(small(tmp_path / "mine.toml", methods=("frozen",), eval_every=5), begin=lambda _, n: rounds.append(n))
    assert rounds == [5]
    assert 'value="5" max="5"' in screen.seen[-1]["text/html"]
    assert len(screen.seen) == 5 + 2
    assert "mine.toml on digits: done after" in screen.seen[-1]["text/plain"]
