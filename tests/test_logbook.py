import importlib.util
import sys

import numpy as np
import pytest

for package in ("pydantic", "torch"):
    pytest.importorskip(package, reason="the extra sim is not installed")

from mpt.config import ConfigError, RunConfig
from mpt.federation.metrics import confusion_matrix, score
from mpt.federation.rows import Row
from mpt.logbook import track
from mpt.methods import Cost

SCORES = score(confusion_matrix(np.array([0, 1, 1]), np.array([0, 1, 0]), 2), 0)
ROW = Row(0, 5, "mpt:in-span", "mahalanobis", SCORES, 1.5, Cost(), Cost(), {"alpha": 0.25}, None)


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_what_is_not_installed_is_named(name, tmp_path, monkeypatch):
    for module in [m for m in sys.modules if m.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=f"^track: {name} is not installed, pip install {name} brings it$"):
        track(name, RunConfig(), tmp_path)


def test_what_is_no_tracker_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"^track: 'wandb', should be tensorboard or mlflow$"):
        track("wandb", RunConfig(), tmp_path)
    with pytest.raises(ConfigError, match=r"^track: tensorboard writes into the results' folder, should come with"):
        track("tensorboard", RunConfig(), None)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_has_the_scores_and_notes_of_every_method(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415

    tracker = track("tensorboard", RunConfig(), tmp_path)
    tracker(0, 4, [])
    tracker(0, 5, [ROW])
    tracker.close()
    events = EventAccumulator(str(tmp_path / "tensorboard" / "seed-0" / "mpt-in-span" / "mahalanobis"))
    events.Reload()
    assert {"rare_f1", "alpha", "prototype_distance", "others_accuracy"} <= set(events.Tags()["scalars"])
    (point,) = events.Scalars("rare_f1")
    assert (point.step, point.value) == (5, pytest.approx(2 / 3))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="mlflow is not installed")
def test_mlflow_has_a_run_a_seed(tmp_path, monkeypatch):
    import mlflow  # noqa: PLC0415

    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.chdir(tmp_path)
    tracker = track("mlflow", RunConfig(), None)
    tracker(0, 5, [ROW])
    tracker(1, 5, [ROW])
    tracker.close()
    runs = mlflow.search_runs(experiment_names=["mpt"])
    assert sorted(runs["params.seed"]) == ["0", "1"]
    assert runs["metrics.mpt-in-span.mahalanobis.rare_f1"].tolist() == pytest.approx([2 / 3, 2 / 3])
