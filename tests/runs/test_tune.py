"""`mpt tune`: the same number of tries for every method, a line a try, nothing computed twice."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

for package in ("pandas", "torch", "typer"):
    pytest.importorskip(package, reason="the extra sim is not installed")

from typer.testing import CliRunner

from mpt.base.files import exclusive_lock
from mpt.base.seeds import Series
from mpt.cli.main import app
from mpt.methods import METHODS, Log, MethodError, OneOf, Uniform, find_method, find_space
from mpt.report.simulate import simulate
from mpt.runs.bench import Bench, tuning_runs
from mpt.runs.config import ConfigError
from mpt.runs.errors import OtherRunError, RecordError, RunError
from mpt.runs.record import Record
from mpt.runs.replay import replay
from mpt.runs.tries import COLUMNS, spec_of, text_of, tries_of
from mpt.runs.tune import tune
from tests.runs.test_simulate import small

OWN = """
from mpt.methods import Log, OneOf


class Shifted:
    training, needs_departure = "held-out", True
    space = {"by": OneOf((0.0, 0.5, 1.0)), "down": OneOf((False, True))}

    def __init__(self, by=0.0, down=False):
        self.name, self.by, self.down = "shifted", by, down

    def depart(self, context):
        return context.prototype()

    def track(self, state, context):
        return state, state + (-self.by if self.down else self.by)


