import importlib.util
import sys
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.federation.measurement import Measurement
from mpt.federation.metrics import confusion_matrix, score
from mpt.methods import Cost
from mpt.runs.config import ConfigError, RunConfig
from mpt.runs.logbook import PATIENCE, Steadfast, track
from mpt.runs.logged import keep_runs, known_runs, scalars, why

SCORES = score(confusion_matrix(np.array([0, 1, 1]), np.array([0, 1, 0]), 2), [0])
ROW = Measurement(0, 5, "mpt:in-span", "mahalanobis", 0, True, SCORES, 1.5, Cost(), Cost(), {"alpha": 0.25}, None)


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_what_is_not_installed_is_named(name, tmp_path, monkeypatch):
    for module in [m for m in sys.modules if m.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    how = "pip install tensorboard" if name == "tensorboard" else r"pip install -c constraints.txt '.\[track\]' in .*"
    with pytest.raises(ConfigError, match=f"^track: {name} is not installed, {how} brings it$"):
        track(name, RunConfig(), tmp_path, print)


def test_what_is_no_logger_is_refused(tmp_path):
    for text, sentence in (
        ("comet", r"^track: 'comet', should be tensorboard, mlflow\[:URI\] or wandb\[:PROJECT\]$"),
        ("tensorboard:x", "^track: 'tensorboard:x', tensorboard writes into the results' folder"),
        ("tensorboard", "^track: tensorboard writes into the results' folder, should come with"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            track(text, RunConfig(), None, print)


def test_what_is_logged_is_of_the_class_that_departs():
    found = scalars(ROW)
    assert {name: found[name] for name in ("f1", "precision", "recall")} == pytest.approx(
        {"f1": 2 / 3, "precision": 1, "recall": 1 / 2}  # one of its two samples is found, and nothing else taken for it
    )
    whole = {"accuracy": 2 / 3, "balanced_accuracy": 3 / 4, "others_accuracy": 1}
    assert {name: found[name] for name in whole} == pytest.approx(whole)
    assert {name: value for name, value in found.items() if name in ("prototype_distance", "alpha")} == {
        "prototype_distance": 1.5,
        "alpha": 0.25,
    }
    other = scalars(replace(ROW, departing=1, prototype_distance=None))
    assert (other["precision"], other["recall"]) == (1 / 2, 1)
    assert "prototype_distance" not in other


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_has_the_scores_and_notes_of_every_method(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415

    logger = track("tensorboard", RunConfig(), tmp_path, print)
    logger(0, 4, [])
    logger(0, 5, [ROW])
    logger.close()
    events = EventAccumulator(str(tmp_path / "tensorboard" / "seed-0" / "mpt-in-span" / "mahalanobis"))
    events.Reload()
    names = {"f1", "precision", "recall", "alpha", "prototype_distance", "others_accuracy"}
    assert names <= set(events.Tags()["scalars"])
    (point,) = events.Scalars("f1")
    assert (point.step, point.value) == (5, pytest.approx(2 / 3))


class Failing:
    """A logger whose place is down for some calls."""

    def __init__(self, down):
        self.down, self.seen, self.closed = down, [], False

    def _take(self, what):
        if self.down:
            self.down -= 1
            raise ConnectionError("nobody\nis there")
        self.seen.append(what)

    def begin(self, manifest):
        self._take("begin")

    def __call__(self, seed, number, rows):
        self._take(number)

    def finish(self, result):
        self._take("finish")

    def close(self):
        self.closed = True


def test_what_fails_is_said_once_and_logged_later():
    said, logger = [], Failing(2)
    steadfast = Steadfast(logger, "mlflow", said.append)
    steadfast.begin({})
    for number in (1, 2, 3):
        steadfast(0, number, [ROW] if number != 2 else [])
    steadfast.finish(None)
    steadfast.close()
    assert logger.seen == ["begin", 1, 3, "finish"]
    assert said == ["track: mlflow cannot be written to, the run goes on without it (ConnectionError: nobody is there)"]


def test_after_a_few_failures_it_is_tried_again_at_the_end_alone():
    said, logger = [], Failing(100)
    steadfast = Steadfast(logger, "wandb", said.append)
    for number in range(20):
        steadfast(0, number, [ROW])
    assert logger.down == 100 - PATIENCE
    steadfast.finish(None)
    assert logger.down == 100 - PATIENCE - 1
    steadfast.close()
    assert said[-1] == "track: the last 21 of this run's entries were not logged to wandb"
    assert logger.closed


def test_a_folder_remembers_its_runs(tmp_path):
    assert known_runs(None, "mlflow", "a") == known_runs(tmp_path, "mlflow", "a") == {}
    keep_runs(tmp_path, "mlflow", "a", {0: "x", 1: "y"})
    keep_runs(tmp_path, "wandb", "p", {0: "z"})
    assert known_runs(tmp_path, "mlflow", "a") == {0: "x", 1: "y"}
    assert (known_runs(tmp_path, "mlflow", "b"), known_runs(tmp_path, "wandb", "p")) == ({}, {0: "z"})
    for text in ("[]", "no", '{"mlflow": 3}', '{"mlflow": {"place": "a", "runs": {"x": 1}}}'):
        (tmp_path / "tracking.json").write_text(text)
        assert known_runs(tmp_path, "mlflow", "a") == {}


def test_no_password_is_kept_or_said(tmp_path):
    place = "http://me:secret@host:5000/x"
    assert why(ConnectionError(f"nobody at {place}, ask me@host")) == (
        "ConnectionError: nobody at http://host:5000/x, ask me@host"
    )
    keep_runs(tmp_path, "mlflow", place, {0: "x"})
    assert "secret" not in (tmp_path / "tracking.json").read_text()
    assert known_runs(tmp_path, "mlflow", place) == known_runs(tmp_path, "mlflow", "http://host:5000/x") == {0: "x"}
    keep_runs(tmp_path, "mlflow", "sqlite:////home/a@b/mlflow.db", {1: "y"})
    assert known_runs(tmp_path, "mlflow", "sqlite:////home/a@b/mlflow.db") == {1: "y"}
