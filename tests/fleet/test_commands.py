"""The commands for operators as they meet them."""

import json
import re
import subprocess
import sys

import pytest

for package in ("typer", "rich"):
    pytest.importorskip(package, reason="the extra sim is not installed")

from typer.testing import CliRunner

from mpt.cli.main import app
from mpt.fleet.store import TRACKER, open_store
from tests.tracking.fleets import RARE, C, Fleet, paper_fleet, tracker


def call(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


@pytest.fixture(params=["", "sqlite:"])
def where(request, tmp_path):
    fleet, server = paper_fleet(), tracker(grace=1)
    place = f"{request.param}{tmp_path / 'store'}"
    store = open_store(place)
    for there in ["abcd"] * 3 + ["bcd"] * 3:
        server.close({**fleet.answers(server.request(), there), "[red]x": b"nonsense"})
        store.save(server.round, {TRACKER: server.to_bytes()})
    return place


def test_status_as_a_table(where):
    done = call("fleet", "status", where)
    assert done.exit_code == 0
    assert re.search(r"after round 6, 20\d\d-\d\d-\d\dT[\d:.]+\+00:00", done.output)
    assert "4 vehicles: 3 present, 0 suspected, 1 departed" in done.output
    lines = {line.split()[0]: line for line in done.output.splitlines() if line.strip()}
    assert lines["a"].split()[1:3] == ["departed", "5"]
    assert re.fullmatch(r" 2 +departed +round 3, 106 samples +a +6 +[\d.]+ +\w+, error [\d.]+ *", lines[str(RARE)])
    assert "[red]x" in done.output


def test_status_of_a_large_fleet_is_short(tmp_path):
    fleet = Fleet({f"v{i:04d}": dict.fromkeys(range(C), 2) for i in range(60)})
    server = tracker()
    server.close(fleet.answers(server.request()))
    server.close(fleet.answers(server.request(), [v for v in fleet.samples if v != "v0059"]))
    open_store(tmp_path).save(server.round, {TRACKER: server.to_bytes()})
    short, whole = call("fleet", "status", tmp_path).output, call("fleet", "status", tmp_path, "--all").output
    assert "60 vehicles: 59 present, 1 suspected, 0 departed" in short
    assert "and 40 more vehicles: --all lists them, --json has them" in short
    assert len(short.splitlines()) < 40
    assert len(whole.splitlines()) > 60
    assert re.search(r"^ v0059 +suspected", short, flags=re.MULTILINE)


def test_status_as_json_and_as_prometheus(where):
    data = json.loads(call("fleet", "status", where, "--json").output)
    assert data["classes"][RARE]["tracked"]["state"] == "departed"
    assert "# TYPE mpt_fleet_round gauge\nmpt_fleet_round 6\n" in call("fleet", "status", where, "--prometheus").output
    assert call("fleet", "status", where, "--json", "--prometheus").exit_code == 2


def test_status_has_the_verdict(tmp_path):
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,))
    for there in ["abcd"] * 2 + ["bcd"] * 2:
        made = server.close(fleet.cross_answers(server.question(), there)).reconstructions.get(RARE)
    open_store(tmp_path).save(server.round, {TRACKER: server.to_bytes()})
    output = call("fleet", "status", tmp_path).output
    assert f"{made.verdict}, error {made.expected_error:.2g}" in output
    data = json.loads(call("fleet", "status", tmp_path, "--json").output)
    assert data["classes"][RARE]["tracked"]["verdict"] == made.verdict


def test_status_of_nothing(tmp_path):
    done = call("fleet", "status", tmp_path / "none")
    assert done.exit_code == 2
    assert "store: there is no " in done.stderr
    assert not (tmp_path / "none").exists()
    assert "status" in call("fleet").output


def test_neither_the_fleet_nor_its_commands_need_torch_or_flower():
    code = "import sys, mpt.fleet{}; print(*sorted({{n.partition('.')[0] for n in sys.modules}}))"
    for more, allowed in (("", set()), (", mpt.cli.main", {"typer", "rich"})):
        done = subprocess.run([sys.executable, "-c", code.format(more)], capture_output=True, text=True, check=True)
        assert not set(done.stdout.split()) & ({"torch", "flwr", "ray", "typer", "rich", "pydantic"} - allowed)
