"""One registered vehicle against the fleet, on a real SuperLink with TLS and node keys: the others go on.

One run: `app/hostile.py` says what the vehicle MALLORY does in the rounds of PLAYS. It holds most of the watched class.
"""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

for package in ("torch", "flwr", "cryptography"):
    pytest.importorskip(package, reason="the extra fleet is not installed")

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from mpt.fleet.flower.config import AppConfig, dashed
from mpt.fleet.flower.loopback import CONNECTION, Loopback, program
from mpt.fleet.flower.records import REPLY, absence, read_ask
from mpt.fleet.flower.server_app import serve
from mpt.fleet.flower.vehicle_app import answer
from mpt.fleet.status import Status, read_status
from mpt.fleet.store import open_store
from tests.fleet.flower.grids import DirectGrid, identified
from tests.fleet.flower.test_deployment import APP, Story, lines

HONEST, DEADLINE, LONGEST = 3, 60.0, 300
MALLORY = f"v{HONEST}"
TRAINS = {1: "npz", 2: "header", 3: "huge", 4: "large", 5: "raises"}
REPORTS = {1: "origin", 3: "span", 4: "text", 5: "silent"}
TAKEN = {1: (3, 3), 2: (3, 4), 3: (3, 3), 4: (3, 3), 5: (3, 3)}
"""By round, updates and reports."""
SETTINGS: dict[str, Any] = {
    "dataset": "road?train=40&test=10",
    "image_size": 28,
    "batch_size": 16,
    "remaining": 0.1,
    "watch": "truck",
    "deadline": DEADLINE,
    "quorum": 0.75,
    "tail": 0.5,
    "tail_seconds": 20.0,
    "min_vehicles": 2,
    "grace": 20,
}
pytestmark = pytest.mark.slow(minutes=4)


class Fleet(Story):
    """As in the story of a deployment, with settings of its own."""

    def run(self, num_rounds: int) -> str:
        return str(self.net.run(**SETTINGS, num_rounds=num_rounds, state=self.state))

    def start(self, name: str, more: str = "") -> None:
        self.net.start_vehicle(name, f"partition-id={name[1:]} num-partitions={HONEST + 1} {more}".strip())


@dataclass
class Told:
    """What the server wrote.

    Attributes:
        decisions, rounds: lines of the logs; of rounds by number.
        states: by round as they were seen.
        sizes: of checkpoints, likewise.
        printed: what the server printed for people.
        shown: by the state that MALLORY is in, what `mpt fleet status` printed.
    """

    decisions: list[dict[str, Any]] = field(default_factory=list)
    rounds: dict[int, dict[str, Any]] = field(default_factory=dict)
    states: dict[int, Status] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    printed: list[str] = field(default_factory=list)
    shown: dict[str, str] = field(default_factory=dict)

    def of(self, event: str, number: int | None = None) -> list[dict[str, Any]]:
        return [d for d in self.decisions if d["event"] == event and number in (None, d["round"])]

    def refused(self, number: int, words: str) -> None:
        """In this round a reply of MALLORY was refused for a reason with these words, which a line of the log has."""
        found = [d["why"] for d in self.of("refused", number) if re.search(words, d["why"])]
        assert len(found) == 1, self.of("refused", number)
        assert [d for d in self.decisions if d["event"] in ("refused", "failed") and d["name"] != MALLORY] == []
        said = [line for line in self.printed if line.startswith(f"mpt: round {number}: vehicle {MALLORY} (")]
        assert [line for line in said if re.search(words, line)], said

    def one(self, event: str) -> dict[str, Any]:
        (found,) = self.of(event)
        assert found["name"] == MALLORY
        return found


def look(fleet: Fleet, told: Told) -> None:
    """Remember what the state folder has."""
    for path in fleet.state.glob("*.checkpoint"):
        told.sizes[int(path.stem)] = path.stat().st_size
    if told.sizes:
        status = read_status(open_store(fleet.state))
        told.states[status.round] = status


