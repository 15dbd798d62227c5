"""What deploy/ has for systemd: systemd-analyze judges the units, and the scripts they start are run."""

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mpt.base.files import exclusive_lock
from mpt.fleet.metrics import prometheus
from mpt.fleet.status import read_status
from mpt.fleet.store import open_store
from tests.tracking.fleets import paper_fleet, tracker

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").iterdir())
SERVICES = [unit for unit in UNITS if unit.suffix == ".service"]
HIGHEST = 4.0
STARTS_FLOWER = ("mpt-superlink.service", "mpt-vehicle.service")
RUNS_TORCH = (*STARTS_FLOWER, "mpt-rounds.service")
UNGUARDED = "[Service]\nUser=nobody\nExecStart=/bin/true\n"


def run(*command, **more):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **more)


def analyzer():
    """Skip where systemd-analyze is missing or cannot judge a file: `security --offline` came with systemd 250."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    version = int(re.findall(r"\d+", run("systemd-analyze", "--version").stdout)[0])
    if version < 250:
        pytest.skip(f"systemd-analyze is of systemd {version}, which judges no files")


def exposure(unit):
    done = run("systemd-analyze", "security", "--offline=true", "--no-pager", unit)
    return float(re.findall(r"Overall exposure level for .*: ([0-9.]+)", done.stdout)[0])


def settings(unit):
    """The last value of each setting of a unit, with continued lines joined."""
    parsed = configparser.RawConfigParser(strict=False, delimiters="=", comment_prefixes="#")
    parsed.optionxform = str
    parsed.read_string(unit.read_text().replace("\\\n", " "))
    return {key: value for section in parsed.sections() for key, value in parsed.items(section)}


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_a_service_is_exposed_little(unit):
    analyzer()
    assert exposure(unit) < HIGHEST


def test_a_service_without_any_of_that_is_exposed_much(tmp_path):
    analyzer()
    (tmp_path / "plain.service").write_text(UNGUARDED)
    assert exposure(tmp_path / "plain.service") > HIGHEST


def test_systemd_understands_every_unit(tmp_path):
    analyzer()
    programs = tmp_path / "opt"
    (programs / "bin").mkdir(parents=True)
    for name in ("bin/mpt", "bin/flower-superlink", "rounds.sh"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    copies = [tmp_path / unit.name for unit in UNITS]
    for unit, copy in zip(UNITS, copies, strict=True):
        copy.write_text(unit.read_text().replace("/opt/mpt", str(programs)))
    done = run("systemd-analyze", "verify", *copies)
    assert not [line for line in done.stderr.splitlines() if "mpt-" in line]
    assert done.returncode == 0

    copies[0].write_text(copies[0].read_text().replace("[Service]", "[Service]\nProtectEverything=yes"))
    assert "ProtectEverything" in run("systemd-analyze", "verify", copies[0]).stderr


def test_programs_and_users_that_the_units_name():
    for unit in SERVICES:
        of = settings(unit)
        assert of["User"] == "mpt"
        assert of["ProtectSystem"] == "strict"
    for name in STARTS_FLOWER:
        text = (DEPLOY / "systemd" / name).read_text()
        assert "Environment=PATH=/opt/mpt/bin:" in text, "Flower starts flower-superexec by its name"
    for name in RUNS_TORCH:
        assert "MemoryDenyWriteExecute" not in settings(DEPLOY / "systemd" / name), "oneDNN could make no primitive"
    assert os.access(DEPLOY / "rounds.sh", os.X_OK)


@pytest.mark.parametrize("program", ["mpt vehicle", "flower-superlink"])
def test_programs_know_the_options_that_the_units_give_them(program):
    pytest.importorskip("flwr", reason="the extra fleet is not installed")
    given = settings(DEPLOY / "systemd" / f"mpt-{program.split()[-1].removeprefix('flower-')}.service")["ExecStart"]
    assert given.startswith(f"/opt/mpt/bin/{program} ")
    known = run(*shlex.split(f"{Path(sys.executable).parent}/{program} --help"), env={**os.environ, "COLUMNS": "200"})
    options = [word for word in shlex.split(given) if word.startswith("--")]
    assert options
    assert [option for option in options if not re.search(rf"{option}\b", known.stdout)] == []


@pytest.fixture
def programs(tmp_path):
    """A folder with mpt and python as installed, and a flwr whose every second run finishes a round."""
    pytest.importorskip("typer", reason="the extra sim is not installed")
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, command in (("python", f'"{sys.executable}"'), ("mpt", f'"{sys.executable}" -m mpt')):
        (folder / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    (folder / "flwr").write_text(
        f"""#!{sys.executable}
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path
from tests.fleet.test_units import a_round
calls = Path({str(tmp_path / "calls")!r})
before = calls.read_text() if calls.exists() else ""
calls.write_text(before + " ".join(sys.argv[1:]) + "\\n")
if before.count("\\n") % 2 == 0:
    sys.exit("no SuperLink")
