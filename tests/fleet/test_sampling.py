"""A fleet in which a share of the vehicles is asked in a round: who is not asked has missed nothing."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.fleet.exchange import Failure
from mpt.fleet.policy import RoundPolicy
from mpt.tracking.sampling import asked_in, drawn
from tests.fleet.served import OWNER, VEHICLES, answering, new_vehicles, server

pytestmark = pytest.mark.usefixtures("one_thread")
HALF = RoundPolicy(timeout=0.2, max_attempts=2, train_share=0.5, report_share=0.5)


@pytest.fixture(scope="module")
def vehicles(dataset):
    return new_vehicles(dataset)


def listening(vehicles, away=()):
    """All vehicles, and what each was asked by kind and round; those that are away report once, and then fail."""
    asked = {("train", v.name): [] for v in vehicles} | {("report", v.name): [] for v in vehicles}

    def answer(vehicle):
        speak = answering(vehicle)

        def heard(ask):
            asked[ask.kind, vehicle.name].append(ask.round)
            gone = vehicle.name in away and len(asked["report", vehicle.name]) > 1
            return Failure("it is away") if gone else speak(ask)

        return heard

    return {f"node {v.name}": answer(v) for v in vehicles}, asked


def test_half_of_them_train_and_half_report_and_nobody_is_missed(dataset, vehicles):
    answers, asked = listening(vehicles)
    made = server(dataset, answers, policy=HALF)
    for finished in made.rounds(6):
        for kind in ("train", "report"):
            assert sum(finished.round in rounds for (of, _), rounds in asked.items() if of == kind) == VEHICLES // 2
        assert finished.asked == finished.updated == VEHICLES // 2
        assert len(finished.outcome.answered) == VEHICLES // 2
    assert {m.state for m in made.tracker.roster.members.values()} == {"present"}
    assert not any(d.what in ("suspected", "departed", "lost") for d in made.tracker.state.decisions)
    assert len({tuple(rounds) for rounds in asked.values()}) > 2  # not always the same half


def test_a_silent_one_departs_by_the_questions_that_it_was_asked(dataset, vehicles):
    answers, asked = listening(vehicles, away=(str(OWNER),))
    made = server(dataset, answers, policy=HALF)
    departed = None
    for finished in made.rounds(14):
        state = made.tracker.roster.state(str(OWNER))
        if state == "departed" and departed is None:
            departed = finished.round
    _, first, second, *_ = asked["report", str(OWNER)]
    assert second > first + 1  # it was not asked in every round
    assert departed == second  # a grace of one question: the second that it misses


def test_the_same_are_drawn_after_a_restart():
    nodes = [str(i) for i in range(3000)]
    first, again = (drawn(nodes, 0.02, least=2, seed=0, purpose="report", round=7) for _ in range(2))
    assert first == again
    assert len(first) == 60
    assert first != drawn(nodes, 0.02, least=2, seed=0, purpose="report", round=8)
    assert first != drawn(nodes, 0.02, least=2, seed=0, purpose="report", round=7, attempt=2)
    assert drawn(nodes[:3], 0.02, least=2, seed=0, purpose="train", round=1) < set(nodes[:3])
    assert drawn(nodes, 1.0, least=2, seed=0, purpose="train", round=1) == set(nodes)


def test_a_draw_of_vehicles_that_answer_rubbish_does_not_stop_the_fleet(dataset, vehicles):
    answers, _ = listening(vehicles)
    rubbish = {f"node {v.name}" for v in vehicles[:2]}

    def garbled(speak):
        def answer(ask):
            reply = speak(ask)
            return replace(reply, answer=b"rubbish") if ask.kind == "report" and ask.round > 1 else reply

        return answer

    spoilt = {node: garbled(speak) if node in rubbish else speak for node, speak in answers.items()}
    made = server(dataset, spoilt, policy=HALF)
    rounds = list(made.rounds(8))
    assert [one.round for one in rounds] == list(range(1, 9))
    assert all(set(one.outcome.answered) <= {v.name for v in vehicles[2:]} for one in rounds[1:])
    assert min(len(one.outcome.answered) for one in rounds[1:]) > 0


def test_of_those_who_departed_a_share_is_asked_too_in_nobodys_place():
    there, gone = [f"there {i}" for i in range(100)], [f"gone {i}" for i in range(50)]
    asked = asked_in(there, gone, 0.1, seed=0, round=3, least=2)
    assert len(asked & set(there)) == 10
    assert len(asked & set(gone)) == 5
    assert asked_in(there, [], 0.1, seed=0, round=3, least=2) == asked & set(there)
