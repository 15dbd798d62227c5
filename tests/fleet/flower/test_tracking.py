"""The server's side in a user's own Flower app, under Flower's own strategy."""

import re

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra fleet is not installed")

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from mpt.fleet import FleetError, Tracker, open_store
from mpt.fleet.flower.mods import HELD_OUT, answer_statistics, held_out
from mpt.fleet.flower.tracking import Tracking, ask_statistics
from mpt.fleet.operate import approve
from mpt.fleet.status import read_status
from tests.fleet.flower.grids import DirectGrid, identified
from tests.tracking.fleets import RARE, C, D, paper_fleet, tracker, whats

NAMES = "abcd"


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    identified(monkeypatch)


class App:
    """The paper's fleet under a "model" that counts rounds; vehicle a, partition 0, holds the rare class."""

    def __init__(self):
        self.fleet, self.trained = paper_fleet(), []
        self.app = ClientApp()
        self.app.train()(self.train)
        self.app.query("class_stats")(answer_statistics(lambda arrays, context: self.embed(arrays, context)))  # noqa: PLW0108 - tests replace it

    def train(self, message, context):
        self.trained.append((message.content["config"]["server-round"], context.node_id, held_out(message)))
        arrays = ArrayRecord([message.content["arrays"]["0"].numpy() + 1])
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1, "loss": 0.5})})
        return Message(content, reply_to=message)

    def embed(self, arrays, context):
        return self.fleet.features(NAMES[context.node_config["partition-id"]], round(float(arrays["0"].numpy()[0])))

    def grid(self, **options):
        return DirectGrid(self.app, 4, **options)


def model(round=0):
    return ArrayRecord([np.array([float(round)])])


def expected(rounds_with_a, rounds, **settings):
    """The same story without Flower."""
    fleet, server = paper_fleet(), tracker(**settings)
    for number in range(1, rounds + 1):
        there = NAMES if number <= rounds_with_a else NAMES[1:]
        answers = fleet.answers(server.request(), there)
        outcome = server.close({str(10 + NAMES.index(v)): answer for v, answer in answers.items()})
    return server, outcome