a_round({str(tmp_path / "state")!r}, before.count("\\n") // 2 + 1)
"""
    )
    for program in folder.iterdir():
        program.chmod(0o755)
    return folder


def a_round(where, number):
    """The state of a server after so many rounds."""
    fleet, server = paper_fleet(), tracker()
    for _ in range(number):
        server.close(fleet.answers(server.request(), "abcd"))
    open_store(where).save(server.round, {"tracker": server.to_bytes()})


CLASSES = 'classes = "car,van"\nimage-size = 28\n'


def rounds(programs, *arguments):
    return run(DEPLOY / "rounds.sh", *arguments, env={**os.environ, "MPT_BIN": str(programs), "MPT_PAUSE": "0"})


@pytest.mark.slow
def test_rounds_are_started_again_until_the_last_is_done(programs, tmp_path):
    pytest.importorskip("flwr", reason="the extra fleet is not installed")
    (tmp_path / "run.toml").write_text(f'num-rounds = 2\nstate = "{tmp_path / "state"}"\n{CLASSES}')
    done = rounds(programs, tmp_path / "run.toml", "the app", "link")
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if "rounds are done" in line]
    assert [line.split()[1:4] for line in said] == [[n, "of", "2"] for n in "00112"]
    assert (tmp_path / "calls").read_text() == f"run the app link -c {tmp_path / 'run.toml'} --stream\n" * 4
    again = rounds(programs, tmp_path / "run.toml", "the app", "link")
    assert (again.returncode, len((tmp_path / "calls").read_text().splitlines())) == (0, 4)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read (No such file or directory)"),
        ('state = "/state"', "has no num-rounds, should have one"),
        ("num-rounds = 3", "has no state, should have one"),
        ('num-rounds = "many"\nstate = "/state"', "num-rounds is 'many', should be a whole number"),
        ('num-rounds = 3\nstate = ""', "state is empty"),
        ("num-rounds: 3", "run.toml: "),
    ],
)
def test_rounds_refuses_settings_that_cannot_be_right(programs, tmp_path, text, words):
    if text is not None:
        (tmp_path / "run.toml").write_text(text)
    done = rounds(programs, tmp_path / "run.toml")
    assert done.returncode == 2
    assert words in done.stderr
    assert not (tmp_path / "calls").exists()


def test_rounds_says_where_it_looks_for_programs(tmp_path):
    done = rounds(tmp_path, tmp_path / "run.toml")
    assert (done.returncode, done.stderr) == (
        2, f"rounds.sh: there is no {tmp_path}/mpt; MPT_BIN should be where mpt is\n"
    )  # fmt: skip


def test_rounds_are_not_begun_with_settings_that_check_refuses(programs, tmp_path):
    """What the app's folder has is found there, as Flower finds it."""
    pytest.importorskip("flwr", reason="the extra fleet is not installed")
    state = tmp_path / "state"
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "mine.py").write_text("def smooth(logits, labels, counts):\n    return logits.mean()\n")
    wrong = 'watch_share = 0.5\nloss = "mine.py:smooth"\n'
    (tmp_path / "run.toml").write_text(f'num-rounds = 2\nstate = "{state}"\n{wrong}{CLASSES}')
    done = rounds(programs, tmp_path / "run.toml", tmp_path / "app")
    assert done.returncode == 2
    assert "did you mean watch-share?" in done.stderr
    assert "mine.py" not in done.stderr
    assert not (tmp_path / "calls").exists()


@pytest.mark.slow
def test_rounds_wait_for_a_server_that_is_still_there(programs, tmp_path):
    pytest.importorskip("flwr", reason="the extra fleet is not installed")
    state = tmp_path / "state"
    state.mkdir()
    (tmp_path / "run.toml").write_text(f'num-rounds = 1\nstate = "{state}"\n{CLASSES}')
    with exclusive_lock(state):
        done = rounds(programs, tmp_path / "run.toml", "the app", "link")
    assert done.returncode == 0, done.stderr
    assert "another server writes to" in done.stderr
    assert len((tmp_path / "calls").read_text().splitlines()) == 2


def test_metrics_are_written_whole_or_not_at_all(programs, tmp_path):
    command = settings(DEPLOY / "systemd" / "mpt-metrics.service")["ExecStart"]
    for here, there in (("/opt/mpt/bin", programs), ("/var/lib/mpt/state", tmp_path / "state")):
        command = command.replace(here, str(there))
    (tmp_path / "textfiles").mkdir()
    a_round(tmp_path / "state", 3)
    done = run(*shlex.split(command), cwd=tmp_path / "textfiles")
    assert done.returncode == 0, done.stderr
    expected = prometheus(read_status(open_store(tmp_path / "state")))
    assert (tmp_path / "textfiles" / "mpt.prom").read_text() == expected

    shutil.rmtree(tmp_path / "state")
    assert run(*shlex.split(command), cwd=tmp_path / "textfiles").returncode != 0
    assert (tmp_path / "textfiles" / "mpt.prom").read_text() == expected
