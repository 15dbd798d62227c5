"""The command line as a user meets it."""

import csv
import importlib
import json
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

for package in ("typer", "rich", "torch"):
    pytest.importorskip(package, reason="the extra sim is not installed")

import click
import numpy as np
from typer.main import get_command
from typer.testing import CliRunner

import mpt
from mpt.base.settings import rules_of
from mpt.cli.lists import POINTS
from mpt.cli.main import app
from mpt.data import save_features
from mpt.methods import METHODS
from mpt.runs.config import RunConfig
from mpt.version import ENGINE

from ..data.nuimages_folder import Folder
from ..report.samples import write_run

ROOT = Path(__file__).parents[2]
SMALL = [
    "--dataset",
    "road?train=20&test=5",
    "--image-size",
    "28",
    "--rounds",
    "2",
    "--depart-at",
    "1",
    "--epochs",
    "1",
]


def call(*arguments, **options):
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False, **options)


def python(code, *arguments):
    """Another Python, without a terminal."""
    environment = {k: v for k, v in os.environ.items() if k not in {"FORCE_COLOR", "COLUMNS"}}
    return subprocess.run(
        [sys.executable, *code, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        timeout=120,
        check=False,
    )


def test_help_names_the_commands_and_every_setting():
    for arguments in ((), ("--help",)):
        done = call(*arguments)
        assert done.exit_code == 0
        assert all(name in done.output for name in ("run", "predict", *POINTS))
    for asked in ("--help", "-h"):
        done = call("run", asked, env={"COLUMNS": "220"})
        assert done.exit_code == 0
        for name, rule in rules_of(RunConfig).items():
            assert f"--{name.replace('_', '-')} " in done.output
            assert rule.about in done.output
        assert "(default: 100)" in done.output
        assert "--no-models" in done.output


def test_the_release_is_told():
    for asked in (["--version"], ["--version", "run"]):
        done = call(*asked)
        assert (done.exit_code, done.output) == (0, f"mpt {mpt.__version__}, benchmark engine {ENGINE}\n")


def commands(group, *path):
    """Every command, with the words that lead to it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *path, name)
        yield (*path, name), command


def test_every_positional_argument_says_what_it_is():
    every = list(commands(get_command(app)))
    found = [(path, p) for path, command in every for p in command.params if isinstance(p, click.Argument)]
    assert {path for path, _ in found} >= {("report",), ("predict",), ("export",), ("fleet", "status"), ("whatif",)}
    assert [(path, p.name) for path, p in found if not p.help or not p.metavar] == []
    for path, argument in found:
        assert argument.help.split()[0] in call(*path, "--help", env={"COLUMNS": "200"}).output
    assert call("report").stderr == "mpt: Missing argument 'RUN': folder that mpt run --out has written\n"


@pytest.mark.parametrize("arguments", [["rnu"], ["fleet", "stats"], ["run", "--dataste", "road"], ["repro"]])
def test_one_suggestion_is_made(arguments):
    done = call(*arguments)
    assert done.exit_code == 2
    assert done.stderr.count("Did you mean") == 1


def entries(name):
    """The first words of a list, which fits 80 columns; further lines of an entry begin with a space or an `&`."""
    lines = call(name).output.splitlines()
    assert max(map(len, lines)) <= 80
    return [line.split()[0] for line in lines if line[1] not in " &"]


def test_what_there_is_at_every_extension_point_is_listed():
    assert entries("methods") == ["method", *METHODS, "path.py:Class"]
    assert entries("scenarios")[0] == "scenario"
    for name, (module, point, _) in POINTS.items():
        if name not in ("methods", "datasets"):
            found = getattr(importlib.import_module(module), point)
            assert entries(name) == [found.word, *found, *(f"{word}:NAME" for word in found.words), found.own]
    found = entries("datasets")
    assert "parquet:PREFIX?image=...&label=..." in found
    assert found[-2:] == ["hf:NAME?config=...&image=...&label=...", "path.py:function"]
    assert any(line.split()[0].endswith("&train=...") for line in call("datasets").output.splitlines())


def test_a_first_run_on_features_reads_every_version(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 40)
    path = save_features(tmp_path / "v.npz", labels, [rng.normal(size=(120, 4)) + labels[:, None] for _ in range(4)])
    done = call(
        "run", "--dataset", f"features:{path}", "--rare", "2", "--methods", "mpt", "--out", str(tmp_path / "run")
    )
    assert done.exit_code == 0, done.stderr
    assert (
        "has 4 versions of a model: --rounds 4 --depart-at 1 --eval-every 1, where nothing else is said" in done.stderr
    )
    with (tmp_path / "run" / "metrics.csv").open() as file:
        assert {row["round"] for row in csv.DictReader(file)} == {"1", "2", "3", "4"}


def sentences(done):
    """What was said on standard error, but for the first sign of life."""
    return [line for line in done.stderr.splitlines() if not line.startswith("mpt: reading ")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "mtp"], "method: 'mtp' is none, did you mean mpt?"),
        (["--methods", "mine.py:Mine"], "method: there is no file mine.py"),
        (["--rare", "lorry"], "class: no 'lorry' in road, should be one of car, van, truck"),
        (
            ["--dataset", "cifar10"],
            "dataset: 'cifar10' does not come with MPT; parquet:PREFIX, folder:PATH or hf:NAME reads your own copy",
        ),
        (["--dataset", "raod"], "dataset: 'raod' is none that is known, did you mean road?"),
        (["--dataset", "road?train=5"], "class 'truck': 5 train samples in road, should be at least 10"),
        (["--rounds", "0"], "rounds: 0, should be at least 2"),
        (["--rounds", "x"], "Invalid value for '--rounds': 'x' is not a valid integer."),
        (["--remaining", "2"], "remaining: 2.0, should be below 1"),
        (["--depart-at", "3"], "depart_at: 3, should be below 2, the number of rounds"),
        (["--events", "leave 7 after 1"], "events: 'leave 7 after 1', but vehicle 7 is the one that departs"),
        (["--events", "leave 1"], "events: 'leave 1', should be like 'leave 3 after 20'"),
        (
            ["--partition", "vehicle"],
            "partition: vehicle, but road does not say which vehicle recorded a sample, should be concentrate, or the "
            "dataset one such as nuimages:ROOT or an npz: file with subject_train in it",
        ),
        (["--partition", "vehicle", "--vehicles", "3"], "vehicles: 3, should be left out with partition vehicle"),
        (["--backbone", "cnn4"], "backbone: 'cnn4' is none, did you mean cnn3?"),
        (
            ["--partition", "log"],
            "partition: 'log' is none, should be one of concentrate, vehicle, or path.py:function",
        ),
        (["--readout", "mahalanobis,nearest"], "readout: 'nearest' is none, should be one of mahalanobis, diagonal"),
        (["--loss", "cross-entrpy"], "loss: 'cross-entrpy' is none, did you mean cross-entropy?"),
        (
            ["--methods", "mpt(ridge=x)"],
            "method: 'mpt(ridge=x)', arguments should be literals: numbers, texts in quotes",
        ),
        (["--methods", "mpt(rigde=0.1)"], "method: mpt has no argument rigde; it has name, training, ridge, cov_ridge"),
        (["--methods", "mpt(training='heldout')"], "training: 'heldout' is none, did you mean held-out?"),
        (["--device", "abacus"], "device: 'abacus' is none that works here"),
        (["--config", "{tmp}/wrong.toml"], "round: there is no such setting, did you mean rounds?"),
        (["--config", "{tmp}/missing.toml"], "config: there is no file"),
        (["--out", "{tmp}/wrong.toml"], "out: "),
        (["--speed", "3"], "No such option"),
        (["--overwrite"], "overwrite: there is no folder to overwrite, should come with --out DIR"),
        (["--track", "comet"], "track: 'comet', should be tensorboard, mlflow[:URI] or wandb[:PROJECT]"),
        (["--track", "tensorboard"], "track: tensorboard writes into the results' folder, should come with --out DIR"),
    ],
)
def test_what_is_wrong_is_one_sentence_on_standard_error(arguments, message, tmp_path):
    (tmp_path / "wrong.toml").write_text("round = 3\n")
    done = call("run", *SMALL, *(a.format(tmp=tmp_path) for a in arguments))
    assert done.exit_code == 2
    assert done.stdout == ""
    (said,) = sentences(done)
    assert said.startswith(f"mpt: {message}")
    assert call("walk").stderr == "mpt: No such command 'walk'.\n"


def test_brackets_in_a_sentence_are_printed_as_they_are():
    assert "'[bold]'" in call("run", *SMALL, "--methods", "[bold]").stderr


def test_a_run_is_written_and_can_be_repeated_from_what_was_written(tmp_path):
    first = call("run", *SMALL, "--methods", "frozen,mpt", "--seeds", "2", "--out", str(tmp_path / "first"))
    assert first.exit_code == 0
    assert "F1 of 'truck'" in first.stdout
    assert " ± " in first.stdout
    config = str(tmp_path / "first" / "config.toml")
    again = call("run", "--config", config, "--out", str(tmp_path / "again"))
    assert again.exit_code == 0
    assert (tmp_path / "again" / "config.toml").read_text() == Path(config).read_text()
    tables = []
    for name in ("first", "again"):
        with (tmp_path / name / "metrics.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        tables.append([{k: v for k, v in row.items() if not k.endswith("seconds")} for row in rows])
    assert tables[0] == tables[1]
    assert {(row["seed"], row["round"], row["method"]) for row in tables[0]} == {
        (seed, number, method) for seed in "01" for number in "12" for method in ("frozen", "mpt")
    }
    manifest = json.loads((tmp_path / "first" / "manifest.json").read_text())
    assert manifest["mpt"] == mpt.__version__
    assert manifest["device"]
    assert len(manifest["dataset_fingerprint"]) == 16
    shown = call("run", "--config", config, "--out", str(tmp_path / "again"))
    assert shown.exit_code == 0
    assert shown.stdout == again.stdout
    found = f"mpt: {tmp_path / 'again'} holds the finished run of these settings: nothing was computed"
    assert sentences(shown) == [found]
    other = call("run", "--config", config, "--lr", "0.02", "--out", str(tmp_path / "again"))
    assert other.exit_code == 2
    assert other.stdout == ""
    (said,) = sentences(other)
    assert said.startswith(f"mpt: out: {tmp_path / 'again'} holds a run with lr 0.01, not 0.02; choose another")
    less = call("run", "--config", config, "--methods", "frozen", "--seeds", "1", "--out", str(tmp_path / "less"))
    assert less.exit_code == 0
    assert 'methods = ["frozen"]' in (tmp_path / "less" / "config.toml").read_text()


def test_a_nuimages_folder_with_damage_runs_and_says_what_it_left_out(tmp_path, monkeypatch):
    """Three broken images, two boxes with a dangling token; who holds what follows log.vehicle."""
    pytest.importorskip("PIL", reason="nuimages: needs Pillow")
    monkeypatch.setenv("MPT_CACHE", str(tmp_path / "cache"))
    folder = Folder(tmp_path / "nuimages", [("v1.0-train", 20), ("v1.0-val", 4)])
    for i in range(3):
        folder.file("v1.0-train", i).write_bytes(b"broken")
    folder.row("v1.0-train", "object_ann", -1)["sample_data_token"] = "gone"
    folder.row("v1.0-train", "object_ann", -2)["category_token"] = "gone"
    run = ["run", *SMALL, "--dataset", folder.write(), "--methods", "frozen,mpt", "--partition", "vehicle"]
    done = call(*run, "--out", str(tmp_path / "out"))
    assert done.exit_code == 0, done.stderr
    left, leaves = sentences(done)[:2]
    assert "left out: boxes with a dangling token 2 (" in left
    assert "broken images 3 (samples/" in left
    assert leaves == "mpt: partition: vehicle 0 (n003) leaves with 6 samples of 'truck'; 11 remain on the 2 others"
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert left.endswith(manifest["dataset_notes"][0])
    assert manifest["vehicle_names"] == ["n003", "n008", "n015"]
    assert manifest["remaining_samples"] == [11]
    assert "11 samples of truck remain" in (tmp_path / "out" / "report.html").read_text()
    (folder.root / "v1.0-train" / "log.json").unlink()
    done = call(*run)
    assert done.exit_code == 2
    (said,) = sentences(done)
    assert "no table" in said


def test_the_example_runs_by_its_path():
    done = call("run", *SMALL, "--methods", f"frozen,{ROOT / 'examples' / 'my_method.py'}:MyMethod")
    assert done.exit_code == 0
    assert any(line.split()[:2] == ["my-method", "mahalanobis"] for line in done.stdout.splitlines())


def test_every_number_has_its_default_in_the_help():
    shown = " ".join(re.sub(r"[│╭╮╰╯─]", " ", call("run", "--help", env={"COLUMNS": "200"}).stdout).split())
    for option, default in (("--seeds", "1"), ("--participation", "1.0"), ("--prox", "0.0"), ("--rounds", "100")):
        assert re.search(rf"{option} .{{0,120}}\(default: {default}\)", shown), option


def test_python_m_mpt_in_a_pipe_prints_plain_lines():
    done = python(["-m", "mpt"], "run", *SMALL, "--methods", "fedavg,mpt", "--eval-every", "1")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    lines = done.stderr.splitlines()
    assert lines[0].startswith("mpt: reading ")
    assert [line.split()[1] for line in lines if line.startswith("round ")] == ["1/2", "2/2"]
    words = [line.split()[0] for line in done.stdout.splitlines()]
    assert (words[:3], set(words[3:5]), words[5:]) == (["F1", "last", "method"], {"fedavg", "mpt"}, ["mean", "bytes:"])


def test_the_command_mpt_is_the_same():
    (script,) = entry_points(group="console_scripts", name="mpt")
    assert script.value == "mpt.cli:app"
    mpt_cli = script.load()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["mpt", "methods"])
        with pytest.raises(SystemExit) as left:
            mpt_cli()
    assert left.value.code == 0


def test_training_that_diverges_says_the_round_and_what_to_try():
    done = call("run", *SMALL, "--methods", "frozen", "--lr", "1e9")
    assert done.exit_code == 2
    line = sentences(done)[-1]
    assert line.startswith("mpt: round 1: training diverged with lr 1e+09 (")
    assert line.endswith("; try a smaller --lr")


def test_a_page_that_no_browser_opens_is_one_sentence(tmp_path, monkeypatch):
    """As where xdg-open is installed and finds no browser."""
    program = tmp_path / "xdg-open"
    program.write_text("#!/bin/sh\necho nothing here >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(sys, "platform", "linux")
    done = call("report", str(write_run(tmp_path / "run")), "--open")
    assert done.exit_code == 0
    assert "nothing here" not in done.stderr
    assert "no browser could be started here, open " in " ".join(done.stderr.split())


@pytest.mark.parametrize("missing", ["typer", "rich", "torch"])
def test_without_the_extra_it_says_what_to_install(missing):
    code = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refuse())
sys.argv = ["mpt", "run"]
from mpt.cli import app
app()
"""
    done = python(["-c", code])
    assert done.returncode == 2
    assert done.stdout == ""
    how = "pip install -c constraints.txt '.[sim]' in the repository brings it"
    assert sentences(done) == [f"mpt: {missing} is not installed, {how}"]


def test_simulate_and_run_config_come_when_asked_for():
    code = """
import sys, mpt
assert {"simulate", "RunConfig", "deposit"} <= set(dir(mpt))
heavy = {"torch", "typer", "rich"}
assert not heavy & set(sys.modules)
print(mpt.RunConfig(rounds=20).rounds, "torch" in sys.modules, mpt.simulate.__module__)
"""
    assert python(["-c", code]).stdout == "20 False mpt.report.simulate\n"
    with pytest.raises(AttributeError, match="no attribute 'simulation_of'"):
        mpt.simulation_of  # noqa: B018
