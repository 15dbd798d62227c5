"""A whole run in Python: its tables, its folder, and going on where it was stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

for package in ("pandas", "torch"):
    pytest.importorskip(package, reason="the extra sim is not installed")

from PIL import Image

import mpt
from mpt.report.simulate import simulate
from mpt.runs import folder
from mpt.runs.config import ConfigError, make_config
from mpt.runs.interrupts import Stopped
from mpt.runs.tables import COLUMNS, Tables
from mpt.version import ENGINE

ROOT = Path(__file__).parents[2]
MINE = """
from __future__ import annotations
from dataclasses import dataclass, replace

@dataclass(frozen=True)
class Kept:
    prototype: object
    rounds: tuple = ()

class Mine:
    name, training, needs_departure = "mine", "held-out", True

    def depart(self, context):
        return Kept(context.prototype())

    def track(self, state, context):
        state = replace(state, rounds=(*state.rounds, context.round))
        context.note(step=len(state.rounds))
        return state, state.prototype + 0.01 * len(state.rounds)
"""


class CrashError(Exception):
    pass


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    path = tmp_path_factory.mktemp("methods") / "mine.py"
    path.write_text(MINE)
    return f"{path}:Mine"


def small(*methods, **settings):
    given = {
        "dataset": "road?train=20&test=5",
        "image_size": 28,
        "vehicles": 4,
        "remaining": 0.1,
        "rounds": 6,
        "depart_at": 2,
        "eval_every": 2,
        "epochs": 1,
        "methods": methods or ("frozen", "fedavg"),
        **settings,
    }
    return make_config(given)


def without_seconds(folder):
    """Every table that is to be the same, as text without the seconds."""
    tables = Tables.read(folder)
    seconds = ("vehicle_seconds", "server_seconds")
    kept = [{k: v for k, v in record.items() if k not in seconds} for record in tables.metrics]
    return kept, (folder / "diagnostics.csv").read_bytes(), (folder / "confusion.csv").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory, mine):
    """An undisturbed run of two seeds: config, folder, result."""
    config = small("fedavg", "fedlc", "frozen", "sdc", "mpt", mine, seeds=2)
    folder = tmp_path_factory.mktemp("whole")
    return config, folder, simulate(config, out=folder)


def test_tables_are_data_frames_and_the_files_are_the_same(whole):
    _, folder, result = whole
    assert Tables.read(folder) == result.tables
    for name in COLUMNS:
        frame = getattr(result, name)
        assert list(frame.columns)[: len(COLUMNS[name])] == list(COLUMNS[name])
        assert len(frame) == len(getattr(result.tables, name))
    metrics = result.metrics[result.metrics["class"] == "truck"].reset_index(drop=True)
    order = ["fedavg", "fedlc", "frozen", "sdc", "mpt", "mine"]
    assert metrics["method"].tolist() == 6 * order
    assert metrics["round"].tolist() == 2 * (6 * [2] + 6 * [4] + 6 * [6])
    assert metrics["seed"].tolist() == 18 * [0] + 18 * [1]
    assert metrics["f1"].between(0, 1).all()
    assert (metrics["departed"] == (metrics["round"] > 2)).all()
    free = (metrics["readout_bytes_up"] == 0).astype(bool)
    assert free.equals(metrics["readout"].eq("own") | metrics["method"].eq("mpt"))
    summary = result.summary
    assert summary["method"].tolist() == order
    last = metrics[(metrics["method"] == "mpt") & (metrics["round"] == 6)]
    assert summary.set_index("method").loc["mpt", "last_f1"] == pytest.approx(last["f1"].mean())
    departing = metrics.query("round == 2 and method == 'mpt'")["f1"]
    assert summary.set_index("method").loc["mpt", "departure_f1"] == pytest.approx(departing.mean())
    after = metrics.query("round > 2 and method == 'sdc'")
    assert summary.set_index("method").loc["sdc", "bytes_up"] == pytest.approx(after["bytes_up"].mean())
    assert summary["cost_rounds"].tolist() == summary["mean_rounds"].tolist() == 6 * [2]


def test_every_class_has_its_scores_in_every_evaluated_round(whole):
    metrics, confusion = whole[2].metrics, whole[2].confusion
    classes = whole[2].manifest["classes"]
    rows = metrics.groupby(["seed", "round", "method", "readout"])
    assert all(sorted(group["class"]) == sorted(classes) for _, group in rows)
    others = metrics[metrics["class"] != "truck"]
    assert others["bytes_up"].isna().all()
    assert (others["departed"] == 0).all()
    for (seed, number, method, readout), mine in confusion.groupby(["seed", "round", "method", "readout"]):
        table = mine.pivot_table(index="label", columns="predicted", values="count", fill_value=0)
        table = table.reindex(index=classes, columns=classes, fill_value=0)
        row = metrics[
            (metrics["seed"] == seed)
            & (metrics["round"] == number)
            & (metrics["method"] == method)
            & (metrics["readout"] == readout)
        ].set_index("class")
        for name in classes:
            hits, called, present = table.loc[name, name], table[name].sum(), table.loc[name].sum()
            assert row.loc[name, "recall"] == pytest.approx(hits / present, abs=1e-6)
            assert row.loc[name, "precision"] == pytest.approx(hits / max(called, 1), abs=1e-6)
            assert row.loc[name, "f1"] == pytest.approx(2 * hits / max(called + present, 1), abs=1e-6)
        recalls = row["recall"]
        assert row.loc["truck", "balanced_accuracy"] == pytest.approx(recalls.mean(), abs=1e-6)
        assert row.loc["truck", "others_accuracy"] == pytest.approx(recalls.drop("truck").mean(), abs=1e-6)


def test_diagnostics_have_a_row_a_round_and_one_a_method_that_notes(whole):
    frame = whole[2].diagnostics
    first = frame[frame["seed"] == 0]
    assert list(zip(first["round"], first["method"], strict=True)) == [
        (2, ""), (4, ""), (4, "mpt"), (4, "mine"), (6, ""), (6, "mpt"), (6, "mine")
    ]  # fmt: skip
    space = first[first["method"] == ""]
    assert space["drift"].iloc[0] == pytest.approx(0, abs=1e-5)
    assert (space["drift"].iloc[1:] > 0).all()
    assert space["step_rounds"].isna().tolist() == [True, False, False]
    assert space["step_rounds"].iloc[1:].tolist() == [2, 2]
    assert (space[["step_references", "step_rare"]].iloc[1:] > 0).all(axis=None)
    assert first[first["method"] == "mpt"]["remaining"].tolist() == [2, 2]
    assert first[first["method"] == "mine"]["step"].tolist() == [1, 2]
    assert frame["alpha"].notna().sum() == 4


def test_confusion_is_that_of_the_departure_and_the_last_round(whole):
    frame = whole[2].confusion
    assert set(frame["round"]) == {2, 6}
    counts = frame.groupby(["seed", "round", "method", "readout", "label"])["count"].sum()
    assert (counts == 5).all()
    assert len(counts) == 2 * 2 * 6 * 8
    metrics = whole[2].metrics
    for (seed, number, method), mine in frame.groupby(["seed", "round", "method"]):
        right = mine[mine["label"] == mine["predicted"]]["count"].sum()
        row = metrics[(metrics["seed"] == seed) & (metrics["round"] == number) & (metrics["method"] == method)]
        assert row.loc[row["class"] == "truck", "accuracy"].item() == pytest.approx(right / 40)


def test_the_folder_says_where_its_numbers_come_from(whole):
    _, folder, result = whole
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest == result.manifest
    assert manifest["finished"] is True
    assert (manifest["mpt"], manifest["bench"]) == (mpt.__version__, ENGINE)
    assert manifest["classes"][manifest["rare"]] == "truck"
    assert manifest["counts"] == {"train": [20] * 8, "test": [5] * 8}
    assert (manifest["vehicles"], manifest["remaining_samples"], manifest["feature_dim"]) == (4, [2, 2], 128)
    parameters = 3 * 32 * 9 + 32 * 64 * 9 + 64 * 128 * 9 + 128 * 8 + 8
    assert 4 * parameters < manifest["model_bytes"] < 4 * parameters + 8000
    assert not (folder / "checkpoint").exists()
    page = np.asarray(Image.open(folder / "samples.png"))
    assert page.shape == (8 * 30 - 2, 5 * 30 - 2 + 7 * 30, 3)
    assert sorted(p.name for p in folder.iterdir() if p.name != "report.html") == sorted(
        ["config.toml", "manifest.json", "models", "samples.png", *(f"{name}.csv" for name in COLUMNS)]
    )


@pytest.mark.parametrize("at", [(0, 1), (0, 2), (0, 3), (0, 6), (1, 5)])
def test_a_run_that_crashed_goes_on_and_ends_with_the_same_numbers(whole, tmp_path, at):
    config, folder, _ = whole

    def crash(seed, number, rows):
        if (seed, number) == at:
            raise CrashError

    with pytest.raises(CrashError):
        simulate(config, out=tmp_path, progress=crash)
    assert json.loads((tmp_path / "manifest.json").read_text())["finished"] is False
    assert not (tmp_path / "metrics.csv").exists()
    went_on, said = [], []
    simulate(config, out=tmp_path, progress=lambda *round: went_on.append(round[:2]), say=said.append)
    expected = {(0, 1): (0, 1), (0, 2): (0, 3), (0, 3): (0, 3), (0, 6): (1, 1), (1, 5): (1, 5)}[at]
    assert went_on[0] == expected
    assert len(said) == (at != (0, 1))
    assert without_seconds(tmp_path) == without_seconds(folder)


def test_a_finished_run_is_read_and_more_seeds_are_added(whole, tmp_path):
    config, folder, _ = whole
    rounds, said = [], []

    def seen(seed, number, rows):
        rounds.append((seed, number))

    one = replace(config, seeds=1)
    assert simulate(one, out=tmp_path).computed
    again = simulate(one, out=tmp_path, progress=seen)
    assert not again.computed
    assert rounds == []
    assert len(again.metrics) == 18 * 8
    both = simulate(config, out=tmp_path, progress=seen, say=said.append)
    assert rounds == [(1, number) for number in range(1, 7)]
    assert said == [f"{tmp_path} holds part of this run, it resumes with seed 1"]
    assert both.computed
    assert without_seconds(tmp_path) == without_seconds(folder)
    assert json.loads((tmp_path / "manifest.json").read_text())["remaining_samples"] == [2, 2]
    with pytest.raises(ConfigError, match="holds a run with seeds 2, not 1; choose another --out"):
        simulate(one, out=tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": 0.02}, "holds a run with lr 0.01, not 0.02"),
        ({"methods": ("frozen",)}, "holds a run with methods frozen,fedavg, not frozen"),
        ({"dirichlet": 1.0}, "holds a run with dirichlet unset, not 1.0"),
        ({"per_class": 10}, "holds a run with per_class 1000, not 10"),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_another_run_in_the_folder_is_left_alone(tmp_path, change, message, finished):
    def crash(*_):
        raise CrashError

    config = small(rounds=3)
    if finished:
        simulate(config, out=tmp_path)
    else:
        with pytest.raises(CrashError):
            simulate(config, out=tmp_path, progress=crash)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    other = replace(config, **change)
    with pytest.raises(ConfigError) as caught:
        simulate(other, out=tmp_path)
    assert str(caught.value) == f"out: {tmp_path} {message}; choose another --out, or pass --overwrite"
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_overwriting_begins_anew_and_leaves_other_files(tmp_path):
    simulate(small(rounds=3), out=tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    rounds = []
    result = simulate(small(rounds=4), out=tmp_path, overwrite=True, progress=lambda *r: rounds.append(r[1]))
    assert rounds == [1, 2, 3, 4]
    assert result.metrics["round"].max() == 4
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_file_that_is_of_no_run_is_not_written_over(tmp_path):
    (tmp_path / "metrics.csv").write_text("mine")
    with pytest.raises(ConfigError, match=r"holds a metrics\.csv that is of no run"):
        simulate(small(rounds=3), out=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.csv"]
    assert (tmp_path / "metrics.csv").read_text() == "mine"


def test_two_runs_do_not_write_to_one_folder(tmp_path):
    def second(*_):
        with pytest.raises(ConfigError, match="another process is writing to"):
            simulate(small(rounds=3), out=tmp_path, overwrite=True)

    result = simulate(small(rounds=3), out=tmp_path, progress=second)
    assert result.metrics["round"].max() == 3
    assert not simulate(small(rounds=3), out=tmp_path).computed


def test_means_are_over_the_rounds_in_which_every_method_was_read_out():
    config = small("frozen", "ldc", rounds=6, eval_every=1, slow_every=2)
    result = simulate(config)
    metrics = result.metrics[result.metrics["class"] == "truck"]
    after = metrics.query("round > 2 and method == 'frozen'")
    slow = after[after["round"].isin(result.metrics.query("round > 2 and method == 'ldc'")["round"])]
    assert len(slow) < len(after)
    summary = result.summary.set_index("method")
    assert summary.loc["frozen", "mean_f1"] == pytest.approx(slow["f1"].mean())
    assert summary["mean_rounds"].tolist() == [2, 2]
    assert summary["cost_rounds"].tolist() == [4, 2]
    assert result.figures.mean_over == (
        "2 of 4 rounds that were read out after the departure, those in which every row was (4, 6)"
    )


def test_a_users_file_that_changed_is_another_run(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    config = small(f"{path}:Mine", rounds=3)
    simulate(config, out=tmp_path / "out")
    path.write_text(MINE.replace("0.01", "0.02"))
    with pytest.raises(ConfigError, match="has changed since the run in"):
        simulate(config, out=tmp_path / "out")


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "both"])
def test_a_damaged_checkpoint_is_said_and_not_used(whole, tmp_path, damage):
    config, folder, _ = whole

    def crash(seed, number, rows):
        if number == 5:
            raise CrashError

    with pytest.raises(CrashError):
        simulate(config, out=tmp_path, progress=crash)
    older, newer = sorted((tmp_path / "checkpoint").iterdir())
    data = newer.read_bytes()
    if damage == "flip":
        newer.write_bytes(data[:-100] + bytes([data[-100] ^ 1]) + data[-99:])
    else:
        newer.write_bytes(b"" if damage == "empty" else data[: len(data) // 2])
    if damage == "both":
        older.write_bytes(b"nothing")
    rounds, said = [], []
    simulate(config, out=tmp_path, progress=lambda *r: rounds.append(r[:2]), say=said.append)
    assert said[0].startswith(f"{newer} cannot be used (")
    assert rounds[0] == ((0, 1) if damage == "both" else (0, 3))
    assert without_seconds(tmp_path) == without_seconds(folder)


def test_a_folder_that_cannot_be_understood_is_left_alone(tmp_path):
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ConfigError, match="holds a run that cannot be read"):
        simulate(small(), out=tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    (tmp_path / "config.toml").write_text("speed = 3")
    with pytest.raises(ConfigError, match=r"cannot be read \(speed: there is no such setting"):
        simulate(small(), out=tmp_path)


def test_what_cannot_be_pickled_is_said_once_and_the_run_goes_on(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE.replace("Kept(context.prototype())", "Kept(context.prototype(), (lambda: 1,))"))
    said = []
    result = simulate(small(f"{path}:Mine"), out=tmp_path / "out", say=said.append)
    assert len(result.metrics) == 3 * 8
    assert len(said) == 1
    assert said[0].startswith("what a method keeps cannot be pickled (")


def test_stopping_says_how_far_it_came(tmp_path):
    def stop(seed, number, rows):
        if number == 3:
            raise KeyboardInterrupt

    with pytest.raises(
        Stopped, match=r"^stopped after round 3 of seed 0; with --out DIR the same command would resume"
    ):
        simulate(small(), progress=stop)
    with pytest.raises(Stopped, match=r"^stopped after round 3 of seed 0; the same command resumes from there$"):
        simulate(small(), out=tmp_path, progress=stop)
    rounds = []
    simulate(small(), out=tmp_path, progress=lambda *r: rounds.append(r[1]), say=lambda _: None)
    assert rounds == [4, 5, 6]


def test_a_keyboard_interrupt_that_python_drops_stops_the_run_after_the_round():
    def press(seed, number, rows):
        if number == 2:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1)
            except KeyboardInterrupt:
                pass

    with pytest.raises(Stopped, match=r"^stopped after round 2 of seed 0"):
        simulate(small(), progress=press)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def command(config, out):
    settings = [
        f"--{k.replace('_', '-')}={','.join(v) if isinstance(v, tuple) else v}"
        for k, v in config.items()
        if not isinstance(v, bool)
    ]
    return [sys.executable, "-m", "mpt", "run", *settings, "--out", str(out)]


DIES_WHEN_A_FILE_IS_REPLACED = """
import os, signal, sys
from fnmatch import fnmatch
when, which = sys.argv[1:3]
del sys.argv[1:3]
replace = os.replace
def replace_and_die(partial, path):
    dies = fnmatch(str(path), which)
    if not dies or when == "after":
        replace(partial, path)
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
os.replace = replace_and_die
"""
DYING = (
    DIES_WHEN_A_FILE_IS_REPLACED
    + """