def play(net: Loopback, folder: Path, told: Told) -> None:
    """All rounds, until the vehicle has been honest for a whole round again."""
    fleet, wake = Fleet(net, folder / "state"), folder / "wake"

    def until(condition: Any) -> None:
        def seen() -> bool:
            look(fleet, told)
            return bool(condition())

        fleet.wait(seen)

    def say(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, cwd=net.folder, env=net.environment, check=True)
        return done.stdout

    def show() -> str:
        return say(sys.executable, "-m", "mpt", "fleet", "status", str(fleet.state))

    def whole(number: int) -> bool:
        (line,) = [line for line in lines(fleet.state / "rounds.jsonl") if line["round"] == number]
        return bool(line["updated"] == line["answered"] == HONEST + 1)

    for number in range(HONEST + 1):
        net.register(f"v{number}")
    for number in range(HONEST):
        fleet.start(f"v{number}")
    roles = [f"{n} {kind} {role}" for kind, of in (("train", TRAINS), ("report", REPORTS)) for n, role in of.items()]
    fleet.start(MALLORY, f'plays="{", ".join(roles)}" wake="{wake}" own-settings="plays,wake"')
    run = fleet.run(40)
    until(lambda: 4 in told.states)
    told.shown["refused"] = show()
    until(lambda: fleet.decided("suspected"))
    wake.touch()
    until(lambda: fleet.decided("returned"))
    back = fleet.decided("returned")[0]["round"]
    until(lambda: [n for n in told.states if n >= back and whole(n)])
    told.shown["present"] = show()
    told.decisions = lines(fleet.state / "decisions.jsonl")
    told.rounds = {line["round"]: line for line in lines(fleet.state / "rounds.jsonl")}
    told.printed = say(program("flwr"), "log", run, CONNECTION, "--show").splitlines()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder, found = tmp_path_factory.mktemp("attacked"), Told()
    shutil.copytree(APP, folder / "app")
    project = folder / "app" / "pyproject.toml"
    project.write_text(project.read_text().replace("spoiling:app", "hostile:app"))
    with Loopback(folder / "fleet", folder / "app") as net:
        play(net, folder, found)
    assert not net.processes
    assert not net.left_over()
    return found


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> dict[int, dict[str, Any]]:
    """Rounds of the same fleet, in this process, in which the vehicle sends nothing where it attacks the other."""
    app, state = ClientApp(), tmp_path_factory.mktemp("unharmed")

    def attacks(message: Message, context: Context, kind: str, rounds: dict[int, str]) -> bool:
        return context.node_config["partition-id"] == HONEST and read_ask(message.content, kind).round in rounds

    @app.train()
    def train(message: Message, context: Context) -> Message:
        if attacks(message, context, "train", TRAINS):
            return Message(absence(), reply_to=message)
        return answer(message, context, "train", {})

    @app.query("class_stats")
    def class_stats(message: Message, context: Context) -> Message:
        reply = answer(message, context, "report", {})
        if attacks(message, context, "report", REPORTS):
            reply.content[REPLY]["answer"] = b""
        return reply

    settings = {**SETTINGS, "num_rounds": max(TRAINS)}
    parts = {p: {"num-partitions": HONEST + 1} for p in range(HONEST + 1)}
    with pytest.MonkeyPatch.context() as patch:
        identified(patch)
        serve(AppConfig(**settings, state=str(state)), DirectGrid(app, HONEST + 1, parts, dashed(settings)))
    return {line["round"]: line for line in lines(state / "rounds.jsonl")}


def test_a_report_with_a_frame_of_its_own_is_refused_alone(told: Told) -> None:
    told.refused(1, "made with another origin than the request's")
    told.refused(3, "made with another span than the request's")
    joined = {d["name"]: d["round"] for d in told.of("joined")}
    assert joined == {"v0": 1, "v1": 1, "v2": 1, MALLORY: 2}, "it is let in with its first right report"


def test_bytes_that_are_no_such_array_are_refused_before_they_are_read(told: Told) -> None:
    told.refused(1, r"head\.bias is no \.npy array .*magic string is not correct")
    told.refused(2, r"head\.bias is no \.npy array \(TokenError: ")
    told.refused(3, rf"head\.bias is float32 of shape \({2**40},\), should be float32 of shape \(8,\)")


