"""What the server of a fleet says about its vehicles: names, reasons, goodbyes, what was left out."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.fleet.exchange import Failure, Node
from mpt.fleet.local import LocalTransport
from mpt.fleet.policy import RoundPolicy
from mpt.fleet.store import FileStore
from tests.fleet.served import OWNER, TRUCK, answering, everybody, new_vehicles, server

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def vehicles(dataset):
    return new_vehicles(dataset)


class Registered(LocalTransport):
    """A transport that knows what nodes are called and when they were started."""

    def nodes(self):
        known = {node: Node(node.replace("node ", "vehicle-"), self.started.get(node, "1")) for node in super().nodes()}
        self.looked.append(sorted(known))
        return known


def registered(answers):
    made = Registered(answers)
    object.__setattr__(made, "started", {})
    object.__setattr__(made, "looked", [])
    return made


def test_who_has_said_goodbye_is_not_asked_before_it_is_started_again(dataset, vehicles):
    asked = []
    owner = vehicles[OWNER]

    def watched(ask):
        asked.append((ask.round, ask.kind))
        return owner.answer(ask, leaving=(ask.round, ask.kind) == (2, "report"))

    transport, logged = registered(everybody(vehicles, **{f"v{OWNER}": watched})), []
    running = server(dataset, transport, log=logged.extend)
    for finished in running.rounds(5):
        if finished.round == 4:
            transport.started[f"node {OWNER}"] = "2"
    assert asked == [(1, "train"), (1, "report"), (2, "train"), (2, "report"), (5, "train"), (5, "report")]
    assert not [d for d in logged if d.what == "failed"]
    mine = [(d.round, d.what) for d in logged if d.vehicle == str(OWNER)]
    assert (2, "departed") in mine
    assert (5, "returned") in mine


def test_a_goodbye_to_training_is_the_last_that_is_asked(dataset, vehicles):
    asked = []

    def leaves(ask):
        asked.append((ask.round, ask.kind))
        return vehicles[OWNER].answer(ask, leaving=ask.round == 2)

    transport = registered(everybody(vehicles, **{f"v{OWNER}": leaves}))
    rounds = list(server(dataset, transport).rounds(3))
    assert asked == [(1, "train"), (1, "report"), (2, "train")]
    assert [sorted(f.outcome.reconstructions) for f in rounds] == [[], [TRUCK], [TRUCK]]
    assert rounds[-1].outcome.problems == ()


def test_names_and_reasons_are_in_every_line(dataset, vehicles):
    def fails(ask):
        return Failure("error 2: out of memory") if ask.round == 2 else vehicles[OWNER].answer(ask)

    logged = []
    transport = registered(everybody(vehicles, **{f"v{OWNER}": fails}))
    running = server(dataset, transport, log=logged.extend)
    names = tuple(dataset.classes)
    settings = replace(running.tracker.settings, class_names=names)
    running.tracker.state = replace(running.tracker.state, settings=settings)
    finished = list(running.rounds(2))[-1]
    said = [str(d) for d in logged if d.round == 2]
    who = f"vehicle vehicle-{OWNER} ({OWNER})"
    assert f"round 2: {who} failed: train: error 2: out of memory" in said
    assert f"round 2: {who} class {names[TRUCK]} suspected: report: error 2: out of memory" in said
    assert f"train: {who}: error 2: out of memory" in finished.outcome.problems


def test_a_vehicle_that_cannot_be_reached_is_said_to_be(dataset, vehicles):
    gone, logged = set(), []
    transport = LocalTransport(everybody(vehicles), away=lambda node, number: node in gone)
    for _ in server(dataset, transport, log=logged.extend).rounds(2):
        gone.add("node 0")
    (suspected,) = [d for d in logged if d.what == "suspected"]
    assert (suspected.vehicle, suspected.why) == ("0", "it could not be reached")


def test_what_the_fleet_does_not_know_is_said_once(dataset, vehicles):
    lorries = replace(vehicles[0], unknown={"lorry": 3})
    logged = []
    running = server(dataset, everybody(vehicles, v0=answering(lorries)), log=logged.extend)
    list(running.rounds(2))
    said = [str(d) for d in logged if d.what == "left-out"]
    assert said == ["round 1: vehicle 0 left-out: samples of classes that the fleet does not know: lorry (3)"]


def test_scores_are_kept_with_the_checkpoint(dataset, vehicles, tmp_path):
    store = FileStore(tmp_path)
    given = {"accuracy": 0.5, "f1": dict.fromkeys(dataset.classes, 0.25)}
    running = server(dataset, everybody(vehicles), store=store, record=lambda finished: given)
    list(running.rounds(1))
    assert json.loads(store.latest().payload["scores"]) == given


def test_who_says_goodbye_does_not_count_against_the_quorum(dataset, vehicles):
    """Three of four say goodbye in one round: the one update that is left is all of those that stay."""

    def leaves(vehicle):
        return lambda ask: vehicle.answer(ask, leaving=ask.round == 2)

    away = {f"v{v.name}": leaves(v) for v in vehicles[1:]}
    policy, logged = RoundPolicy(min_vehicles=1, quorum=1.0, timeout=0.2, max_attempts=2), []
    running = server(dataset, registered(everybody(vehicles, **away)), log=logged.extend, policy=policy)
    assert [finished.updated for finished in running.rounds(3)] == [4, 1, 1]
    assert not [d for d in logged if d.what == "short"]


def test_who_is_back_before_the_round_ends_has_not_left(dataset, vehicles):
    logged = []

    def hurries(ask):
        leaving = (ask.round, ask.kind) == (2, "train")
        if leaving:
            transport.started[f"node {OWNER}"] = "2"
        return vehicles[OWNER].answer(ask, leaving=leaving)

    transport = registered(everybody(vehicles, **{f"v{OWNER}": hurries}))
    list(server(dataset, transport, log=logged.extend).rounds(3))
    assert not [d for d in logged if d.what == "departed"]


def test_a_node_has_one_vehicle(dataset, vehicles):
    """Where vehicles are known by what they say, another may answer from a node; it is the one that is there."""

    def another(ask):
        return replace(vehicles[0], name="0" if ask.round == 1 else "5").answer(ask)

    running = server(dataset, everybody(vehicles, v0=another))
    list(running.rounds(2))
    assert running.models.nodes == {str(v): f"node {v}" for v in (1, 2, 3)} | {"5": "node 0"}
