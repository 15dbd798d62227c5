"""A whole fleet in one process: the server's rounds, what it refuses, and resuming after a crash."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.federation.engine import Federation
from mpt.federation.plan import Plan
from mpt.fleet import FleetError
from mpt.fleet.evaluation import evaluate_readout
from mpt.fleet.exchange import Failure, Reply
from mpt.fleet.local import LocalTransport
from mpt.fleet.local_data import named, samples
from mpt.fleet.policy import RoundPolicy
from mpt.fleet.reference_models import packed, unpacked
from mpt.fleet.store import FileStore, SqliteStore
from tests.fleet.served import AS_TRAINED, OWNER, TRUCK, VEHICLES, answering, everybody, fresh, new_vehicles, server

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def vehicles(dataset):
    return new_vehicles(dataset)


@pytest.fixture(scope="module")
def calm(dataset, vehicles):
    """Four undisturbed rounds."""
    return list(server(dataset, everybody(vehicles)).rounds(4))


def same(left, right):
    assert left.round == right.round
    assert all(np.array_equal(left.model[name], right.model[name]) for name in right.model)
    np.testing.assert_array_equal(left.outcome.prototypes, right.outcome.prototypes)
    assert left.outcome.decisions == right.outcome.decisions


def test_it_does_what_the_one_machine_engine_does(dataset, calm):
    plan = Plan(
        rare=TRUCK, methods=("mpt",), vehicles=VEHICLES, remaining=0.1, rounds=4, depart_at=2, eval_every=1,
        **AS_TRAINED,
    )  # fmt: skip
    federation = Federation(dataset, plan, torch.device("cpu"))
    state = federation.start()
    for finished in calm:
        state, rows = federation.advance(state)
        model = state.models["held-out"].tensors
        apart = [np.abs(finished.model[k] - model[k].numpy()).max() for k in model]
        assert max(apart) < 1e-5
        tested = samples(dataset.test)
        found = evaluate_readout(fresh(dataset), finished.model, finished.outcome.readout, tested, dataset.classes)
        assert found["f1"]["truck"] == pytest.approx(rows[0].f1, abs=0.02)
        assert found["accuracy"] == pytest.approx(rows[0].scores.accuracy, abs=0.02)


def test_an_announced_leave_is_deposited_and_held_out(calm):
    what = [(d.round, d.what, d.vehicle, d.classes) for f in calm for d in f.outcome.decisions]
    assert [w for w in what if w[1] not in ("joined", "verdict")] == [
        (2, "departed", str(OWNER), (TRUCK,)),
        (2, "deposited", str(OWNER), (TRUCK,)),
        (2, "held-out", str(OWNER), (TRUCK,)),
    ]
    assert [sorted(f.outcome.reconstructions) for f in calm] == [[], [], [TRUCK], [TRUCK]]
    assert [(f.asked, f.updated, len(f.outcome.answered)) for f in calm] == [(4, 4, 4), (4, 4, 4), (4, 3, 3), (4, 3, 3)]
    assert "train: vehicle 3: it has left" in calm[2].outcome.problems


def test_bytes_are_those_of_models_and_statistics(calm):
    model = sum(array.nbytes for array in calm[0].model.values())
    assert calm[0].bytes_down == pytest.approx(8 * model, rel=0.01)
    assert calm[0].bytes_up > 4 * model


@pytest.mark.parametrize("kind", ["file", "sqlite"])
@pytest.mark.parametrize("moment", ["before saving", "after saving", "while training"])
def test_killed_at_any_moment_it_resumes_to_the_same_result(dataset, vehicles, calm, tmp_path, kind, moment):
    store = FileStore(tmp_path) if kind == "file" else SqliteStore(tmp_path / "fleet.db")

    class CrashError(Exception):
        pass

    class Crashing:
        def save(self, number, payload):
            if number == 3 and moment == "before saving":
                raise CrashError
            store.save(number, payload)
            if number == 3 and moment == "after saving":
                raise CrashError

        def latest(self):
            return store.latest()

    def crash(ask):
        if ask.round == 3 and moment == "while training":
            raise KeyboardInterrupt
        return answering(vehicles[1])(ask)

    with pytest.raises((CrashError, KeyboardInterrupt)):
        list(server(dataset, everybody(vehicles, _1=crash), store=Crashing()).rounds(4))
    again = server(dataset, everybody(vehicles), store=store)
    resumed = again.resume()
    assert resumed == (3 if moment == "after saving" else 2)
    rest = list(again.rounds(4))
    assert [f.round for f in rest] == list(range(resumed + 1, 5))
    for left, right in zip(rest, calm[resumed:], strict=True):
        same(left, right)


def test_a_state_that_cannot_be_read_is_neither_resumed_nor_written_over(dataset, vehicles, calm, tmp_path):
    list(server(dataset, everybody(vehicles), store=FileStore(tmp_path)).rounds(3))
    files = sorted(tmp_path.glob("*.checkpoint"))
    whole = files[0].read_bytes()
    for path in files:
        path.write_bytes(path.read_bytes()[:1000])
    again = server(dataset, everybody(vehicles), store=FileStore(tmp_path))
    with pytest.raises(FleetError, match="no checkpoint can be read"):
        again.resume()
    assert {path.stat().st_size for path in tmp_path.glob("*.checkpoint")} == {1000}
    files[0].write_bytes(whole)
    assert again.resume() == 1
    for left, right in zip(again.rounds(3), calm[1:3], strict=True):
        same(left, right)
    assert FileStore(tmp_path).latest().round == 3


def test_a_state_of_another_app_is_not_resumed(dataset, vehicles, tmp_path):
    store = FileStore(tmp_path)
    store.save(3, {"tracker": b""})
    with pytest.raises(FleetError, match="store: round 3 has no 'key', it is not a server's"):
        server(dataset, everybody(vehicles), store=store).resume()


def test_a_state_of_other_settings_is_not_resumed(dataset, vehicles, tmp_path):
    list(server(dataset, everybody(vehicles), store=FileStore(tmp_path), key={"lr": 0.01}).rounds(1))
    other = server(dataset, everybody(vehicles), store=FileStore(tmp_path), key={"lr": 0.02})
    with pytest.raises(FleetError, match=r"it holds a fleet with lr 0\.01, not 0\.02"):
        other.resume()
    assert other.tracker.round == 0


def spoiled(vehicle, change):
    def answer(ask):
        return change(vehicle.answer(ask), ask)

    return answer


def nan(reply, ask):
    if reply.model is None:
        return reply
    return replace(reply, model={**reply.model, "head.bias": np.full_like(reply.model["head.bias"], np.nan)})


def shape(reply, ask):
    return reply if reply.model is None else replace(reply, model={**reply.model, "head.bias": np.zeros(3, np.float32)})


def names(reply, ask):
    return reply if reply.model is None else replace(reply, model={"other": np.zeros(1, np.float32)})


def late(reply, ask):
    return replace(reply, round=ask.round - 1)


def many(reply, ask):
    return replace(reply, samples=2**40)


def nothing(reply, ask):
    return replace(reply, answer=b"") if reply.answer is not None else reply


def double(reply, ask):
    return replace(reply, vehicle="0")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (nan, "head.bias has entries that are NaN or infinite"),
        (shape, "head.bias is torch.float32 of shape (3,), should be torch.float32 of shape (8,)"),
        (names, "is missing"),
        (late, "a reply of round 0 in round 1"),
        (many, "samples: 1099511627776, should be from 1 to"),
        (nothing, "0 bytes"),
        (double, "a second reply under the same id"),
    ],
)
def test_a_wrong_reply_is_refused_and_the_round_goes_on(dataset, vehicles, change, said):
    logged = []
    answers = everybody(vehicles, _1=spoiled(vehicles[1], change))
    finished = next(server(dataset, answers, log=logged.extend).rounds(1))
    refused = [d for d in logged if d.what == "refused"]
    assert refused, logged
    assert any(said in d.why for d in refused), refused
    assert finished.updated == (4 if change is nothing else 3)
    assert all(np.isfinite(array).all() for array in finished.model.values())
    assert len(finished.outcome.answered) == (3 if change in (late, nothing, double) else 4)


def test_below_the_quorum_the_round_is_tried_again(dataset, vehicles):
    attempts = {"0": 0, "1": 0, "2": 0}

    def flaky(vehicle):
        def answer(ask):
            if ask.kind == "train":
                attempts[vehicle.name] += 1
                if attempts[vehicle.name] == 1:
                    return Failure("not ready")
            return vehicle.answer(ask)

        return answer

    logged = []
    answers = {f"node {v.name}": flaky(v) if v.name in attempts else answering(v) for v in vehicles}
    finished = next(server(dataset, answers, log=logged.extend).rounds(1))
    assert finished.updated == 4
    assert attempts == {"0": 2, "1": 2, "2": 2}
    assert [str(d) for d in logged[:4]] == [
        "round 1: vehicle node 0 failed: train: not ready",
        "round 1: vehicle node 1 failed: train: not ready",
        "round 1: vehicle node 2 failed: train: not ready",
        "round 1: short: 1 of 4 updates, 2 needed (attempt 1 of 2)",
    ]


class Clock:
    """Time that passes by sleeping only."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("mpt.fleet.server.time", clock)
    return clock


