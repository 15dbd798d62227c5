"""Runs with hostile vehicles: resumed, and replayed from their record."""

import pytest

for package in ("pandas", "torch"):
    pytest.importorskip(package, reason="the extra sim is not installed")

from mpt.federation.plan import Plan
from mpt.methods import find_method
from mpt.report.simulate import simulate
from mpt.runs.config import ConfigError, make_config
from mpt.runs.models import ModelFolder
from mpt.runs.record import Record
from mpt.runs.replay import recorded_rounds, replay
from mpt.runs.tables import Tables

from ..federation.test_engine import same, without_seconds

TRUCK = 2


def small(**settings):
    given = {
        "dataset": "road?train=20&test=5", "image_size": 28, "vehicles": 4, "remaining": 0.2, "rounds": 5,
        "depart_at": 2, "eval_every": 1, "epochs": 1, "methods": ("mpt", "mpt-x"), "device": "cpu", **settings,
    }  # fmt: skip
    return make_config(given)


def tables(folder):
    """All that is to be the same, without seconds."""
    found = Tables.read(folder)
    kept = [{k: v for k, v in row.items() if not k.endswith("_seconds")} for row in found.metrics]
    return kept, (folder / "diagnostics.csv").read_bytes(), (folder / "confusion.csv").read_bytes()


def test_a_resumed_run_with_attacks_is_the_same_bit_by_bit(tmp_path):
    """The medians by which the next round's updates are bounded are in the checkpoint."""
    config = small(attack=("boost@0", "edge(draw=1)@1"))

    class CrashError(Exception):
        pass

    def crash(seed, number, rows):
        if number == 3:
            raise CrashError

    simulate(config, out=tmp_path / "whole")
    with pytest.raises(CrashError):
        simulate(config, out=tmp_path / "again", progress=crash)
    said = []
    simulate(config, out=tmp_path / "again", say=said.append)
    assert any("it resumes after round 3 of seed 0" in line for line in said)
    assert tables(tmp_path / "again") == tables(tmp_path / "whole")
    left, right = (ModelFolder.of(tmp_path / name).read(0, 5).models["held-out"] for name in ("again", "whole"))
    assert same(left, right)


def test_a_recorded_run_with_lies_in_reports_is_replayed_bit_by_bit(tmp_path):
    config, rows = small(attack=("counts@0", "edge(draw=2)@1"), record=True), []
    simulate(config, out=tmp_path, progress=lambda _, __, some: rows.extend(some))
    methods = [find_method(name) for name in config.methods]
    again = [row for some in recorded_rounds(Record.of(tmp_path), Plan.of(config, TRUCK, 0), methods) for row in some]
    assert list(map(without_seconds, again)) == list(map(without_seconds, rows))
    assert max(row.notes["clipped"] for row in again) > 0
    done = replay(tmp_path, ("mpt", "sdc"))
    assert {series.method: found.differ for series, found in done.again.items()} == {"mpt": 0}
    assert [series.method for series in done.new] == ["sdc"]


@pytest.mark.parametrize("setting", ["attack", "aggregation"])
def test_a_file_of_ones_own_is_part_of_the_run(tmp_path, setting):
    path = tmp_path / "mine.py"
    code = (
        "class Lie:\n    def features(self, features, labels, scene):\n        return {by} * features, labels\n"
        "def rule(updates):\n    return updates.states[{by}]\n"
    )
    path.write_text(code.format(by=1))
    chosen = {"attack": (f"{path}:Lie@0",), "aggregation": f"{path}:rule"}[setting]
    config = small(methods=("frozen",), rounds=2, depart_at=1, **{setting: chosen})
    first = simulate(config, out=tmp_path / "run")
    spec = f"{path}:Lie" if setting == "attack" else chosen
    assert spec in first.manifest["files"]
    assert not simulate(config, out=tmp_path / "run").computed
    path.write_text(code.format(by=2))
    with pytest.raises(ConfigError, match=r"mine\.py:"):
        simulate(config, out=tmp_path / "run")
