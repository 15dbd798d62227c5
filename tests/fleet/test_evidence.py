"""Vehicles evaluate a round's readout on samples that they have set aside, and the server shows what came of it."""

import json
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.cli.render.status import print_status
from mpt.fleet import FleetError
from mpt.fleet.evaluation import request_of
from mpt.fleet.exchange import Ask, Failure, Reply
from mpt.fleet.metrics import prometheus
from mpt.fleet.policy import RoundPolicy
from mpt.fleet.status import EVIDENCE, read_status
from mpt.fleet.store import FileStore
from mpt.fleet.vehicle import load, set_aside
from mpt.learning import embed
from mpt.protocol.evaluation import EvaluationRequest, Evidence, wilson
from tests.fleet.served import OWNER, TRUCK, answering, everybody, fresh, new_vehicles, server

pytestmark = pytest.mark.usefixtures("one_thread")
SHARE = 0.4
POLICY = RoundPolicy(timeout=0.2, max_attempts=2, evaluate_every=2, validation=SHARE)


@pytest.fixture(scope="module")
def vehicles(dataset):
    """With validation samples, trucks among them: with the few that remain of these a fleet could set none aside."""
    split = [(v, *set_aside(v.samples, SHARE, np.random.default_rng(int(v.name)))) for v in new_vehicles(dataset)]
    made = [replace(v, samples=kept, validation=aside) for v, kept, aside in split]
    assert sum(int((v.validation.labels == TRUCK).sum()) for v in made[:OWNER]) > 0
    return made


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    return FileStore(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="module")
def rounds(dataset, vehicles, state):
    """Four rounds, of which the second and fourth are evaluated; the trucks' owner leaves after the second."""
    return list(server(dataset, everybody(vehicles), policy=POLICY, store=state).rounds(4))


def counted(dataset, finished, vehicles):
    """(C, C) over the validation samples of all, with the readout itself."""
    model, counts = fresh(dataset), np.zeros((dataset.num_classes,) * 2, dtype=int)
    load(model, finished.model)
    for vehicle in vehicles:
        features = embed(model, vehicle.validation.images).double().numpy()
        np.add.at(counts, (vehicle.validation.labels.numpy(), finished.outcome.readout.predict(features)), 1)
    return counts


def test_the_evidence_is_what_the_vehicles_samples_give(dataset, vehicles, rounds):
    assert [f.evidence is not None for f in rounds] == [False, True, False, True]
    for number, there in ((2, vehicles[:OWNER]), (4, vehicles[:OWNER])):
        found, expected = rounds[number - 1].evidence, counted(dataset, rounds[number - 1], there)
        np.testing.assert_array_equal(found.counts, expected)
        assert (found.round, found.vehicles) == (number, len(there))
    last, trucks = rounds[-1], [int((v.validation.labels == TRUCK).sum()) for v in vehicles[:OWNER]]
    assert last.outcome.tracked == (TRUCK,)
    n, total, low, high = last.evidence.recall(TRUCK)
    assert (n, total) == (expected[TRUCK, TRUCK], sum(trucks))
    assert (low, high) == wilson(n, total)


def test_samples_that_were_set_aside_are_neither_trained_on_nor_reported(dataset, vehicles, rounds):
    for vehicle, whole in zip(vehicles, new_vehicles(dataset), strict=True):
        assert len(vehicle.samples.labels) + len(vehicle.validation.labels) == len(whole.samples.labels)
        assert len(vehicle.validation.labels) == pytest.approx(SHARE * len(whole.samples.labels), abs=8)
    reported = rounds[0].outcome.statistics.counts.sum()
    assert reported == sum(len(v.samples.labels) for v in vehicles)
    trained = vehicles[0].answer(Ask("train", 1, rounds[0].model)).samples
    assert trained == len(vehicles[0].samples.labels)


def test_evaluating_changes_nothing_else(dataset, vehicles, rounds):
    without = server(dataset, everybody(vehicles))
    for left, right in zip(without.rounds(4), rounds, strict=True):
        np.testing.assert_array_equal(left.outcome.prototypes, right.outcome.prototypes)
        assert left.outcome.decisions == right.outcome.decisions
        assert (left.bytes_down < right.bytes_down) == (right.evidence is not None)


def test_status_metrics_and_page_show_it(rounds, state, capsys):
    status, found = read_status(state), rounds[-1].evidence
    assert (status.evidence_round, status.evidence_vehicles) == (4, 3)
    n, total, low, high = found.recall(TRUCK)
    written = json.loads(json.dumps(status.as_json(), allow_nan=False))["classes"][TRUCK]
    assert written["recall"] == {"right": n, "samples": total, "low": low, "high": high}
    name = status.classes[TRUCK].name
    assert status.classes[TRUCK].state == "departed"
    text = prometheus(status)
    assert f'mpt_fleet_class_recall{{class="{name}"}} {n / total!r}\n' in text
    assert f'mpt_fleet_class_recall_interval{{class="{name}",end="low"}} {low!r}\n' in text
    assert f'mpt_fleet_class_validation_samples{{class="{name}"}} {total}\n' in text
    print_status(status, None)
    shown = capsys.readouterr().out
    assert "evidence: validation samples on 3 vehicles, readout of round 4" in shown
    row = next(line for line in shown.split("95% interval")[1].splitlines() if line.split()[:1] == [name])
    assert row.split() == [name, "departed", f"{n}/{total}", "=", f"{n / total:.3f}", f"[{low:.3f},", f"{high:.3f}]"]