POLICY = RoundPolicy(min_vehicles=1, quorum=0.5, timeout=600, max_attempts=3)


def outage(vehicles, clock, until, *, seen=True):
    """While vehicle 0 trains, the others go offline, and are back at a time; the server may see that or not."""
    gone = []

    def first(ask):
        gone.append(True)
        return vehicles[0].answer(ask)

    def down():
        return bool(gone) and clock.now < until

    def others(vehicle):
        return lambda ask: Failure("error 3: node is offline") if down() else vehicle.answer(ask)

    answers = {f"node {v.name}": first if v.name == "0" else others(v) for v in vehicles}
    return LocalTransport(answers, away=lambda node, number: seen and down() and node != "node 0")


@pytest.mark.parametrize(("back", "seen", "shorts"), [(500, True, 1), (100, False, 2)])
def test_an_outage_of_most_vehicles_is_waited_out(dataset, vehicles, clock, back, seen, shorts):
    logged = []
    made = server(dataset, outage(vehicles, clock, back, seen=seen), policy=POLICY, log=logged.extend)
    finished = next(made.rounds(1))
    assert finished.updated == 4
    assert clock.now >= back
    assert [d.what for d in logged].count("short") == shorts


def test_an_outage_that_does_not_end_ends_the_server(dataset, vehicles, clock):
    with pytest.raises(FleetError, match=r"1 of 4 updates, 2 needed \(attempt 3 of 3\)"):
        next(server(dataset, outage(vehicles, clock, float("inf")), policy=POLICY).rounds(1))
    assert clock.now > 2 * POLICY.timeout


