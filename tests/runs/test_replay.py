"""A recorded run, and methods replayed on its record: the run's own numbers again, and new rows beside them."""

import json
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

for package in ("pandas", "torch", "typer"):
    pytest.importorskip(package, reason="the extra sim is not installed")

import torch
from typer.testing import CliRunner

from mpt.base.extensions import digest
from mpt.base.seeds import Series
from mpt.cli.main import app
from mpt.federation.plan import Plan
from mpt.methods import METHODS, MethodError, find_method
from mpt.report.simulate import simulate
from mpt.runs.config import ConfigError
from mpt.runs.errors import RecordError, RunError
from mpt.runs.reader import read_run
from mpt.runs.record import Record
from mpt.runs.replay import recorded_rounds, replay
from tests.runs.test_simulate import DIES_WHEN_A_FILE_IS_REPLACED
from tests.runs.test_simulate import small as unrecorded

EXAMPLE = f"{Path(__file__).parents[2] / 'examples' / 'my_method.py'}:MyMethod"
OWN = (
    "fedavg", "fedlc", "ccvr", "icarl", "sdc", "ldc:all", "dpcr", "mpt", "mpt-lite", "oracle", "oracle-train", "live",
    "stop-at-departure",
)  # fmt: skip


def small(*methods, **settings):
    return unrecorded(*methods, **{"record": True, **settings})


