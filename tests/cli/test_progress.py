import io

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
        self.seen, self.closed = [], False

    def __call__(self, seed, number, rows):
        self.seen.append((seed, number, len(rows)))

    def close(self):
        self.closed = True


def test_elsewhere_than_on_a_terminal_evaluated_rounds_are_a_line_each(capsys):
    logger = Logger()
    config = RunConfig(methods=("sdc", "frozen", "mpt"), rounds=4, depart_at=1, seeds=2)
    with Reporter(config, Console(file=io.StringIO()), logger) as reporter:
        for seed in (0, 1):
            for number in range(1, 5):
                reporter(seed, number, rows(seed, number, "sdc", "frozen", "mpt") if number % 2 == 0 else [])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("seed 0  round 2/4  F1 of the class  mpt 0.667  frozen 0.667  about ")
    assert lines[0].endswith(" s left")
    assert lines[-1] == "seed 1  round 4/4  F1 of the class  mpt 0.667  frozen 0.667"
    assert logger.seen[:2] == [(0, 1, 0), (0, 2, 6)]
    assert logger.closed


def test_on_a_terminal_it_is_a_bar():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    with Reporter(RunConfig(methods=("sdc",), rounds=4, depart_at=1), console) as reporter:
        reporter(0, 3, rows(0, 3, "sdc"))
    assert "seed 0  round 3/4  F1 of the class  sdc 0.667" in screen.getvalue()
    assert "3/4" in screen.getvalue()
