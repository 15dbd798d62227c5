"""`mpt run --scenario` as a user meets it."""

import csv
import io
import re

import pytest

for package in ("typer", "rich", "torch"):
    pytest.importorskip(package, reason="the extra sim is not installed")

from rich.console import Console
from typer.testing import CliRunner

from mpt.cli import scenario as module
from mpt.cli.main import app
from mpt.runs.scenario_config import ScenarioConfig
from mpt.scenario import shipped_scenarios

TINY = ["--dataset", "digits", "--epochs", "1", "--per-class", "10", "--batch-size", "16"]
SHIPPED = ", ".join(shipped_scenarios())
AWAY = "is for the paper's departure, should be left out with --scenario"
MANIFEST = {
    "scenario": "mine", "about": "Who comes, and who goes.", "dataset": "digits", "rounds": 4,
    "classes": ["0", "1"], "vehicles": ["v1", "v2"], "lost_with": {"0": {"1": "v1"}},
}  # fmt: skip


def call(*arguments, **options):
    return CliRunner().invoke(app, ["run", *arguments], catch_exceptions=False, **options)


def sentences(done):
    """What was said on standard error, but for the first sign of life."""
    return [line for line in done.stderr.splitlines() if not line.startswith("mpt: reading ")]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--scenario", "delivery-flet"], "scenario: there is no 'delivery-flet', did you mean delivery-fleet?"),
        (
            ["--scenario", "x"],
            f"scenario: there is no 'x', should be one of {SHIPPED} or a path",
        ),
        (
            ["--scenario", "workplace", "--depart-at", "3"],
            f"depart_at: {AWAY}",
        ),
        (["--scenario", "workplace", "--rounds", "9"], f"rounds: {AWAY}"),
        (["--scenario", "workplace", "--rare", "1"], f"rare: {AWAY}"),
        (["--scenario", "workplace", "--overwrite"], f"overwrite: {AWAY}"),
        (["--scenario", "workplace", "--track", "mlflow"], f"track: {AWAY}"),
        (["--scenario", "workplace", "--asked", "0"], "asked: 0.0, should be above 0"),
        (["--scenario", "workplace", "--asked", "2"], "asked: 2.0, should be at most 1"),
        (
            ["--scenario", "workplace", *TINY, "--methods", "oracle"],
            "methods: oracle knows the test samples, ",
        ),
        (["--scenario", "workplace", *TINY, "--methods", "mtp"], "method: 'mtp' is none, did you mean mpt?"),
        (["--asked", "0.5"], "asked: is for scenarios, should come with --scenario NAME|FILE.toml"),
        (["--grace", "2"], "grace: is for scenarios, should come with --scenario NAME|FILE.toml"),
        (["--returns", "off"], "returns: is for scenarios, should come with --scenario NAME|FILE.toml"),
    ],
)
def test_what_is_wrong_is_one_sentence(arguments, sentence):
    done = call(*arguments)
    assert done.exit_code != 0
    (said,) = sentences(done)
    assert said.startswith(f"mpt: {sentence}")


def test_a_folder_with_something_in_it_is_not_written_to(tmp_path):
    (tmp_path / "mine").write_text("dear to me")
    done = call("--scenario", "parking-lot", *TINY, "--out", str(tmp_path))
    assert done.exit_code != 0
    assert sentences(done) == [f"mpt: out: {tmp_path} is not empty (mine), should be a new folder"]
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_settings_are_read_from_a_file_too(tmp_path):
    (tmp_path / "run.toml").write_text('scenario = "delivery-flet"\n', encoding="utf-8")
    (said,) = sentences(call("--config", str(tmp_path / "run.toml")))
    assert "did you mean delivery-fleet" in said


def test_the_help_has_the_options_of_scenarios():
    done = call("--help", env={"COLUMNS": "200"})
    for name in ("--scenario", "--asked", "--grace", "--returns", "--carry-share", "--most-watched"):
        assert f"{name} " in done.output


@pytest.mark.slow
def test_a_shipped_scenario_in_80_columns(tmp_path):
    """Two vans hold a class each and leave; one of them comes back."""
    out = tmp_path / "out"
    options = ["--methods", "mpt,frozen", "--eval-every", "4", "--participation", "0.25", "--out", str(out)]
    done = call("--scenario", "delivery-fleet", *TINY, *options, env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    table = lines[: next(i for i, one in enumerate(lines) if one.startswith("F1 away: "))]
    assert table[0].strip() == "delivery-fleet on digits"
    assert max(map(len, table)) <= 80
    with open(out / "summary.csv", newline="", encoding="utf-8") as file:
        summary = {one["method"]: one for one in csv.DictReader(file)}
    shown = {one.split()[0]: one.split()[1:] for one in table if one.split()[0] in summary}
    assert list(shown) == sorted(summary, key=lambda name: float(summary[name]["f1"]))
    for name, figures in shown.items():
        expected = [summary[name][column] for column in ("f1", "f1_with_deposit", "others_f1")]
        assert figures[:3] == [f"{float(value):.3f}" for value in expected]
    assert f"F1 away: mean over {summary['mpt']['pairs']} pairs of a class and a round" in done.stdout
    assert "at most 25% of its samples are there" in done.stdout
    said = sentences(done)
    assert said[0].startswith("mpt: delivery-fleet: Eight vans;")
    assert said[1].startswith("mpt: 8 vehicles, 40 rounds, 10 classes of digits; away for some time: 8 with ")
    for what in ("deposited", "held-out", "recovered"):
        assert any(re.match(rf"mpt: round \d+: vehicle v\d class \d {what}: ", one) for one in said)
    assert not any("joined" in one for one in said)
    assert lines[-1] == str(out / "report.html")
    files = re.search(rf"in {re.escape(str(out))}: (.*)", done.stdout)[1].split(", ")
    assert {path.name for path in out.iterdir()} == {*files, "report.html"}


def test_where_no_class_is_away_it_is_said(tmp_path):
    path = tmp_path / "calm.toml"
    path.write_text('rounds = 2\nvehicles = 3\n\n[presence]\nkind = "parking-lot"\n', encoding="utf-8")
    done = call("--scenario", str(path), *TINY, "--methods", "mpt")
    assert done.exit_code == 0
    assert "no class is ever away" in done.stderr
    assert done.stdout.startswith("No class was away in a round that was read out: there is nothing to compare.")


def test_on_a_terminal_of_80_columns_it_is_a_bar(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(module, "console", Console(file=screen, force_terminal=True, width=80))
    with module.Watcher(ScenarioConfig(dataset="digits")) as watcher:
        watcher.begin(MANIFEST, 4)
        watcher.bar.update(watcher.task, completed=3, description="round 3, 2 vehicles")
        watcher.bar.refresh()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue()).replace("\r", "\n").splitlines()
    assert any(re.match(r"round 3, 2 vehicles .* 75% ", one) for one in shown)
    assert max(map(len, shown)) <= 80


def test_mpt_scenarios_lists_those_that_come_with_it():
    done = CliRunner().invoke(app, ["scenarios"], catch_exceptions=False)
    assert done.exit_code == 0
    assert all(name in done.stdout for name in (*shipped_scenarios(), "FILE.toml"))