def test_no_round_waits_for_ever(dataset, vehicles, tmp_path):
    def silent(ask):
        return Failure("nothing")

    mute = {f"node {v.name}": answering(v) if v.name == "0" else silent for v in vehicles}
    mute["node 1"], logged = spoiled(vehicles[1], nan), []
    said = r"1 of 4 updates, 2 needed .*; the commonest reason, 4 of 5 times: train: nothing; start the server again"
    with pytest.raises(FleetError, match=rf"round 1: {said}"):
        next(server(dataset, mute, store=FileStore(tmp_path), log=logged.extend).rounds(1))
    assert [d.what for d in logged] == ["refused", "failed", "failed", "short", "failed", "failed", "short"]
    assert FileStore(tmp_path).latest() is None
    nobody = LocalTransport(everybody(vehicles), away=lambda node, number: True)
    with pytest.raises(FleetError, match=r"round 1: 0 vehicles can be reached after 0\.2 s, at least 2 are needed"):
        next(server(dataset, nobody).rounds(1))


def test_one_that_vanishes_is_suspected_and_one_that_returns_is_measured_again(dataset, vehicles):
    def at_times(ask):
        if ask.round in (3, 4):
            return Failure("gone")
        return vehicles[OWNER].answer(ask)

    logged = []
    answers = everybody(vehicles, **{f"_{OWNER}": at_times})
    rounds = list(server(dataset, answers, log=logged.extend).rounds(5))
    assert {(d.round, d.vehicle, d.why) for d in logged if d.what == "failed"} == {
        (number, str(OWNER), f"{half}: gone") for number in (3, 4) for half in ("train", "report")
    }
    mine = [(d.round, d.what) for d in logged if d.what not in ("joined", "failed")]
    assert mine[:2] == [(3, "suspected"), (3, "deposited")]
    assert (4, "departed") in mine
    assert (4, "held-out") in mine
    assert (5, "returned") in mine
    assert (5, "recovered") in mine
    assert [sorted(f.outcome.reconstructions) for f in rounds] == [[], [], [TRUCK], [TRUCK], []]


def test_models_keep_their_bits_in_a_checkpoint(calm):
    back = unpacked(packed(calm[0].model))
    assert back.keys() == calm[0].model.keys()
    assert all(back[k].dtype == v.dtype and np.array_equal(back[k], v) for k, v in calm[0].model.items())


def test_a_vehicles_own_dataset_is_read_by_its_classes_names(dataset):
    classes = ("bus", *[c for c in dataset.classes if c != "bus"])
    held, unknown = named(samples(dataset.train), dataset, classes)
    assert [classes[i] for i in held.labels.tolist()] == [dataset.classes[i] for i in dataset.train.labels]
    assert unknown == {}


def test_classes_that_the_fleet_does_not_know_are_left_out_and_counted(dataset):
    held, unknown = named(samples(dataset.train), dataset, ("bus", "truck"))
    counts = dict(zip(dataset.classes, dataset.train.counts(len(dataset.classes)).tolist(), strict=True))
    assert torch.bincount(held.labels).tolist() == [counts["bus"], counts["truck"]]
    assert unknown == {name: n for name, n in counts.items() if name not in ("bus", "truck")}
    where = {name: i for i, name in enumerate(dataset.classes)}
    first = dataset.train.images[dataset.train.labels == where["bus"]][0]
    np.testing.assert_array_equal(held.images[held.labels == 0][0].permute(1, 2, 0).numpy(), first)


def test_a_vehicle_that_leaves_does_not_train(vehicles, calm):
    from mpt.fleet.exchange import Ask

    ask = Ask("train", 1, calm[0].model)
    assert vehicles[0].answer(ask, leaving=True).model is None
    held_out = tuple(range(8))
    assert vehicles[0].answer(replace(ask, held_out=held_out)).samples == 0
    assert isinstance(vehicles[0].answer(ask), Reply)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"deadline": 0}, "deadline: 0, should be a number of seconds above 0"),
        ({"quorum": 0}, "quorum: 0, should be above 0"),
        ({"quorum": 1.5}, "quorum: 1.5, should be at most 1"),
        ({"min_vehicles": 0}, "min_vehicles: 0, should be at least 1"),
        ({"max_attempts": 0}, "max_attempts: 0, should be at least 1"),
        ({"timeout": float("nan")}, "timeout: nan, should be a finite number"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(given, message):
    with pytest.raises(FleetError, match=message):
        RoundPolicy(**given)
