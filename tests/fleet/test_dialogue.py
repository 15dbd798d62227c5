"""A round of several questions: who vanishes between two of them was not there, and the log says so."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.fleet import FleetError, Tracker
from mpt.fleet.exchange import Failure
from mpt.fleet.store import FileStore
from mpt.methods import find_part
from mpt.protocol.further import is_further
from mpt.tracking import method_state
from tests.fleet.served import OWNER, TRUCK, answering, new_vehicles, server

METHOD = "tests/fleet/two_questions.py:Shrunk"
pytestmark = pytest.mark.usefixtures("one_thread", "in_float32")


def five(dataset, method=METHOD, **changed):
    """Four vehicles and the trucks' owner, which leaves after round 2; the last of the four has no trucks."""
    vehicles = [replace(vehicle, method=method) for vehicle in new_vehicles(dataset)]
    twin = replace(vehicles[0], name="9", memory={})
    made = {f"node {v.name}": answering(v, leaves_after=2 if v.name == str(OWNER) else None) for v in (*vehicles, twin)}
    return made | changed


def vanishing(answer, number):
    """In a round: a vehicle that answers the first question and is gone for the second."""

    def instead(ask):
        further = ask.kind == "report" and ask.round == number and is_further(ask.request)
        return Failure("it drove into a tunnel") if further else answer(ask)

    return instead


def test_a_method_with_two_questions_of_ones_own(dataset):
    nodes, heard = five(dataset), []
    answer = nodes["node 1"]
    nodes["node 1"] = lambda ask: heard.append((ask.round, ask.kind)) or answer(ask)
    running = server(dataset, nodes, METHOD)
    rounds = list(running.rounds(4))
    assert [kind for r, kind in heard if r == 2] == ["train", "report"]
    assert [kind for r, kind in heard if r == 3] == ["train", "report", "report"]
    state = method_state.from_bytes(running.tracker.state.tracked[TRUCK].method_state, running.tracker.settings.speaks)
    for finished in rounds[2:]:
        assert finished.outcome.tracked == (TRUCK,)
        assert (finished.outcome.prototypes[TRUCK] > state.prototype).all()


def test_who_vanishes_between_two_questions_was_not_there(dataset):
    nodes, said = five(dataset), []
    without = dict(nodes)
    nodes["node 9"] = vanishing(nodes["node 9"], 3)
    running = server(dataset, nodes, METHOD, log=said.extend)
    first = list(running.rounds(3))[-1]

    def away(ask, answer=without["node 9"]):
        return Failure("it drove into a tunnel") if ask.kind == "report" and ask.round == 3 else answer(ask)

    other = server(dataset, five(dataset, **{"node 9": away}), METHOD)
    second = list(other.rounds(3))[-1]
    assert first.outcome.answered == second.outcome.answered == ("0", "1", "2")
    assert first.outcome.statistics == second.outcome.statistics
    np.testing.assert_array_equal(first.outcome.prototypes, second.outcome.prototypes)
    lines = [str(decision) for decision in said if decision.round == 3]
    assert any("9" in line and "suspected" in line and "not question 2" in line for line in lines), lines
    assert any("tunnel" in line for line in lines)
    assert any("not question 2" in problem for problem in first.outcome.problems)


def test_it_resumes_from_a_checkpoint(dataset, tmp_path):
    whole = [r.outcome.prototypes for r in server(dataset, five(dataset), METHOD).rounds(4)]
    store = FileStore(tmp_path)
    list(server(dataset, five(dataset), METHOD, store=store).rounds(3))
    again = server(dataset, five(dataset), METHOD, store=store)
    assert again.resume() == 3
    (last,) = again.rounds(4)
    np.testing.assert_array_equal(last.outcome.prototypes, whole[-1])