def call(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def numbers(row):
    """All that a row says but for seconds, bit by bit."""
    scores = {name: np.asarray(value).tolist() for name, value in vars(row.scores).items()}
    sent = [(c.bytes_up, c.bytes_down, c.messages) for c in (row.cost, row.readout_cost)]
    what = row.seed, row.round, row.method, row.readout, row.departing, row.gone
    return what, scores, row.prototype_distance, row.span_errors, sent, row.notes, row.drift, row.step


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A run of all trainings in which one vehicle leaves and one joins after the departure: settings, folder, rows."""
    events, readout = "leave 0 after 3, join 1 at 5", ("mahalanobis", "euclidean")
    config = small(*OWN, seeds=2, slow_every=6, events=events, readout=readout)
    folder, rows = tmp_path_factory.mktemp("recorded"), []
    simulate(config, out=folder, progress=lambda _, __, some: rows.extend(some))
    return config, folder, rows


@pytest.fixture(scope="module")
def light(tmp_path_factory):
    """One with few methods."""
    config, folder, rows = small("mpt", "sdc", "fedavg", seeds=2), tmp_path_factory.mktemp("light"), []
    simulate(config, out=folder, progress=lambda _, __, some: rows.extend(some))
    return config, folder, rows


@pytest.fixture
def copied(recorded, tmp_path):
    shutil.copytree(recorded[1], tmp_path / "run")
    return tmp_path / "run"


def test_every_method_of_the_run_has_its_own_numbers_again_bit_by_bit(recorded):
    config, folder, rows = recorded
    again = []
    for seed in range(config.seeds):
        plan = Plan.of(config, 2, seed)
        methods = [find_method(name) for name in config.methods]
        again += [row for some in recorded_rounds(Record.of(folder), plan, methods) for row in some]
    assert [numbers(row) for row in again] == [numbers(row) for row in rows]
    assert {row.method for row in again} == set(OWN)
    assert sum(row.prototype_distance is not None for row in again) > 50


def test_methods_do_not_depend_on_who_is_replayed_beside_them(recorded):
    config, folder, rows = recorded
    alone = [
        row for some in recorded_rounds(Record.of(folder), Plan.of(config, 2, 1), [find_method("sdc")]) for row in some
    ]
    assert [numbers(r) for r in alone] == [numbers(r) for r in rows if (r.seed, r.method) == (1, "sdc")]


def test_the_record_has_what_the_engine_computed_and_no_more_files_than_rounds(recorded):
    folder = recorded[1]
    record = Record.of(folder)
    names = sorted(path.name for path in record.path.iterdir())
    assert names == sorted(
        f"{seed:04d}-{what}.npz" for seed in (0, 1) for what in ("samples", "000002", "000004", "000006")
    )
    samples = record.samples(0)
    first, last = record.round(0, 2, samples), record.round(0, 6, samples)
    assert sorted(first["held-out"].features) == [0, 1, 2, 3], "who joins later is recorded at the departure"
    assert first["held-out"] is first["continued"] is first["live"]
    assert first["held-out"] is not first["fedlc"]
    assert sorted(last["held-out"].features) == [1, 2]
    assert sorted(last["live"].features) == [1, 2, 3]
    with np.load(record.path / "0000-000006.npz") as file:
        assert {file[name].dtype for name in file if name.startswith(("features", "test0", "weight"))} == {
            np.dtype("float32")
        }
    held_out = last["held-out"]
    np.testing.assert_allclose(held_out.test[samples.test_labels == 2].mean(axis=0), held_out.test_mean)
    assert record.size == sum(path.stat().st_size for path in record.path.iterdir())


def test_recording_changes_no_number(light, tmp_path):
    config, _, rows = light
    plain = []
    simulate(replace(config, record=False), out=tmp_path, progress=lambda _, __, some: plain.extend(some))
    assert [numbers(row) for row in plain] == [numbers(row) for row in rows]
    assert not (tmp_path / "record").exists()


def same_record(one, other):
    assert len(list(Record.of(one).path.iterdir())) == len(list(Record.of(other).path.iterdir()))
    for path in Record.of(one).path.iterdir():
        with np.load(path) as mine, np.load(other / "record" / path.name) as theirs:
            assert set(mine) == set(theirs)
            for name in mine:
                np.testing.assert_array_equal(mine[name], theirs[name])


@pytest.mark.slow
@pytest.mark.parametrize("at", [(0, 2), (0, 3), (1, 4)])
def test_a_run_that_crashed_and_went_on_has_the_whole_record(light, tmp_path, at):
    config, folder, _ = light

    def crash(seed, number, rows):
        if (seed, number) == at:
            raise RuntimeError("crash")

    with pytest.raises(RuntimeError, match="crash"):
        simulate(config, out=tmp_path, progress=crash)
    simulate(config, out=tmp_path, say=lambda _: None)
    same_record(folder, tmp_path)


DIES = (
    DIES_WHEN_A_FILE_IS_REPLACED
    + """
from pathlib import Path
from mpt.runs.config import make_config, read_toml
from mpt.runs.simulate import simulate
simulate(make_config(read_toml(Path(sys.argv[1]))), out=sys.argv[2])
"""
)


@pytest.mark.slow
def test_killed_while_a_round_is_recorded_it_goes_on_with_the_whole_record(light, tmp_path):
    config, folder, _ = light
    settings, out = tmp_path / "settings.toml", tmp_path / "out"
    settings.write_text(config.to_toml())
    for dies in (("before", "*/0000-samples.npz"), ("before", "*/0000-000004.npz"), ("after", "*/0001-000002.npz")):
        line = [sys.executable, "-c", DIES, *dies, settings, out]
        done = subprocess.run(line, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
    simulate(config, out=out, say=lambda _: None)
    same_record(folder, out)
    assert not [path for path in (out / "record").iterdir() if "partial" in path.name]
    assert replay(out, ["mpt", "sdc", "fedavg"]).again[Series("sdc", "mahalanobis")].differ == 0


def test_a_new_method_is_in_the_report_and_the_runs_own_files_stay(copied):
    before = {path.name: path.read_bytes() for path in copied.glob("*.csv")}
    done = call("replay", copied, "--methods", f"mpt,{EXAMPLE},frozen")
    assert done.exit_code == 0, done.stderr
    for name in ("mpt", "mpt euclidean"):
        assert f"mpt: {name}: the run's own numbers again, in all 6 rows\n" in done.stderr
    assert any(line.split()[:2] == ["my-method", "mahalanobis"] for line in done.stdout.splitlines())
    assert {path.name: path.read_bytes() for path in copied.glob("*.csv")} == before
    run = read_run(copied)
    assert run.replayed == {"my-method": "held-out", "frozen": "held-out"}
    mine = [m for m in run.figures.metrics if m["method"] == "my-method"]
    assert sorted({(m["seed"], m["round"]) for m in mine}) == [(s, n) for s in (0, 1) for n in (2, 4, 6)]
    assert run.training_of("my-method") == "held-out"
    page = (copied / "report.html").read_text()
    assert "my-method" in page
    assert "Replayed on what the run has recorded, after it: my-method and frozen." in page
    header, *lines = (copied / "replay" / "diagnostics.csv").read_text().splitlines()
    assert "moved" in header
    assert len(lines) == 4, "one a seed and round after the departure, none for the feature space"


def test_the_run_can_be_shown_gone_on_with_and_begun_anew_after_a_replay(light, tmp_path):
    config, folder, _ = light
    copied = tmp_path / "run"
    shutil.copytree(folder, copied)
    replay(copied, ["frozen"])
    result = simulate(config, out=copied)
    assert not result.computed
    assert set(result.metrics["method"]) == {"mpt", "sdc", "fedavg"}
    more = simulate(replace(config, seeds=3), out=copied, say=lambda _: None)
    assert set(more.metrics["seed"]) == {0, 1, 2}
    assert {m["seed"] for m in read_run(copied).tables.metrics if m["method"] == "frozen"} == {0, 1}
    assert len(replay(copied, ["frozen", "sdc"]).again) == 1
    assert {m["seed"] for m in read_run(copied).tables.metrics if m["method"] == "frozen"} == {0, 1, 2}
    simulate(small("fedavg", rounds=3), out=copied, overwrite=True)
    assert not (copied / "replay").exists()
    assert len(list((copied / "record").iterdir())) == 3


def test_a_method_that_has_changed_replaces_the_earlier_one_only_when_told(copied, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(Path(EXAMPLE.rpartition(":")[0]).read_text())
    spec = f"{mine}:MyMethod"
    first = replay(copied, [spec, "frozen"]).tables
    assert {series.method for series in replay(copied, [spec]).new} == {"my-method"}
    assert read_run(copied).row_of(spec) == "my-method", "what mpt compare --method takes"
    mine.write_text(mine.read_text().replace("prototype + moved", "prototype + 2 * moved"))
    refused = call("replay", copied, "--methods", spec)
    assert refused.exit_code == 2
    assert "that was another one; --overwrite replaces it, another name keeps both" in refused.stderr
    second = replay(copied, [spec], overwrite=True).tables
    distances = [[r["prototype_distance"] for r in t.metrics if r["method"] == "my-method"] for t in (first, second)]
    assert distances[0] != distances[1]
    assert len(second.metrics) == len(first.metrics), "frozen is still there"


def test_a_row_of_the_run_that_a_method_would_change_stays(copied, tmp_path):
    mine = tmp_path / "mine.py"
    text = Path(EXAMPLE.rpartition(":")[0]).read_text().replace('"my-method"', '"sdc"')
    mine.write_text(text)
    done = call("replay", copied, "--methods", f"{mine}:MyMethod")
    assert done.exit_code == 0
    assert "mpt: sdc: 4 of the run's 6 rows differ, in F1 by up to 0." in done.stderr
    assert "mpt: sdc euclidean: 4 of the run's 6 rows differ, in F1 by up to 0." in done.stderr
    assert not (copied / "replay").exists()


def test_what_cannot_be_replayed_is_one_sentence(copied, recorded, tmp_path):
    config, _, _ = recorded
    narrow, plain = tmp_path / "narrow", tmp_path / "plain"
    (tmp_path / "failing.py").write_text(
        "class Failing:\n    name, training = 'failing', 'held-out'\n    def depart(self, context): return 1 / 0\n"
        "    def track(self, state, context): return state, context.prototype()\nclass Leaving(Failing):\n"
        "    def depart(self, context): raise SystemExit(0)\nclass Twin(Failing):\n    name = 'my-method'\n"
    )
    failing = f"{tmp_path / 'failing.py'}:Failing"
    simulate(small("mpt", rounds=3), out=narrow)
    simulate(small("mpt", rounds=3, record=False, models=False), out=plain)
    for folder, methods, message in (
        (narrow, "mpt,fedavg", "method: fedavg reads the training 'continued', which "),
        (plain, "mpt", f"replay: {plain} holds a run without a record and without models"),
        (tmp_path / "nowhere", "mpt", f"{tmp_path / 'nowhere'}: there is no such folder"),
        (narrow, "mtp", "method: 'mtp' is none, did you mean mpt?"),
        (narrow, f"{EXAMPLE},{EXAMPLE}", f"methods: {EXAMPLE!r} is there twice"),
        (narrow, f"{EXAMPLE},{failing.replace('Failing', 'Twin')}", "methods: two are called 'my-method'"),
        (narrow, failing, "method: failing: ZeroDivisionError: division by zero (failing.py, line 3)"),
        (narrow, f"{tmp_path / 'failing.py'}:Leaving", "method: failing: SystemExit: 0 (failing.py, line 6)"),
    ):
        done = call("replay", folder, "--methods", methods)
        assert done.exit_code == 2, message
        assert done.stderr.startswith(f"mpt: {message}"), done.stderr
        assert done.stderr.count("\n") == 1
    with pytest.raises(ConfigError, match="record: there is no folder to record into"):
        simulate(config)
    damaged = copied / "record" / "0001-000004.npz"
    damaged.write_bytes(damaged.read_bytes()[:-200])
    with pytest.raises(RecordError, match=r"0001-000004\.npz cannot be read"):
        replay(copied, ["frozen"])
    damaged.unlink()
    with pytest.raises(RecordError, match=r"there is no .*0001-000004\.npz"):
        replay(copied, ["frozen"])
    manifest = json.loads((narrow / "manifest.json").read_text())
    (narrow / "manifest.json").write_text(json.dumps({**manifest, "finished": False}))
    with pytest.raises(RunError, match="holds an unfinished run"):
        replay(narrow, ["mpt"])


def test_a_method_without_a_prototype_is_remarked(copied, tmp_path):
    path = tmp_path / "nan.py"
    path.write_text(
        "class Nan:\n    name, training, needs_departure = 'nan', 'held-out', True\n"
        "    def depart(self, context): pass\n"
        "    def track(self, state, context): return state, context.prototype() * float('nan')\n"
    )
    done = call("replay", copied, "--methods", f"{path}:Nan")
    assert done.exit_code == 0, done.stderr
    (said,) = [line for line in done.stderr.splitlines() if "NaN" in line]
    assert re.fullmatch(r"mpt: nan: no prototype \(NaN\) in (\d+) of \1 rows: the class is not predicted there", said)


def test_a_record_that_does_not_fit_on_the_disk_is_refused_before_training(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=400_000))
    with pytest.raises(
        ConfigError, match=r"record: will take about .* kB, but .* has 400 kB left; a larger --eval-every"
    ):
        simulate(small("mpt", "fedavg"), out=tmp_path / "out")
    assert not (tmp_path / "out" / "config.toml").exists()
    monkeypatch.undo()
    simulate(small("mpt", "fedavg"), out=tmp_path / "out")
    features, models = 200 * 128 * 4, 1 + 2 + 2
    assert 0.8 * models * features < Record.of(tmp_path / "out").size < 1.1 * models * features


def test_the_size_of_the_record_is_said_at_the_end(tmp_path):
    config = small("mpt", rounds=3)
    (tmp_path / "config.toml").write_text(config.to_toml())
    done = call("run", "--config", tmp_path / "config.toml", "--out", tmp_path / "out")
    assert done.exit_code == 0
    assert ", record (" in done.stdout
    assert "record = true" in (tmp_path / "out" / "config.toml").read_text()


def test_all_methods_that_come_with_mpt_can_be_replayed(copied):
    with pytest.raises(ConfigError, match="'mpt' is there twice"):
        replay(copied, ["mpt", "mpt"])
    found = replay(copied, list(METHODS))
    assert {series.method for series in (*found.new, *found.again)} == set(METHODS)
    assert all(again.differ == 0 for again in found.again.values())


@pytest.fixture(scope="module")
def modelled(tmp_path_factory):
    """A run without a record that has kept its models."""
    config = unrecorded("fedavg", "sdc", "mpt", "oracle-train", seeds=2, eval_every=1, slow_every=2)
    folder, rows = tmp_path_factory.mktemp("modelled"), []
    simulate(config, out=folder, progress=lambda _, __, some: rows.extend(some))
    return config, folder, rows


def test_without_a_record_the_rounds_of_the_kept_models_are_scored_without_training(modelled, tmp_path, monkeypatch):
    """The last round's numbers are the run's own; a new method and a new readout have a row there."""
    monkeypatch.setattr("mpt.federation.trainers.fast_trainer", None)
    folder = tmp_path / "run"
    shutil.copytree(modelled[1], folder)
    found = replay(folder, ["fedavg", "sdc", "mpt", EXAMPLE], readouts=["mahalanobis", "cosine"])
    assert found.rounds == (2, 6)
    own = {Series("fedavg", "own"), Series("sdc", "mahalanobis"), Series("mpt", "mahalanobis")}
    assert set(found.again) == own
    assert all((again.rows, again.differ) == (4, 0) for again in found.again.values())
    new = {(m["method"], m["readout"], m["seed"], m["round"]) for m in read_run(folder).tables.metrics} - {
        (r.method, r.readout, r.seed, r.round) for r in modelled[2]
    }
    rows = [("mpt", "cosine"), ("sdc", "cosine"), ("my-method", "cosine"), ("my-method", "mahalanobis")]
    assert new == {(*row, seed, number) for row in rows for seed in (0, 1) for number in (2, 6)}
    summaries = {s.series: s for s in read_run(folder).figures.summaries}
    assert summaries[Series("mpt", "mahalanobis")].rounds == (3, 4, 5, 6), "one round alone has no say in the mean"
    assert summaries[Series("mpt", "cosine")].mean_f1 is None
    assert "my-method" in (call("replay", folder, "--methods", EXAMPLE).stdout)


def test_what_a_method_notes_is_there_once_however_many_readouts(modelled, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(modelled[1], folder)
    replay(folder, ["mpt"], readouts=["cosine"])
    replay(folder, ["mpt", "mpt-lite"], readouts=["euclidean"])
    replay(folder, ["mpt-lite"], readouts=["cosine"])
    notes = [(r["method"], r["seed"], r["round"]) for r in read_run(folder).tables.diagnostics]
    assert len(set(notes)) == len(notes)
    assert {method for method, _, _ in notes} >= {"mpt", "mpt-lite"}


def test_two_methods_of_one_name_do_not_replace_each_other(copied, tmp_path):
    text = Path(EXAMPLE.rpartition(":")[0]).read_text()
    first, second = tmp_path / "a.py", tmp_path / "b.py"
    first.write_text(text)
    second.write_text(text.replace("prototype + moved", "prototype + 2 * moved"))
    replay(copied, [f"{first}:MyMethod"])
    with pytest.raises(MethodError, match=r"has a my-method of .*a.py:MyMethod that was another one"):
        replay(copied, [f"{second}:MyMethod"])


def test_models_are_not_read_beside_other_samples_than_the_runs(tmp_path):
    divide, folder = tmp_path / "divide.py", tmp_path / "run"
    divide.write_text(
        "import numpy as np\n\n\ndef by_turns(request):\n    places = np.arange(len(request.labels)) % 4\n"
        "    return {v: np.flatnonzero(places == v) for v in range(4)}\n"
    )
    simulate(unrecorded("mpt", "sdc", rounds=3, partition=f"{divide}:by_turns"), out=folder)
    assert replay(folder, ["frozen"]).rounds == (2, 3)
    divide.write_text(divide.read_text().replace("% 4", "% 5 % 4"))
    with pytest.raises(RunError, match=r"divide.py:by_turns has changed since the run"):
        replay(folder, ["frozen"])
    manifest = json.loads((folder / "manifest.json").read_text())
    known = {"files": {f"{divide}:by_turns": digest(divide)}, "dataset_fingerprint": "another"}
    (folder / "manifest.json").write_text(json.dumps(manifest | known))
    with pytest.raises(RunError, match=r"the samples of road.* are not those of the run"):
        replay(folder, ["frozen"])


def test_a_run_from_the_models_of_another_backbone_is_refused(modelled, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(modelled[1], folder)
    done = call("replay", folder, "--methods", "live")
    assert done.exit_code == 2
    assert "live reads the training 'live', which" in done.stderr
    model = folder / "models" / "0001-000006.pt"
    model.write_bytes(model.read_bytes()[:-4000])
    done = call("replay", folder, "--methods", "frozen")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "0001-000006.pt: cannot be read (" in done.stderr
    model.write_bytes(b"j\n")
    assert "0001-000006.pt: cannot be read (" in call("replay", folder, "--methods", "frozen").stderr
    shutil.copy(modelled[1] / "models" / "0001-000006.pt", model)
    content = torch.load(model, weights_only=True)
    content["models"][0]["head.bias"] = torch.zeros(3)
    torch.save(content, model)
    assert "a model does not fit the run's backbone" in call("replay", folder, "--methods", "frozen").stderr
    model.unlink()
    assert "0001-000006.pt: there is no such file" in call("replay", folder, "--methods", "frozen").stderr
