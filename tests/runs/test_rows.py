"""Rows that are not among the default ones, from end to end on digits."""

import pytest

for package in ("pandas", "torch"):
    pytest.importorskip(package, reason="the extra sim is not installed")

from mpt.runs.config import make_config
from mpt.runs.simulate import simulate

CALIBRATED = "ccvr(shrink=20, rectify=True, standardise=True, fresh=True, virtual=50, epochs=2)"
ROWS = ("mean-shift", "dpcr", "dpcr:ncm", "stop-at-departure", CALIBRATED, "frozen", "oracle-train")


def test_they_run_and_follow_the_class(tmp_path):
    config = make_config(
        {
            "dataset": "digits", "rare": "8", "vehicles": 4, "rounds": 4, "depart_at": 2, "eval_every": 1, "epochs": 1,
            "methods": ROWS,
        }
    )  # fmt: skip
    metrics = simulate(config, out=tmp_path).metrics
    rare = metrics[metrics["class"] == "8"]
    assert set(rare["method"]) == set(ROWS)
    own = rare[rare["readout"] == "own"]
    assert sorted(set(own["method"])) == sorted(["dpcr", CALIBRATED])
    last = rare[rare["round"] == 4].set_index("method")
    for method in ("mean-shift", "dpcr", "dpcr:ncm", "stop-at-departure"):
        assert last.loc[method, "f1"] > 0.5 > last.loc["frozen", "f1"]
    for method in ("mean-shift", "dpcr:ncm"):
        assert last.loc[method, "prototype_distance"] < 0.5 * last.loc["frozen", "prototype_distance"]
    stopped = metrics[(metrics["method"] == "stop-at-departure") & (metrics["round"] > 2)]
    assert (stopped.groupby("class")["f1"].nunique() == 1).all()
    assert last.loc["mean-shift", "bytes_up"] < last.loc["dpcr:ncm", "bytes_up"] < last.loc["dpcr", "bytes_up"]