import runpy
runpy.run_module("mpt", run_name="__main__", alter_sys=True)
"""
)


def begin(config, out, dies=None):
    given = {k: v for k, v in asdict(config).items() if v not in (None, "")}
    line = command(given, out)
    if dies is not None:
        line[1:3] = ["-c", DYING, *dies]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ, cwd=ROOT)


@pytest.mark.slow
def test_killed_at_any_moment_and_started_again_it_ends_with_the_same_numbers(tmp_path, mine):
    config = small("fedavg", "fedlc", "frozen", "sdc", "mpt", mine, seeds=2)
    out, undisturbed = tmp_path / "out", tmp_path / "undisturbed"
    mpt.simulate(config, out=undisturbed)
    for dies in (
        ("before", "*manifest.json"),
        ("after", "*manifest.json"),
        ("after", "*checkpoint/0000-000002*"),
        ("before", "*checkpoint/0000-000004*"),
        ("after", "*checkpoint/0001-000002*"),
        ("before", "*metrics.csv"),
    ):
        process = begin(config, out, dies)
        _, said = process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL, (dies, said)
        assert not (out / "metrics.csv").exists()
    process = begin(config, out)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert "holds part of this run, it resumes " in said
    assert without_seconds(out) == without_seconds(undisturbed)
    assert not [p for p in out.rglob("*") if "partial" in p.name or "checkpoint" in p.name]


@pytest.mark.slow
def test_ctrl_c_is_one_sentence_and_exit_code_130(tmp_path):
    process = begin(small(rounds=60, seeds=9), tmp_path / "out")
    until = time.monotonic() + 120
    while not any((tmp_path / "out").glob("checkpoint/*.checkpoint")) and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    try:
        printed, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert said.splitlines()[-1].startswith("mpt: stopped after round ")
    assert said.endswith("the same command resumes from there\n")
    assert "Traceback" not in said
    assert printed == ""


def test_a_run_that_was_killed_as_it_was_extended_is_finished_again(tmp_path, monkeypatch):
    simulate(small(), out=tmp_path)
    metrics = (tmp_path / "metrics.csv").read_bytes()
    write = folder.write_atomically

    def killed(path, *content):
        if path.name == "config.toml":
            raise KeyboardInterrupt
        write(path, *content)

    with monkeypatch.context() as patch:
        patch.setattr(folder, "write_atomically", killed)
        with pytest.raises(KeyboardInterrupt):
            simulate(small(seeds=2), out=tmp_path)
    assert not json.loads((tmp_path / "manifest.json").read_text())["finished"]
    result = simulate(small(), out=tmp_path)
    assert json.loads((tmp_path / "manifest.json").read_text())["finished"]
    assert (tmp_path / "metrics.csv").read_bytes() == metrics
    assert result.tables.seeds == (0,)