def test_a_vehicle_without_the_method_says_so(dataset):
    nodes = five(dataset)
    stranger = new_vehicles(dataset)[0]
    nodes["node 0"] = answering(stranger)
    last = list(server(dataset, nodes, METHOD).rounds(3))[-1]
    assert last.outcome.answered == ("0", "1", "2", "9")
    assert last.outcome.tracked == (TRUCK,)
    assert not last.outcome.reconstructions
    (said,) = [problem for problem in last.outcome.problems if "vehicle 0" in problem]
    assert "neither installed on this vehicle nor bundled" in said


def test_questions_that_follow_need_somebody_to_ask_them():
    tracker, rng = Tracker(num_classes=3, dim=2, method=METHOD, watch=(2,)), np.random.default_rng(0)

    def close(vehicles, **given):
        question = tracker.question()
        labels = {"a": [0, 1] * 20, "b": [0, 1] * 20, "c": [0, 1, 2] * 20}
        answers = {v: question.answer(rng.standard_normal((len(labels[v]), 2)), labels[v]) for v in vehicles}
        return tracker.close(answers, **given)

    close("abc")
    close("abc", leaving=["c"])
    with pytest.raises(FleetError, match="asks several times in a round"):
        close("ab")
    assert tracker.round == 2


def test_answers_come_one_by_one():
    """`receive` and `take`, as somebody drives them who has another transport."""
    tracker, rng = Tracker(num_classes=3, dim=2, method=METHOD, watch=(2,)), np.random.default_rng(0)
    labels = {"a": np.array([0, 1] * 20), "b": np.array([0, 1] * 20), "c": np.array([0, 1, 2] * 20)}
    features = {v: rng.standard_normal((len(mine), 2)) for v, mine in labels.items()}
    find = lambda method, part: find_part(method, part, METHOD)  # noqa: E731

    def told(question, vehicles):
        for v in vehicles:
            tracker.receive(v, question.answer(features[v], labels[v], find=find))

    for leaving in ((), ("c",)):
        told(tracker.begin(), "abc")
        assert tracker.take(leaving).round == tracker.round
    told(tracker.begin(), "ab")
    with pytest.raises(FleetError, match="a second answer"):
        tracker.receive("a", b"")
    more = tracker.take()
    assert (more.vehicles, more.references) == (("a", "b"), ())
    told(more.further, "ab")
    outcome = tracker.take()
    assert (outcome.round, outcome.tracked, outcome.problems) == (3, (2,), ())
    both = np.concatenate([features["a"], features["b"]])
    kept = features["c"][labels["c"] == 2].mean(axis=0)
    moved = np.abs(both - both.mean(axis=0)).mean(axis=0)
    np.testing.assert_allclose(outcome.prototypes[2], kept + moved, rtol=1e-5)


def test_a_second_question_may_need_the_departure_time_model(dataset):
    """Vehicles keep features under it although the first question does not name it, and nobody is sent it."""
    method, sent = METHOD.replace("Shrunk", "Compared"), []
    nodes = five(dataset, method)
    watched = {n: (lambda ask, answer=a: sent.extend(ask.models) or answer(ask)) for n, a in nodes.items()}
    rounds = list(server(dataset, watched, method).rounds(6))
    assert sent == []
    for finished in rounds[2:]:
        assert finished.outcome.tracked == (TRUCK,)
        assert not finished.outcome.reconstructions
        assert not [problem for problem in finished.outcome.problems if "as by mpt" in problem]


def test_a_goodbye_with_the_second_answer_is_heard(dataset):
    nodes = five(dataset)
    answer = nodes["node 9"]

    def leaves(ask):
        reply = answer(ask)
        return replace(reply, leaving=ask.round == 3 and ask.kind == "report" and is_further(ask.request))

    nodes["node 9"] = leaves
    last = list(server(dataset, nodes, METHOD).rounds(3))[-1]
    assert [(d.what, d.vehicle) for d in last.outcome.decisions if d.vehicle == "9"] == [("departed", "9")]
