"""Hostile vehicles, the gate and rules of aggregation as a user meets them: `mpt run --attack`, `mpt attacks`, ..."""

import csv
import html
import inspect
import re
from pathlib import Path

import pytest

for package in ("typer", "rich", "torch"):
    pytest.importorskip(package, reason="the extra sim is not installed")

from typer.testing import CliRunner

from mpt.cli.main import app
from mpt.federation.attacks import ATTACKS
from mpt.learning.aggregation import AGGREGATIONS

SMALL = [
    *("--dataset", "road?train=20&test=5", "--image-size", "28", "--rounds", "3", "--depart-at", "1", "--epochs", "1"),
    *("--eval-every", "1", "--vehicles", "4", "--remaining", "0.2", "--methods", "mpt,mpt-x", "--device", "cpu"),
]
MINE = """
class Lie:
    def __init__(self, by=1.0):
        self.by = by

    def features(self, features, labels, scene):
        return self.by * features, labels

class Nothing:
    pass

class Raises:
    def report(self, report, scene):
        raise ValueError("no report today")

def rule(updates, place=0):
    return updates.states[place]
"""


def call(*arguments):
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False, env={"COLUMNS": "80"})


def sentences(done):
    """What was said on standard error, but for the first sign of life and the rounds."""
    return [line for line in done.stderr.splitlines() if not line.startswith(("mpt: reading ", "round ", "mpt: round"))]