def test_one_finite_weight_that_is_too_large_is_refused(told: Told) -> None:
    told.refused(4, r"train: model: .* up to (inf|3\.0e\+38)")
    assert not told.of("rejected"), "the model of the round stays usable"


def test_twenty_megabytes_of_text_reach_no_file(told: Told) -> None:
    told.refused(4, "samples: 'no number")
    (raised,) = told.of("failed", 5)
    assert raised["name"] == MALLORY
    assert "a reason a reason" in raised["why"]
    assert max(map(len, told.printed)) <= LONGEST
    assert max(len(json.dumps(d, ensure_ascii=False)) for d in told.decisions) <= 2 * LONGEST
    usual = max(told.sizes[n] for n in (2, 3))
    assert max(told.sizes.values()) <= usual + 100_000, told.sizes
    for status in told.states.values():
        assert len(json.dumps(status.as_json())) <= 20_000
        assert all(len(problem) <= LONGEST for problem in status.problems)
    for state, shown in told.shown.items():
        assert len(shown) <= 20_000
        assert re.search(rf"{MALLORY}\b.*\b{state}\b", shown), shown


def test_whoever_is_refused_is_still_there(told: Told) -> None:
    """Nothing is deposited, missed or held out because of it."""
    assert not {3, 4}.isdisjoint(told.states)
    for number in {3, 4} & told.states.keys():
        (member,) = [v for v in told.states[number].vehicles if v.name == MALLORY]
        assert (member.state, member.since, member.seen) == ("refused", 3, 2)
        assert not [c.name for c in told.states[number].classes if c.tracked is not None]


def test_a_silent_vehicle_is_late_and_later_suspected(told: Told) -> None:
    late, suspected = told.one("late"), told.one("suspected")
    found = re.fullmatch(r"report: no reply within (\d+) s, when a quorum of 3 had replied", late["why"])
    assert late["round"] == 5
    assert found
    assert int(found[1]) < DEADLINE
    begun = datetime.fromisoformat(late["time"]).timestamp() - int(found[1])
    assert suspected["round"] > 5
    assert suspected["why"].endswith("no reply within the deadline")
    assert datetime.fromisoformat(suspected["time"]).timestamp() - begun >= DEADLINE - 1
    deposits = [(d["round"], d["classes"]) for d in told.of("deposited")]
    assert deposits == [(suspected["round"], ["truck"])], "not while it was refused or late"
    for number in range(5, suspected["round"]):
        assert told.rounds[number]["answered"] == HONEST
        assert told.rounds[number]["tracked"] == []


def test_whoever_wakes_up_is_taken_back(told: Told) -> None:
    assert re.fullmatch(r"it was suspected since round \d+ and answered again", told.one("returned")["why"])
    status = told.states[max(told.states)]
    assert {v.name: v.state for v in status.vehicles} == {f"v{n}": "present" for n in range(HONEST + 1)}
    assert status.refusals["frame"] == 2
    last = told.rounds[status.round]
    assert (last["updated"], last["answered"], last["tracked"]) == (HONEST + 1, HONEST + 1, [])


def test_every_round_is_right(told: Told, unharmed: dict[int, dict[str, Any]]) -> None:
    assert sorted(told.rounds) == list(range(1, max(told.rounds) + 1))
    taken = {n: (line["updated"], line["answered"]) for n, line in told.rounds.items()}
    assert {n: taken[n] for n in TAKEN} == TAKEN
    assert all(updates >= HONEST and reports >= HONEST for updates, reports in taken.values()), taken
    assert not told.of("short")
    assert {n: line["updated"] for n, line in unharmed.items()} == {n: TAKEN[n][0] for n in unharmed}
    for number, line in unharmed.items():
        assert told.rounds[number]["accuracy"] == pytest.approx(line["accuracy"], abs=0.03), number
        assert told.rounds[number]["f1"] == pytest.approx(line["f1"], abs=0.15), number