class Broken(Shifted):
    space = {"by": Log(0.1, 10)}

    def __init__(self, by=0.0):
        super().__init__(by)
        self.name = "broken"

    def track(self, state, context):
        if self.by:
            raise ValueError("no, never\\nagain")
        return super().track(state, context)
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two recorded runs, of two seeds and of one, in one folder."""
    folder = tmp_path_factory.mktemp("runs")
    common = {"dataset": "digits", "per_class": 24, "record": True, "models": False, "lr": 0.05, "image_size": None}
    methods = ("fedavg", "mpt", "oracle-train")
    simulate(small(*methods, rare="8", seeds=2, **common), out=folder / "eight")
    simulate(small(*methods, rare="3", ridge=0.4, **common), out=folder / "three")
    return folder


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


@pytest.fixture
def counted(monkeypatch):
    """The specs that are scored."""
    specs, score = [], Bench.shares
    monkeypatch.setattr(Bench, "shares", lambda bench, spec: (specs.append(spec), score(bench, spec))[1])
    return specs


def call(*arguments):
    return CliRunner().invoke(app, ["tune", *map(str, arguments)], catch_exceptions=False)


def lines(path):
    """Those of a file of tries, without the seconds."""
    cells = [line.split(",") for line in path.read_text().splitlines()]
    return cells if not cells else [[c for i, c in enumerate(row) if i != len(row) - 2] for row in cells]


def replayed(folder, tmp_path, spec):
    """The mean F1 of a method and of oracle-train in a copy of a run, seed by seed."""
    copy = tmp_path / f"replayed-{folder.name}"
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    figures = replay(copy, [spec]).figures
    mine, theirs = (Series(name, "mahalanobis") for name in (find_method(spec).name, "oracle-train"))
    return [figures.mean(mine), figures.mean(theirs)], [figures.last(mine), figures.last(theirs)]


def content(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_try_scores_as_a_replay_does_and_the_runs_stay_as_they_are(runs, tmp_path):
    before = content(runs)
    found = tune([runs], ["mpt", "sdc"], budget=2, out=tmp_path / "tune.csv")
    last = tune([runs], ["mpt"], budget=1, out=tmp_path / "last.csv", figure="last_f1").methods[0].default
    assert content(runs) == before
    for tuned in found.methods:
        for tried in tuned.tries:
            for run in found.runs:
                (mine, theirs), at_last = replayed(run.folder, tmp_path, tuned.spec(tried))
                assert tried.shares[run.key] == np.mean([mine[seed] / theirs[seed] for seed in mine])
                if tuned.method == "mpt" and tried.number == 0:
                    assert last.shares[run.key] == np.mean([at_last[0][s] / at_last[1][s] for s in mine])
            assert tried.score == sum(tried.shares.values()) / 2
    assert len({tried.score for tuned in found.methods for tried in tuned.tries}) > 2
    assert find_method("mpt(ridge=0.3)", ridge=0.4).ridge == 0.3


def test_every_method_has_the_same_number_of_tries_and_a_record_is_read_once(runs, tmp_path, monkeypatch):
    read, reads = [], Record.round
    monkeypatch.setattr(Record, "round", lambda *given: (read.append(given[:3]), reads(*given))[1])
    found = tune([runs / "three"], ["mpt", "sdc", "ldc", "icarl"], budget=4, out=tmp_path / "tune.csv")
    assert [len(tuned.tries) for tuned in found.methods] == [4, 4, 4, 1]
    assert [tuned.whole for tuned in found.methods] == [False, False, False, True]
    assert len(read) == len(set(read)) == 3
    rows = lines(tmp_path / "tune.csv")
    assert rows[0] == [name for name in COLUMNS if name != "seconds"]
    assert len(rows) == 1 + 13
    best = found.methods[0].best
    assert best.score == max(tried.score for tried in found.methods[0].tries)
    done = call(runs / "three", "--budget", 4, "--methods", "mpt,icarl", "--out", tmp_path / "tune.csv")
    assert done.exit_code == 0
    *table, path = done.stdout.splitlines()
    assert max(map(len, table)) <= 80
    assert path == str(tmp_path / "tune.csv")
    assert "mpt: icarl: nothing to tune, one try" in done.stderr
    assert "5 tries were in" in done.stderr


def test_a_run_without_room_in_memory_is_read_every_time_with_the_same_numbers(runs, monkeypatch):
    said, some = [], tuning_runs([runs])
    whole, poor = Bench(some, "mean_f1", said.append), Bench(some, "mean_f1", said.append, room=0)
    for spec in ("mpt", "mpt(ridge=1.0)"):
        assert whole.shares(spec) == poor.shares(spec)
    assert len(said) == 3
    assert "has no room in memory and is read again for every try" in said[0]


def test_a_stopped_tuning_resumes_and_computes_nothing_twice(runs, own, tmp_path, counted):
    out, methods = tmp_path / "tune.csv", ["mpt", "sdc", f"{own}:Shifted"]
    whole = tune([runs / "three"], methods, budget=3, out=tmp_path / "whole.csv")
    every = [tuned.spec(tried) for tuned in whole.methods for tried in tuned.tries]
    assert counted == every
    text = (tmp_path / "whole.csv").read_text()
    at = text.index("\n", text.index("\nsdc,1,") + 1) - 30
    out.write_text(text[:at])
    counted.clear()
    found = tune([runs / "three"], methods, budget=3, out=out)
    assert counted == every[4:]
    assert found.computed == 5
    assert lines(out) == lines(tmp_path / "whole.csv")
    assert [(t.score, t.arguments) for m in found.methods for t in m.tries] == [
        (t.score, t.arguments) for m in whole.methods for t in m.tries
    ]
    counted.clear()
    assert tune([runs / "three"], methods, budget=3, out=out).computed == 0
    assert tune([runs / "three"], ["sdc"], budget=2, out=out).methods[0].tries == found.methods[1].tries[:2]
    assert counted == []
    assert tune([runs / "three"], ["sdc"], budget=4, out=out).computed == 1, "a larger budget goes on"


def test_ctrl_c_says_how_far_it_came_and_what_is_done_is_kept(runs, tmp_path, monkeypatch):
    score, out = Bench.shares, tmp_path / "tune.csv"

    def press(bench, spec):
        if spec != "mpt":
            raise KeyboardInterrupt
        return score(bench, spec)

    monkeypatch.setattr(Bench, "shares", press)
    done = call(runs / "three", "--budget", 3, "--methods", "mpt,sdc", "--out", out)
    assert done.exit_code == 130
    assert "stopped after 1 tries; the same command resumes from there" in done.stderr
    assert [row[:2] for row in lines(out)[1:]] == [["mpt", "0"]]


def test_a_broken_try_is_logged_and_never_chosen_and_the_others_go_on(runs, own, tmp_path):
    out = tmp_path / "tune.csv"
    done = call(runs / "three", "--budget", 3, "--methods", f"{own}:Broken,sdc", "--out", out, "--json")
    assert done.exit_code == 0, done.stderr
    broken, sdc = json.loads(done.stdout)["methods"]
    assert (broken["failed"], broken["try"], broken["arguments"], broken["chosen"]) == (2, 0, {}, f"{own}:Broken")
    assert (sdc["tries"], sdc["failed"]) == (3, 0)
    assert find_method(sdc["chosen"]).sigma == sdc["arguments"].get("sigma", 0.3)
    assert out.read_text().count("ValueError: no, never again (own.py, line 28)") == 2
    said = call(runs / "three", "--budget", 3, "--methods", f"{own}:Broken,sdc", "--out", out)
    assert "Broken: 2 of 3 tries failed, the first with: method: broken(by=" in said.stderr
    assert len(lines(out)) == 7, "failed tries are not tried again"


def test_a_small_space_is_tried_whole(runs, own, tmp_path):
    done = call(runs / "three", "--budget", 20, "--methods", f"{own}:Shifted", "--out", tmp_path / "tune.csv")
    assert "Shifted: 6 tries, it has no more settings" in done.stderr
    fixed = tune([runs / "three"], [f"{own}:Shifted(by=0.5)"], budget=20, out=tmp_path / "fixed.csv")
    assert [tuned.spec(t) for tuned in fixed.methods for t in tuned.tries] == [
        f"{own}:Shifted(by=0.5)",
        f"{own}:Shifted(by=0.5, down=True)",
    ]


def test_a_file_of_other_runs_seeds_figures_or_methods_is_left_alone(runs, own, tmp_path):
    out, shifted = tmp_path / "tune.csv", f"{own}:Shifted"
    tune([runs / "three"], ["sdc", shifted], budget=2, out=out)
    text = out.read_text()
    for changes, sentence in (
        ({"folders": [runs]}, "has tries of other runs"),
        ({"seed": 1}, "has tries of another seed, 0, should be 1"),
        ({"figure": "last_f1"}, "has tries of another figure, mean_f1, should be last_f1"),
    ):
        given = {"folders": [runs / "three"], "methods": ["mpt"], "budget": 2, "out": out, **changes}
        with pytest.raises(OtherRunError, match=sentence):
            tune(**given)
    own.write_text(OWN.replace("state + (", "state + 2 * ("))
    with pytest.raises(OtherRunError, match="Shifted as it was before it, its space or mpt changed"):
        tune([runs / "three"], [shifted], budget=2, out=out)
    assert tune([runs / "three"], ["sdc"], budget=2, out=out).computed == 0
    assert out.read_text() == text
    with exclusive_lock(out), pytest.raises(ConfigError, match="another process is writing to"):
        tune([runs / "three"], ["sdc"], budget=2, out=out)


def test_what_is_no_file_of_tries_is_not_touched(runs, tmp_path):
    theirs = tmp_path / "thesis.csv"
    for text in ("my,own\nnumbers,1", "half a line", f"{','.join(COLUMNS)},more\n"):
        theirs.write_text(text)
        with pytest.raises(RunError, match="is no file of mpt tune"):
            tune([runs / "three"], ["sdc"], budget=1, out=theirs)
        assert theirs.read_text() == text
    good = tmp_path / "good.csv"
    tune([runs / "three"], ["sdc"], budget=1, out=good)
    good.write_text(good.read_text() + good.read_text().splitlines()[1] + "\n")
    with pytest.raises(RunError, match="try 0 of sdc is there 2 times"):
        tune([runs / "three"], ["sdc"], budget=1, out=good)


def test_nonsense_gives_a_sentence(runs, own, tmp_path):
    three, out = runs / "three", tmp_path / "tune.csv"
    for arguments, sentence in (
        ((three, "--budget", 0), "budget: 0, should be a whole number of at least 1"),
        ((three, "--budget", 2, "--seed", -1), "seed: -1, should be a whole number of at least 0"),
        ((three, "--budget", 2, "--figure", "f2"), "figure: 'f2', should be mean_f1 or last_f1"),
        ((three, "--budget", 2, "--methods", "mtp"), "did you mean mpt?"),
        ((three, "--budget", 2, "--methods", "mpt,mpt"), "methods: 'mpt' is there twice"),
        ((three, "--budget", 2, "--methods", "live"), "live reads the training 'live', which not all of these runs"),
        ((three, "--budget", 2, "--methods", f"{own}:Shifted(0.5)"), "arguments should have names"),
        ((tmp_path / "none", "--budget", 2), "there is no folder"),
        ((own.parent, "--budget", 2), "holds no run"),
        ((three, "--budget", 2, "--out", tmp_path), "is no file, should be a CSV file"),
        ((three,), "Missing option '--budget'"),
    ):
        done = call(*arguments, *(() if "--out" in arguments else ("--out", out)))
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.stderr
        assert sentence in done.stderr
    assert not out.exists()


def test_runs_that_cannot_be_tuned_on_are_refused(runs, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(runs / "three", copy)
    with pytest.raises(ConfigError, match="are the same run, should be named once"):
        tuning_runs([runs / "three", copy])
    assert [run.folder for run in tuning_runs([runs, runs / "three"])] == [run.folder for run in tuning_runs([runs])]
    settings = (copy / "config.toml").read_text()
    (copy / "config.toml").write_text(settings.replace("record = true", "record = false"))
    with pytest.raises(RecordError, match="without a record"):
        tuning_runs([copy])
    (copy / "config.toml").write_text(settings)
    path = copy / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "trainings": {"fedavg": "continued"}}))
    with pytest.raises(RecordError, match="has no record of the training 'held-out', which oracle-train reads"):
        tuning_runs([copy])
    path.write_text(json.dumps({**manifest, "finished": False}))
    with pytest.raises(RunError, match="holds an unfinished run"):
        tuning_runs([copy])
    path.write_text(json.dumps(manifest))
    (copy / "record" / "0000-000004.npz").write_bytes(b"nothing")
    with pytest.raises(RecordError, match=r"0000-000004\.npz cannot be read"):
        tuning_runs([copy])


def test_all_methods_with_a_space_are_the_default_but_for_those_that_were_not_recorded(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(Bench, "shares", lambda bench, spec: {run.key: 1.0 for run in bench.runs})
    found = tune([runs], budget=2, out=tmp_path / "tune.csv")
    assert [tuned.method for tuned in found.methods] == [name for name in METHODS if find_space(name)]
    assert {"mpt", "mpt-lite", "mpt-x", "sdc:all", "ldc", "ccvr"} <= {tuned.method for tuned in found.methods}
    assert all(len(tuned.tries) == 2 and tuned.best.number == 0 for tuned in found.methods), "a tie is the default's"
    narrow = [replace(run, trainings=frozenset({"held-out"})) for run in found.runs]
    monkeypatch.setattr("mpt.runs.tune.tuning_runs", lambda _: narrow)
    less = tune([runs], budget=1, out=tmp_path / "less.csv")
    assert less.left_out == ("ccvr", "mpt:trained")
    assert "ccvr" not in {tuned.method for tuned in less.methods}


def test_the_same_seed_gives_the_same_tries_which_fill_the_space():
    space = {"lr": Log(1e-4, 0.1), "epochs": OneOf((2, 5, 10, 20)), "by": Uniform(-1, 3)}
    tries = tries_of(space, {}, 65, 3)
    assert tries == tries_of(space, {}, 65, 3) != tries_of(space, {}, 65, 4)
    assert tries[:10] == tries_of(space, {}, 10, 3)
    assert tries[0] == {}
    drawn = tries[1:]
    assert {made["epochs"] for made in drawn} == {2, 5, 10, 20}
    assert all(1e-4 <= made["lr"] <= 0.1 and -1 <= made["by"] <= 3 for made in drawn)
    decades = np.floor(np.log10([made["lr"] for made in drawn]))
    assert [int(np.sum(decades == k)) for k in (-4, -3, -2)] == pytest.approx([64 / 3] * 3, abs=2)
    quarters = np.floor([made["by"] for made in drawn])
    assert [int(np.sum(quarters == k)) for k in (-1, 0, 1, 2)] == pytest.approx([16] * 4, abs=2)
    lists = {"a": OneOf((1, 2, 3)), "b": OneOf(("x", "y"))}
    every = tries_of(lists, {"a": 2, "b": "x"}, 100, 0)
    assert len(set(map(text_of, every))) == len(every) == 6
    assert {"a": 2, "b": "x"} not in every
    assert len(tries_of(lists, {}, 100, 0)) == 7, "a default that is none of the lists' is a setting more"


def test_arguments_in_a_name_are_not_tuned():
    assert set(find_space("mpt")) == {"ridge", "cov_ridge"}
    assert set(find_space("mpt(ridge=0.3)")) == {"cov_ridge"}
    assert set(find_space("mpt-x")) == {"cov_ridge", "outward"}
    assert set(find_space("mpt-x:in-place")) == {"cov_ridge"}, "what the registry has set stays"
    assert find_space("frozen") == find_space("icarl") == find_space("remaining-mean") == {}
    assert spec_of("sdc(sigma=0.2)", {}) == "sdc(sigma=0.2)"
    assert spec_of("mpt(ridge=0.3)", {"cov_ridge": 0.5}) == "mpt(ridge=0.3, cov_ridge=0.5)"
    for name in METHODS:
        for arguments in tries_of(find_space(name), {}, 5, 0):
            made = find_method(spec_of(name, arguments), ridge=7.0, cov_ridge=7.0)
            assert {k: getattr(made, k) for k in arguments} == arguments


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Log(0, 1), "should be two positive numbers, the smaller one first"),
        (lambda: Log(2, 1), "the smaller one first"),
        (lambda: Uniform(1, float("inf")), "should be two numbers"),
        (lambda: Uniform("a", "b"), "should be two numbers"),
        (lambda: OneOf((1,)), "should be a tuple of two values or more"),
        (lambda: OneOf((1, 2, 1)), "none of them twice"),
    ],
)
def test_a_range_that_is_none_gives_a_sentence(make, sentence):
    with pytest.raises(MethodError, match=sentence):
        make()


def test_a_space_that_is_none_gives_a_sentence(own):
    own.write_text(OWN.replace('{"by": Log(0.1, 10)}', '{"by": (0.1, 10)}'))
    with pytest.raises(MethodError, match=r"space: by is \(0.1, 10\), should be Log\(low, high\)"):
        find_space(f"{Path(own)}:Broken")


def test_a_method_that_gives_a_readout_after_the_departure_is_scored(runs, tmp_path):
    path = tmp_path / "late.py"
    path.write_text(
        "from mpt.methods.simple import Linear\n"
        "class Late:\n"
        "    name, training, needs_departure = 'late', 'held-out', True\n"
        "    def depart(self, context):\n        return 0\n"
        "    def track(self, state, context):\n        return state, Linear(*context.head)\n"
    )
    found = tune([runs / "three"], [f"{path}:Late"], budget=2, out=tmp_path / "tune.csv")
    (tried,) = found.methods[0].tries
    assert not tried.error
    assert tried.score >= 0