def noted(folder):
    """What the diagnostics say of every row: how many were clipped and refused."""
    with (folder / "diagnostics.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["method"]]
    return {(int(r["round"]), r["method"]): (float(r["clipped"]), float(r["refused"])) for r in rows}


def numbers(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return [{k: v for k, v in row.items() if not k.endswith("seconds")} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "mine.py"
    path.write_text(MINE)
    return path


def listed(name):
    """The entries of a list, each on one line; further lines of one begin with several spaces."""
    entries = []
    for line in call(name).stdout.splitlines():
        if line.startswith("  "):
            entries[-1] += f" {line.strip()}"
        else:
            entries.append(line)
    return entries


def told(lines, name):
    """The arguments with their defaults that a list shows for a name."""
    (line,) = [line for line in lines if line.split()[0] == name]
    return dict(re.findall(r"(\w+)=([\w.+-]+)", line))


def test_every_attack_is_listed_with_the_numbers_that_it_has():
    lines = listed("attacks")
    assert [line.split()[0] for line in lines] == ["attack", *ATTACKS, "path.py:Class"]
    assert told(lines, "shift") == {"by": "20"}
    for name in ATTACKS:
        arguments = ", ".join(f"{key}={value}" for key, value in told(lines, name).items())
        assert ATTACKS.find(f"{name}({arguments})") == ATTACKS.find(name)


def test_every_aggregation_is_listed_with_the_numbers_that_it_has():
    lines = listed("aggregations")
    assert [line.split()[0] for line in lines] == ["aggregation", *AGGREGATIONS, "path.py:function"]
    assert told(lines, "krum") == {"hostile": "1", "keep": "1"}
    for name in AGGREGATIONS:
        has = inspect.signature(AGGREGATIONS.find(name)).parameters
        assert all(has[key].default == float(value) for key, value in told(lines, name).items())


def test_help_says_what_there_is():
    shown = " ".join(re.sub(r"[│╭╮╰╯─]", " ", call("run", "--help").stdout).split())
    assert "vehicles that lie, such as shift@3: as in `mpt attacks`, or path.py:Class, with @ and the vehicle" in shown
    assert "on, off, auto (on with an attack) (default: auto)" in shown
    assert "how updates become one model: as in `mpt aggregations`, or path.py:function" in shown


def test_a_run_with_attacks_says_what_was_clipped_and_refused_and_can_be_repeated(tmp_path):
    run = ["run", *SMALL, "--attack", "shift@0,outlier@1,boost@2"]
    done = call(*run, "--out", str(tmp_path / "first"))
    assert done.exit_code == 0, done.stderr
    assert 'attack = ["shift@0", "outlier@1", "boost@2"]' in (tmp_path / "first" / "config.toml").read_text()
    found = noted(tmp_path / "first")
    assert found.keys() == {(n, m) for n in (1, 2, 3) for m in ("mpt", "mpt-x")}
    assert {refused for _, refused in found.values()} == {1}
    page = html.unescape(re.sub(r"<[^>]+>", " ", (tmp_path / "first" / "report.html").read_text()))
    assert "shift@0, outlier@1, boost@2" in page
    again = call("run", "--config", str(tmp_path / "first" / "config.toml"), "--out", str(tmp_path / "again"))
    assert again.exit_code == 0, again.stderr
    assert numbers(tmp_path / "again") == numbers(tmp_path / "first")
    assert noted(tmp_path / "again") == found
    shown = call(*run, "--out", str(tmp_path / "first"))
    assert shown.stdout == done.stdout
    assert any("nothing was computed" in line for line in sentences(shown))
    other = call(*run, "--gate", "off", "--out", str(tmp_path / "first"))
    assert other.exit_code == 2
    assert "holds a run with gate 'auto', not 'off'" in sentences(other)[-1].replace(
        "gate auto", "gate 'auto'"
    ).replace("not off", "not 'off'")


def test_without_a_gate_nothing_is_noted_and_the_lie_counts(tmp_path):
    for gate in ("on", "off"):
        done = call("run", *SMALL, "--attack", "counts@0", "--gate", gate, "--out", str(tmp_path / gate))
        assert done.exit_code == 0, done.stderr
    assert min(clipped for clipped, _ in noted(tmp_path / "on").values()) >= 1
    assert "clipped" not in (tmp_path / "off" / "diagnostics.csv").read_text().splitlines()[0].split(",")
    left, right = numbers(tmp_path / "on"), numbers(tmp_path / "off")
    assert [(r["round"], r["method"], r["class"]) for r in left] == [
        (r["round"], r["method"], r["class"]) for r in right
    ]
    assert left != right


def test_attacks_and_a_rule_of_ones_own_by_path(mine, tmp_path, monkeypatch):
    monkeypatch.chdir(mine.parent)
    run = ["run", *SMALL, "--methods", "mpt", "--gate", "off"]
    lie = ["--attack", "mine.py:Lie(by=30)@1, shift@owner", "--aggregation", "mine.py:rule(place=2)"]
    for name, more in {"plain": [], "lied": lie}.items():
        done = call(*run, *more, "--out", str(tmp_path / name))
        assert done.exit_code == 0, done.stderr
    written = (tmp_path / "lied" / "config.toml").read_text()
    assert 'attack = ["mine.py:Lie(by=30)@1", "shift@owner"]' in written
    assert 'aggregation = "mine.py:rule(place=2)"' in written
    assert numbers(tmp_path / "plain") != numbers(tmp_path / "lied")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--attack", "sift@3"], "attack: 'sift' is none, did you mean shift?"),
        (["--attack", "shift@9"], "attack: shift@9, but there is no vehicle 9, should be from 0 to 3"),
        (["--attack", "shift@3,flip@3"], "attack: vehicle 3 has two attacks, should have one"),
        (["--attack", "shift@1+1"], "attack: vehicle 1 has two attacks, should have one"),
        (["--attack", "shift@bystander"], "attack: shift@bystander, but no vehicle is without remaining samples"),
        (["--attack", "shift(by=x)@1"], "attack: 'shift(by=x)', arguments should be literals"),
        (["--attack", "shift(far=3)@1"], "attack: shift has no argument far; it has by"),
        (["--attack", "{mine}:Nothing@1"], "attack: {mine}:Nothing@1 lies about nothing, should have one of labels, "),
        (["--attack", "{mine}:Lei@1"], "attack: {mine} has no 'Lei', did you mean Lie?"),
        (["--attack", "{mine}:Raises@1"], "attack: ValueError: no report today (mine.py, line 14)"),
        (["--attack", "zero(samples=0)@1"], "samples: 0.0, should be finite and above 0"),
        (["--gate", "maybe"], "gate: 'maybe', should be auto, on or off"),
        (["--aggregation", "medain"], "aggregation: 'medain' is none, did you mean median?"),
        (["--aggregation", "krum"], "aggregation: krum(hostile=1) of 4 updates, should be of at least 5"),
        (["--aggregation", "bulyan"], "aggregation: bulyan(hostile=1) of 4 updates, should be of at least 7"),
        (["--aggregation", "trimmed-mean(share=0.5)"], "share: 0.5, should be at least 0 and below 0.5"),
        (
            ["--aggregation", "{mine}:rule(place=9)"],
            "aggregation: IndexError: list index out of range (mine.py, line 17)",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence_on_standard_error(arguments, message, mine):
    done = call("run", *SMALL, *(argument.replace("{mine}", str(mine)) for argument in arguments))
    assert done.exit_code == 2
    assert done.stdout == ""
    assert sentences(done)[-1].startswith(f"mpt: {message.replace('{mine}', str(mine))}")


def test_attacks_are_for_the_departure_and_not_for_scenarios():
    done = call("run", "--scenario", "parking-lot", "--attack", "shift@1")
    assert done.exit_code == 2
    assert sentences(done) == ["mpt: attack: is for the paper's departure, should be left out with --scenario"]
    assert Path("parking-lot").exists() is False
