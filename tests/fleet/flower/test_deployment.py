"""A real SuperLink with TLS and authentication and real SuperNodes, on loopback: what can happen, in one story."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

for package in ("torch", "flwr", "cryptography"):
    pytest.importorskip(package, reason="the extra fleet is not installed")

from mpt.fleet.flower.loopback import CONNECTION, Loopback, family, program
from mpt.fleet.flower.supernode import leave_path
from mpt.fleet.leave import LeaveFile
from mpt.fleet.status import read_status
from mpt.fleet.store import open_store

APP = Path(__file__).with_name("app")
SETTINGS = {
    "dataset": "road?train=40&test=10",
    "image_size": 28,
    "batch_size": 16,
    "remaining": 0.1,
    "watch": "truck",
    "deadline": 120.0,
    "tail_seconds": 120.0,
    "min_vehicles": 2,
    "quorum": 0.2,
    "grace": 20,
}
OWNER, TRUCK, VEHICLES = "v4", 2, 5


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def state_of(net, run):
    """The run's status, as Flower has it: "running", "finished:completed", ..."""
    command = [program("flwr"), "list", CONNECTION, "--run-id", run, "--format", "json"]
    said = subprocess.run(command, cwd=net.folder, env=net.environment, capture_output=True, text=True, check=True)
    return json.loads(said.stdout[said.stdout.index("{") :])["runs"][0]["status"]


def kill_server_app(net):
    """End the server's app, and nothing else, with SIGKILL."""
    for pid in family(net.processes["superlink"].pid):
        command = Path(f"/proc/{pid}/cmdline")
        if command.exists() and b"flwr-serverapp" in command.read_bytes():
            os.kill(pid, signal.SIGKILL)


class Story:
    """The fleet, and what its server has written so far."""

    def __init__(self, net, state):
        self.net, self.state = net, state

    def run(self, num_rounds):
        return self.net.run(**SETTINGS, num_rounds=num_rounds, state=self.state)

    @property
    def rounds(self):
        return [line["round"] for line in lines(self.state / "rounds.jsonl")]

    def decided(self, event, words="", since=0):
        found = [d for d in lines(self.state / "decisions.jsonl") if d["round"] >= since]
        return [d for d in found if d["event"] == event and words in d["why"]]

    def wait(self, condition, seconds=420):
        until = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > until:
                said = (self.state / "decisions.jsonl").read_text() if self.rounds else ""
                raise AssertionError(f"rounds {self.rounds}\n{said}\n{self.net.log('superlink')[-4000:]}")
            time.sleep(0.5)

    def start(self, name, more=""):
        self.net.start_vehicle(name, f"partition-id={name[1:]} num-partitions={VEHICLES} {more}".strip())


@pytest.mark.slow(minutes=5)
def test_a_fleet_that_much_happens_to(tmp_path):
    with Loopback(tmp_path / "fleet", APP) as net:
        story = Story(net, tmp_path / "state")
        for number in range(VEHICLES):
            net.register(f"v{number}")
        for name, more in {
            "v0": "",
            "v1": "",
            "v2": 'spoils="nan" own-settings="spoils"',
            "v3": 'spoils="shape" own-settings="spoils"',
            OWNER: "",
        }.items():
            story.start(name, more)
        net.start_vehicle("stranger", f"partition-id=0 num-partitions={VEHICLES}")
        story.run(40)

        story.wait(lambda: len(story.decided("joined")) == VEHICLES - 1)
        story.wait(lambda: story.decided("refused", "NaN or infinite") and story.decided("refused", "of shape (3,)"))
        assert {d["vehicle"] for d in story.decided("refused", "8 bytes")}.isdisjoint(
            d["vehicle"] for d in story.decided("joined")
        )
        refused = story.decided("refused", "head.bias has entries that are NaN or infinite")
        assert refused
        spoiler = refused[0]["vehicle"]
        assert story.decided("refused", "head.bias is float32 of shape (3,)")

        LeaveFile(leave_path(net.key(OWNER))).ask()
        story.wait(lambda: story.decided("departed", "it said that it leaves"))
        owner = story.decided("departed")[0]["vehicle"]
        assert [(d["name"], d["classes"], d["class_numbers"]) for d in story.decided("deposited")] == [
            (OWNER, ["truck"], [TRUCK])
        ]
        assert net.processes[OWNER].wait(60) == 0
        assert "left: the server was told" in net.log(OWNER)

        net.stop("v1", signal.SIGKILL)
        story.wait(lambda: story.decided("suspected"))
        lost = story.decided("suspected")[0]["vehicle"]
        assert story.decided("suspected")[0]["round"] > story.decided("departed")[0]["round"]
        assert not [d for d in story.decided("failed") if d["vehicle"] == owner]
        assert lost not in (owner, spoiler)
        story.start("v1")
        story.wait(lambda: story.decided("returned"))
        assert story.decided("returned")[0]["vehicle"] == lost

        before = story.rounds[-1]
        kill_server_app(net)
        story.run(40)
        story.wait(lambda: story.decided("resumed", since=before) and story.rounds[-1] > before)

        before = story.rounds[-1]
        net.stop("superlink", signal.SIGKILL)
        net.start_superlink()
        run = story.run(before + 1)
        story.wait(lambda: len(story.decided("resumed")) == 2 and story.rounds[-1] == before + 1)
        story.wait(lambda: state_of(net, run) == "finished:completed", 90)

        assert sorted(set(story.rounds)) == list(range(1, before + 2))
        status = read_status(open_store(story.state))
        states = {v.vehicle: v.state for v in status.vehicles}
        assert {v.name for v in status.vehicles} == {"v0", "v1", "v2", OWNER}
        assert states[owner] == "departed"
        assert [state for vehicle, state in states.items() if vehicle != owner] == ["present"] * 3
        assert status.classes[TRUCK].tracked is not None
        assert "Failed to activate SuperNode" in net.log("stranger")
        assert any("head.bias is float32 of shape (3,)" in problem for problem in status.problems), status.problems
        assert lines(story.state / "rounds.jsonl")[-1]["tracked"] == ["truck"]
    assert not net.processes
    assert not net.left_over()