def test_under_a_strategy_it_tracks_what_the_tracker_alone_tracks(tmp_path):
    user, logged = App(), []
    grid = user.grid()

    def evaluate(server_round, arrays):
        if server_round == 3:
            grid.away.add(10)
        return MetricRecord({"loss": 0.25})

    tracking = Tracking(grid, tracker(grace=1), evaluate, 1.0, log=logged.extend, store=open_store(tmp_path))
    result = FedAvg(fraction_evaluate=0.0).start(
        grid, model(), num_rounds=6, train_config=tracking.train_config, evaluate_fn=tracking
    )
    alone, outcome = expected(3, 6, grace=1)
    assert tracking.tracker.held_out == alone.held_out == (RARE,)
    np.testing.assert_allclose(tracking.outcome.prototypes, outcome.prototypes, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(tracking.outcome.readout.covariance, outcome.readout.covariance, rtol=1e-9, atol=1e-12)
    assert [d.what for d in logged if d.classes == (RARE,)] == [
        "watched",
        "suspected",
        "deposited",
        "verdict",
        "departed",
        "held-out",
    ]
    assert {(number, held) for number, _, held in user.trained} == {(n, (RARE,) if n > 5 else ()) for n in range(1, 7)}
    numbers = result.evaluate_metrics_serverapp
    assert dict(numbers[0]) == {"loss": 0.25}
    assert dict(numbers[1]) == {"mpt-round": 1, "mpt-answered": 4, "mpt-problems": 0, "loss": 0.25}
    assert numbers[4]["mpt-class-2-remaining"] == 6
    assert 0 < numbers[6]["mpt-class-2-alpha"] == outcome.reconstructions[RARE].alpha
    step = outcome.prototypes[RARE] - alone.state.tracked[RARE].deposit.prototype
    assert numbers[6]["mpt-class-2-moved"] == pytest.approx(np.linalg.norm(step))
    status = read_status(open_store(tmp_path))
    assert status.round == 6
    assert status.problems == ("node vehicle-0 (10): no reply within the deadline",)
    failed = [d for d in logged if d.what == "failed"]
    assert {(d.vehicle, d.name, d.why) for d in failed} == {("10", "vehicle-0", "no reply within the deadline")}
    (suspected,) = [d for d in logged if d.what == "suspected"]
    assert (suspected.name, suspected.why) == ("vehicle-0", "no reply within the deadline")


def test_nothing_is_asked_before_the_first_round():
    grid = App().grid()
    tracking = Tracking(grid, tracker())
    assert tracking(0, model()) is None
    assert not grid.sent
    assert tracking.tracker.round == 0


def test_a_tracker_of_an_earlier_run_goes_on(capsys):
    server, _ = expected(3, 5, grace=1)
    grid = App().grid()
    grid.offline.add(10)
    tracking = Tracking(grid, Tracker.from_bytes(server.to_bytes()), train_config=ConfigRecord({"lr": 0.1}))
    assert dict(tracking.train_config) == {"lr": 0.1, HELD_OUT: [RARE]}
    assert tracking(1, model(6))["mpt-round"] == 6
    assert np.array_equal(tracking.outcome.prototypes, expected(3, 6, grace=1)[1].prototypes)
    grid.offline.clear()
    tracking(2, model(7))
    assert re.search(r"mpt: round 7: vehicle vehicle-0 \(10\) .*returned", capsys.readouterr().err)
    assert tracking.train_config[HELD_OUT] == []


def test_a_store_ahead_of_its_tracker_is_refused(tmp_path):
    store = open_store(tmp_path)
    tracking = Tracking(App().grid(), tracker(), store=store)
    for number in (1, 2):
        tracking(number, model(number))
    with pytest.raises(FleetError, match="it holds round 2, so one that is at round 0 would undo it"):
        Tracking(App().grid(), tracker(), store=store)
    assert Tracking(App().grid(), Tracker.from_bytes(store.latest().payload["tracker"]), store=store).tracker.round == 2


@pytest.mark.parametrize("shared", [True, False])
def test_two_trackings_do_not_write_to_one_place(shared, tmp_path):
    store = open_store(tmp_path)
    first = Tracking(App().grid(), tracker(), store=store)
    second = Tracking(App().grid(), tracker(), store=store if shared else open_store(tmp_path))
    first(1, model(1))
    kept = open_store(tmp_path).latest()
    with pytest.raises(FleetError, match="it holds round 1, so one that is at round 0 would undo it"):
        second(1, model(1))
    assert (open_store(tmp_path).latest(), second.outcome) == (kept, None)
    first(2, model(2))


def test_a_reference_model_in_the_store_that_is_wrong_is_one_sentence(tmp_path):
    store = open_store(tmp_path)
    store.save(0, {"tracker": tracker().to_bytes(), "model of round 0": b"nonsense"})
    with pytest.raises(FleetError, match=r"the part 'model of round 0' of round 0 is wrong \(.*; mpt fleet rollback"):
        Tracking(App().grid(), tracker(), store=store)


def test_from_a_loop_of_ones_own(tmp_path):
    leave = tmp_path / "leave"
    grid, server = App().grid(node_config={0: {"leave-file": str(leave)}}), tracker()
    ask_statistics(grid, server, model(1), round=1)
    ask_statistics(grid, server, model(2), round=2)
    leave.write_text("asked\n")
    outcome = ask_statistics(grid, server, model(3), round=3)
    assert whats(outcome, "10") == ["departed", "deposited", "held-out"]
    assert leave.read_text() == "answered\n"
    with pytest.raises(FleetError, match="round 3 is closed"):
        ask_statistics(grid, server, model(3), round=3)


def test_what_goes_wrong_is_said_and_harms_only_its_vehicle():
    user = App()
    right = user.embed

    def embed(arrays, context):
        features, labels = right(arrays, context)
        return (features[:, :3] if context.node_id == 11 else features), labels

    user.embed = embed
    del user.fleet.samples["c"]
    grid, server = user.grid(), tracker()
    grid.away.add(13)
    outcome = ask_statistics(grid, server, model(1), deadline=1.0)
    assert outcome.answered == ("10",)
    assert whats(outcome, "11") == ["refused"]
    said = [p.partition(":")[0] for p in outcome.problems]
    assert said == ["node vehicle-2 (12)", "node vehicle-3 (13)", "vehicle vehicle-1 (11)"]
    assert server.state.problems == outcome.problems


def test_two_nodes_with_one_id_and_an_id_that_is_none():
    user = App()
    grid, server = user.grid(node_config={}), tracker()
    grid.contexts[11].node_config["partition-id"] = 0
    outcome = ask_statistics(grid, server, model(1), ids="partition")
    assert outcome.answered == ("0", "2", "3")
    assert outcome.problems == ("node vehicle-1 (11): a second reply of vehicle 0",)
    assert "departed" not in whats(outcome, "0")
    del grid.contexts[12].node_config["partition-id"]
    grid.contexts[12].node_config["name"] = "x" * 2000
    user.embed = lambda *_: (np.zeros((1, D)), [C - 1])
    said = ask_statistics(grid, server, model(2), ids="partition").problems
    assert any(problem.startswith("node vehicle-2 (12): vehicle: 'xxx") for problem in said)


@pytest.mark.parametrize(("ids", "new"), [("node", 4), ("partition", 0)])
def test_in_a_simulation_a_store_knows_vehicles_by_their_partitions(ids, new, tmp_path):
    """Flower draws other node ids for every simulation; docs/reference/fleet.md says which ids to use."""
    for run in range(2):
        grid, logged = App().grid(), []
        grid.contexts = {node + 100 * run: context for node, context in grid.contexts.items()}
        grid.started = {node + 100 * run: "now" for node in grid.started}
        store = open_store(tmp_path)
        kept = store.latest()
        known = Tracker.from_bytes(kept.payload["tracker"]) if kept else tracker()
        Tracking(grid, known, ids=ids, store=store, log=logged.extend)(1, model(1 + run))
    assert len([d for d in logged if d.what == "joined"]) == new


def test_who_has_said_goodbye_is_not_asked_before_it_is_started_again(tmp_path):
    leave = tmp_path / "leave"
    leave.write_text("stays\n")
    grid = App().grid(node_config={0: {"leave-file": str(leave)}})
    tracking = Tracking(grid, tracker(), deadline=1.0)
    tracking(1, model(1))
    tracking(2, model(2))
    leave.write_text("asked\n")
    tracking(3, model(3))
    assert whats(tracking.outcome, "10") == ["departed", "deposited", "held-out"]
    grid.away.add(10)  # its SuperNode is ending: Flower still has it online, and it would not answer
    before = len(grid.sent)
    tracking(4, model(4))
    assert {message.metadata.dst_node_id for message in grid.sent[before:]} == {11, 12, 13}
    assert tracking.outcome.problems == ()
    leave.write_text("stays\n")
    grid.away.clear()
    grid.started[10] = "2026-11-16T11:00:00"
    tracking(5, model(5))
    assert "returned" in whats(tracking.outcome, "10")


def test_a_vehicle_that_is_not_there_could_not_be_reached():
    grid, logged = App().grid(), []
    tracking = Tracking(grid, tracker(class_names=["car", "van", "truck", "bus", "bike", "tram"]), log=logged.extend)
    tracking(1, model(1))
    tracking(2, model(2))
    grid.offline.add(10)
    tracking(3, model(3))
    (suspected,) = [d for d in logged if d.what == "suspected"]
    line = "round 3: vehicle vehicle-0 (10) class truck suspected: it could not be reached"
    assert str(suspected) == line


def shadowed(grid, store, logged):
    kept = store.latest()
    server = Tracker.from_bytes(kept.payload["tracker"]) if kept else tracker(grace=1, shadow=True)
    return Tracking(grid, server, log=logged.extend, store=store)


def test_in_shadow_mode_nothing_is_held_out_before_it_is_approved(tmp_path):
    user, logged, store = App(), [], open_store(tmp_path)
    grid = user.grid()
    tracking = shadowed(grid, store, logged)

    def evaluate(server_round, arrays):
        if server_round == 3:
            grid.offline.add(10)
        if server_round == 6:
            approve(store, [str(RARE)])

    tracking.evaluate = evaluate
    start = FedAvg(fraction_evaluate=0.0).start
    start(grid, model(), num_rounds=8, train_config=tracking.train_config, evaluate_fn=tracking)
    said = [(d.round, d.what) for d in logged if d.classes == (RARE,) and d.round > 4]
    assert said == [(5, "departed"), (5, "shadowed"), (7, "approved"), (7, "held-out")]
    assert {(number, held) for number, _, held in user.trained} == {(n, (RARE,) if n > 7 else ()) for n in range(1, 9)}
    assert np.array_equal(tracking.outcome.prototypes, expected(3, 8, grace=1)[1].prototypes)
    assert shadowed(grid, store, logged).train_config[HELD_OUT] == [RARE]


def test_a_share_is_asked_and_the_others_have_missed_nothing():
    grid = App().grid()
    server = tracker(grace=1)
    for number in range(1, 8):
        grid.sent.clear()
        outcome = ask_statistics(grid, server, model(number), share=0.5)
        assert len(grid.sent) == len(outcome.answered) == 2
    assert {m.state for m in server.roster.members.values()} == {"present"}
    assert len(server.roster.members) == 4
