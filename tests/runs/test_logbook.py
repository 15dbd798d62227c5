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
from mpt.runs.logbook import scalars, track

SCORES = score(confusion_matrix(np.array([0, 1, 1]), np.array([0, 1, 0]), 2), [0])
ROW = Measurement(0, 5, "mpt:in-span", "mahalanobis", 0, True, SCORES, 1.5, Cost(), Cost(), {"alpha": 0.25}, None)


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_what_is_not_installed_is_named(name, tmp_path, monkeypatch):
    for module in [m for m in sys.modules if m.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=f"^track: {name} is not installed, pip install {name} brings it$"):
        track(name, RunConfig(), tmp_path)


def test_what_is_no_logger_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"^track: 'wandb', should be tensorboard or mlflow$"):
        track("wandb", RunConfig(), tmp_path)
    with pytest.raises(ConfigError, match=r"^track: tensorboard writes into the results' folder, should come with"):
        track("tensorboard", RunConfig(), None)


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

    logger = track("tensorboard", RunConfig(), tmp_path)
    logger(0, 4, [])
    logger(0, 5, [ROW])
    logger.close()
    events = EventAccumulator(str(tmp_path / "tensorboard" / "seed-0" / "mpt-in-span" / "mahalanobis"))
    events.Reload()
    names = {"f1", "precision", "recall", "alpha", "prototype_distance", "others_accuracy"}
    assert names <= set(events.Tags()["scalars"])
    (point,) = events.Scalars("f1")
    assert (point.step, point.value) == (5, pytest.approx(2 / 3))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="mlflow is not installed")
def test_mlflow_has_a_run_a_seed(tmp_path, monkeypatch):
    import mlflow  # noqa: PLC0415

    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.chdir(tmp_path)
    logger = track("mlflow", RunConfig(), None)
    logger(0, 5, [ROW])
    logger(1, 5, [ROW])
    logger.close()
    runs = mlflow.search_runs(experiment_names=["mpt"])
    assert sorted(runs["params.seed"]) == ["0", "1"]
    assert runs["metrics.mpt-in-span.mahalanobis.f1"].tolist() == pytest.approx([2 / 3, 2 / 3])
