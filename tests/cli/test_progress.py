import io
import re
import sys

import numpy as np
import pytest

for package in ("rich", "torch"):
    pytest.importorskip(package, reason="the extra sim is not installed")

from rich.console import Console

from mpt.cli.progress import Reporter
from mpt.federation.measurement import Measurement
from mpt.federation.metrics import confusion_matrix, score
from mpt.methods import Cost
from mpt.runs.config import RunConfig


def rows(seed, number, *methods):
    scores = score(confusion_matrix(np.array([0, 1, 1]), np.array([0, 1, 0]), 2), [0])
    made = [(m, r) for m in methods for r in ("own", "cosine")]
    return [Measurement(seed, number, m, r, 0, True, scores, None, Cost(), Cost(), {}, None) for m, r in made]


class Logger:
    def __init__(self):
        self.seen, self.begun, self.closed = [], None, False

    def begin(self, manifest):
        self.begun = manifest

    def __call__(self, seed, number, rows):
        self.seen.append((seed, number, len(rows)))

    def close(self):
        self.closed = True


MANIFEST = {
    "classes": ["car", "truck"], "rare": 1, "counts": {"train": [300, 100], "test": [20, 20]}, "vehicles": 4,
    "device": "cpu", "remaining_samples": [2, 3], "image_shape": [28, 28, 3], "model_bytes": 1000,
}  # fmt: skip


def test_elsewhere_than_on_a_terminal_evaluated_rounds_are_a_line_each(capsys):
    logger = Logger()
    config = RunConfig(methods=("sdc", "frozen", "mpt"), rounds=4, depart_at=1, seeds=2)
    with Reporter(config, Console(file=io.StringIO()), logger) as reporter:
        assert "mpt: reading road" in capsys.readouterr().err, "before anything is read"
        reporter.begin(MANIFEST)
        for seed in (0, 1):
            for number in range(1, 5):
                reporter(seed, number, rows(seed, number, "sdc", "frozen", "mpt") if number % 2 == 0 else [])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 7
    assert lines[0] == "mpt: 400 training and 40 test images of 2 classes, 4 vehicles, cnn3 on cpu"
    left = "a vehicle leaves for good, with 98 of the 100 training samples of 'truck'; 2 remain on others"
    assert lines[1] == f"mpt: seed 0, round 1/4: {left}"
    assert lines[2].startswith("seed 0, round 2/4  F1 of truck  frozen 0.667  mpt 0.667  about ")
    assert lines[2].endswith(" s left")
    assert "with 97 of the 100 training samples" in lines[4]
    assert lines[-1] == "seed 1, round 4/4  F1 of truck  frozen 0.667  mpt 0.667"
    assert logger.seen[:2] == [(0, 1, 0), (0, 2, 6)]
    assert (logger.begun, logger.closed) == (MANIFEST, True)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"image_shape": [9, 128]}, "400 training and 40 test series of 9 x 128, 2 classes, 4 vehicles, cnn3 on cpu"),
        ({"image_shape": [5]}, "400 training and 40 test vectors of 5, 2 classes, 4 vehicles, cnn3 on cpu"),
        (
            {"image_shape": [5], "model_bytes": 0},
            "400 training and 40 test features of 5, 2 classes, 4 vehicles, 4 versions of a model",
        ),
    ],
)
def test_the_shape_of_what_is_no_image_is_said(changes, told, capsys):
    with Reporter(RunConfig(methods=("mpt",), rounds=4, depart_at=1), Console(file=io.StringIO())) as reporter:
        reporter.begin({**MANIFEST, **changes})
    assert capsys.readouterr().err.splitlines()[-1] == f"mpt: {told}"


def test_rounds_that_are_not_read_out_are_lines_where_they_take_long(capsys, monkeypatch):
    monkeypatch.setattr("mpt.cli.progress.SILENCE", -1.0)
    with Reporter(RunConfig(methods=("mpt",), rounds=4, depart_at=3), Console(file=io.StringIO())) as reporter:
        reporter(0, 1, [])
    assert capsys.readouterr().err.splitlines()[-1] == "round 1/4"


def test_on_a_terminal_of_80_columns_it_is_a_bar_with_the_time_left_and_f1_below():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80)
    config = RunConfig(methods=("fedavg", "frozen", "mpt", "mpt-x", "oracle-train"), rounds=4, depart_at=3)
    with Reporter(config, console) as reporter:
        reporter.begin(MANIFEST)
        reporter(0, 2, [])
        reporter(0, 3, rows(0, 3, *config.methods))
        reporter.live.refresh()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue()).replace("\r", "\n").splitlines()
    assert max(map(len, shown)) <= 80
    (bar, *_) = [line for line in shown if line.startswith("round 3/4 ")]
    assert re.fullmatch(r"round 3/4 \S{20,}.* 75% (--|\d\d):(--|\d\d) left", bar.strip())
    assert any(line.startswith("F1 of truck  fedavg 0.667  frozen 0.667  mpt 0.667") for line in shown)


class Terminal(io.StringIO):
    """One screen for both streams."""

    def isatty(self):
        return True


def test_sentences_stand_above_the_bar_of_the_same_terminal(monkeypatch):
    """Rich takes the place of standard error while its bar is there, and says that it is no terminal."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("mpt.cli.progress.note", lambda sentence: pytest.fail(f"beside the bar: {sentence}"))
    console = Console(file=screen, force_terminal=True, width=80)
    with Reporter(RunConfig(methods=("mpt",), rounds=4, depart_at=3), console) as reporter:
        reporter.begin(MANIFEST)
        for number in range(1, 5):
            reporter(0, number, [])
        reporter.say("fedavg is left out")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue()).replace("\r", "\n").splitlines()
    for told in ("400 training and 40 test", "round 3/4: a vehicle leaves for good", "fedavg is left out"):
        assert [line for line in shown if line.startswith(f"mpt: {told}")], told