def test_a_checkpoint_resumes_with_it(dataset, vehicles, rounds, state):
    again = server(dataset, everybody(vehicles), policy=POLICY, store=state)
    assert again.resume() == 4
    assert again.evidence == rounds[-1].evidence
    assert again.checkpoint()[EVIDENCE] == rounds[-1].evidence.to_bytes()
    assert len(again.checkpoint()[EVIDENCE]) < 2000
    (fifth,) = again.rounds(5)
    assert fifth.evidence is None
    assert (read_status(state).round, read_status(state).evidence_round) == (5, 4)


@pytest.mark.parametrize("part", [b"", b"nonsense", Evidence(2, np.eye(3, dtype=int)).to_bytes()])
def test_evidence_that_cannot_be_read_hides_nothing_else(rounds, state, tmp_path, part):
    store = FileStore(tmp_path)
    store.save(4, {**state.latest().payload, EVIDENCE: part})
    status = read_status(store)
    assert status.evidence_round is None
    assert {c.recall for c in status.classes} == {None}


def wrong_answers(dataset, vehicle):
    """What a vehicle may reply to an evaluation, and what is said of it."""
    few, many = np.zeros((dataset.num_classes,) * 2, dtype=int), np.zeros((dataset.num_classes,) * 2, dtype=int)
    few[TRUCK, TRUCK], many[TRUCK, TRUCK] = 1, 10_000

    def reply(ask, answer, **changed):
        return replace(Reply(vehicle.name, ask.round, answer=answer), **changed)

    right = Evidence(2, few).to_bytes()
    return {
        "silent": (lambda ask: None, "late, evaluate: no reply within"),
        "older": (lambda ask: Failure("error 2: ValueError: no such query"), "evaluate: vehicle 1: error 2"),
        "nonsense": (lambda ask: reply(ask, b"nonsense"), "truncated"),
        "no answer": (lambda ask: reply(ask, None), "no answer"),
        "many": (lambda ask: reply(ask, Evidence(2, many).to_bytes()), "10000 validation samples of class 2"),
        "earlier": (lambda ask: reply(ask, Evidence(1, few).to_bytes()), "made for round 1"),
        "another": (lambda ask: reply(ask, right, vehicle="0"), "another vehicle's id"),
        "raising": (lambda ask: 1 / 0, "ZeroDivisionError"),
    }


@pytest.mark.parametrize("which", ["silent", "older", "nonsense", "no answer", "many", "earlier", "another", "raising"])
def test_who_does_not_evaluate_rightly_has_missed_nothing(dataset, vehicles, rounds, which):
    answer, said = wrong_answers(dataset, vehicles[1])[which]

    def hostile(ask):
        return answer(ask) if ask.kind == "evaluate" else answering(vehicles[1])(ask)

    made = server(dataset, everybody(vehicles, _1=hostile), policy=POLICY)
    finished = list(made.rounds(2))[-1]
    np.testing.assert_array_equal(finished.evidence.counts, counted(dataset, finished, [vehicles[0], vehicles[2]]))
    assert finished.evidence.vehicles == 2
    assert any(said in problem for problem in finished.outcome.problems), finished.outcome.problems
    assert finished.outcome.answered == rounds[1].outcome.answered
    assert finished.outcome.decisions == rounds[1].outcome.decisions
    assert made.tracker.roster.state("1") == "present"


def test_a_goodbye_in_an_evaluation_is_none(dataset, vehicles):
    def leaving(ask):
        return vehicles[1].answer(ask, leaving=ask.kind == "evaluate")

    made = server(dataset, everybody(vehicles, _1=leaving), policy=POLICY)
    finished = list(made.rounds(3))[-1]
    assert "1" in finished.outcome.answered
    assert made.evidence.vehicles == 3


def test_where_nobody_evaluates_the_evidence_is_as_it_was(dataset, vehicles):
    def older(vehicle):
        return lambda ask: Failure("older") if ask.kind == "evaluate" and ask.round == 2 else answering(vehicle)(ask)

    changed = {f"_{v.name}": older(v) for v in vehicles}
    made = server(dataset, everybody(vehicles, **changed), policy=replace(POLICY, evaluate_every=1))
    first, second = made.rounds(2)
    assert (first.evidence.vehicles, second.evidence) == (4, None)
    assert made.evidence == first.evidence
    assert "evaluate: no vehicle has counted, so the evidence is as it was" in second.outcome.problems


def test_a_readout_that_is_no_linear_layer_is_left_out(dataset, vehicles, rounds):
    class Table:
        def predict(self, features):
            return np.zeros(len(features), dtype=int)

    for readout, why in ((Table(), "the readout is no linear layer"), (None, "no class has a prototype")):
        with pytest.raises(FleetError, match=why):
            request_of(replace(rounds[0].outcome, readout=readout))


def test_a_vehicle_without_validation_samples_counts_none(vehicles, rounds):
    request = request_of(rounds[-1].outcome)
    ask = Ask("evaluate", 4, rounds[-1].model, request=request.to_bytes())
    nothing = request.read(replace(vehicles[0], validation=None).answer(ask).answer)
    assert nothing.samples.sum() == 0
    few = request.read(replace(vehicles[0], min_samples=1000).answer(ask).answer)
    assert few.samples.sum() == 0
    with pytest.raises(FleetError, match="request: of round 4, but the message is of round 5"):
        vehicles[0].answer(replace(ask, round=5))
    assert EvaluationRequest.from_bytes(ask.request) == request


def test_evaluations_need_samples():
    with pytest.raises(FleetError, match="validation: 0, should be above 0 where evaluate_every is"):
        RoundPolicy(evaluate_every=1)
