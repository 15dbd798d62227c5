"""What one hostile vehicle may send to a server: its reply is refused, the round goes on, and the next one is right."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.fleet import FileStore, FleetError
from mpt.fleet.exchange import Failure
from mpt.fleet.judge import unusable
from mpt.fleet.local import LocalTransport
from mpt.fleet.operate import ban
from mpt.fleet.patience import Patience
from mpt.fleet.policy import RoundPolicy
from mpt.fleet.status import read_status
from tests.fleet.served import OWNER, TRUCK, answering, new_vehicles, server

VILLAIN = 1


@pytest.fixture(scope="module")
def vehicles(dataset):
    return new_vehicles(dataset)


def hostile(vehicle, attack, rounds=(2,)):
    """What answers for a vehicle that attacks in some rounds."""

    def answer(ask):
        reply = vehicle.answer(ask)
        return attack(ask, reply) if ask.round in rounds else reply

    return answer


def run(dataset, vehicles, attack, rounds=(2,), last=3, **given):
    """A fleet of four, of which nobody leaves and one attacks: the server, what was logged, and the rounds."""
    said = []
    nodes = {f"node {v.name}": answering(v) for v in vehicles}
    nodes[f"node {VILLAIN}"] = hostile(vehicles[VILLAIN], attack, rounds)
    running = server(dataset, nodes, log=said.extend, **given)
    return running, said, list(running.rounds(last))


def huge(reply, size):
    model = {name: array.copy() for name, array in reply.model.items()}
    model["backbone.layers.0.weight"].flat[0] = size
    return replace(reply, model=model)


def scaled(reply, factor):
    """Every weight of the backbone is in bounds, and what it gives is not."""
    return replace(reply, model={n: a * factor if n.endswith(".weight") else a for n, a in reply.model.items()})


@pytest.mark.parametrize(
    ("poison", "size", "why"),
    [(huge, 3e38, "has numbers up to 3.0e+38"), (scaled, np.float32(1e4), "it gives features up to")],
)
def test_row_3_finite_weights_that_nobody_can_use(dataset, vehicles, poison, size, why, tmp_path):
    """The update is refused by name; the model stays right, and so does the newest checkpoint."""

    def attack(ask, reply):
        return poison(reply, size) if ask.kind == "train" else reply

    _, said, done = run(dataset, vehicles, attack, store=FileStore(tmp_path))
    assert [f.updated for f in done] == [4, 3, 4]
    (refusal,) = [d for d in said if d.what == "refused"]
    assert (refusal.round, refusal.vehicle) == (2, str(VILLAIN))
    assert why in refusal.why
    assert len(str(refusal)) <= 300
    assert [len(f.outcome.answered) for f in done] == [4, 4, 4]
    again = server(dataset, {f"node {v.name}": answering(v) for v in vehicles}, store=FileStore(tmp_path))
    assert again.resume() == 3
    assert unusable(again.architecture, again.model) == ""
    assert len(next(again.rounds(4)).outcome.answered) == 4


def poisoned(vehicles):
    """Nodes of which the villain sends a weight of 1e8 from round 2 on, and nobody can use a model with such a one."""

    def attack(ask, reply):
        return huge(reply, 1e8) if ask.kind == "train" else reply

    def breaks(vehicle):
        def answer(ask):
            if ask.kind == "report" and np.abs(ask.model["backbone.layers.0.weight"]).max() > 1e3:
                return Failure("StatisticsError: features: too large")
            return vehicle.answer(ask)

        return answer

    nodes = {f"node {v.name}": breaks(v) for v in vehicles}
    poisons, reports = hostile(vehicles[VILLAIN], attack, range(2, 99)), nodes[f"node {VILLAIN}"]
    nodes[f"node {VILLAIN}"] = lambda ask: (poisons if ask.kind == "train" else reports)(ask)
    return nodes


def test_row_3_a_poisoned_update_counts_for_next_to_nothing_and_is_named(dataset, vehicles):
    said = []
    running = server(dataset, poisoned(vehicles), log=said.extend)
    done = list(running.rounds(3))
    assert [f.updated for f in done] == [4, 4, 4]
    assert np.abs(done[-1].model["backbone.layers.0.weight"]).max() < 10
    (clipped,) = [d for d in said if d.what == "clipped" and d.vehicle == str(VILLAIN)]
    assert clipped.round == 2
    assert clipped.why == "train: 0.0% of its update counts, by weight and length"
    assert not [d for d in said if d.what in ("rejected", "quarantined")]


def test_row_3_a_model_that_nobody_can_report_on_is_given_up_and_its_author_kept_apart(dataset, vehicles, tmp_path):
    """Where updates are averaged as they are, the round is done again from the model before."""
    said, policy = [], RoundPolicy(timeout=0.2, max_attempts=2, aggregation="average")
    running = server(dataset, poisoned(vehicles), log=said.extend, store=FileStore(tmp_path), policy=policy)
    done = list(running.rounds(3))
    assert [f.updated for f in done] == [4, 3, 3]
    (rejected,) = [d for d in said if d.what == "rejected"]
    assert "nobody could report on it" in rejected.why
    (apart,) = [d for d in said if d.what == "quarantined"]
    assert (apart.round, apart.vehicle) == (2, str(VILLAIN))
    assert running.tracker.roster.state(str(VILLAIN)) == "quarantined"
    assert running.tracker.state.tracked == {}
    assert np.abs(done[-1].model["backbone.layers.0.weight"]).max() < 1e3
    (shown,) = [v for v in read_status(FileStore(tmp_path)).vehicles if v.state == "quarantined"]
    assert "weights up to 1.0e+08" in shown.why


def test_row_3_where_nobody_ever_reports_the_server_stops_and_keeps_the_round_before(dataset, vehicles, tmp_path):
    def silent(vehicle):
        return lambda ask: Failure("no") if ask.kind == "report" and ask.round > 1 else vehicle.answer(ask)

    nodes = {f"node {v.name}": silent(v) for v in vehicles}
    running = server(dataset, nodes, store=FileStore(tmp_path), policy=RoundPolicy(timeout=0.1, max_attempts=2))
    rounds = running.rounds(2)
    next(rounds)
    with pytest.raises(FleetError, match="its model was given up 2 times, nobody could report on it"):
        next(rounds)
    assert FileStore(tmp_path).latest().round == 1


def test_row_7_whatever_is_said_is_cut_to_a_line(dataset, vehicles, tmp_path):
    long = "spam\n" * 4_000_000

    def attack(ask, reply):
        return Failure(long) if ask.kind == "train" else replace(reply, unknown={long[:200]: 1})

    _, said, done = run(dataset, vehicles, attack, rounds=(2, 3), store=FileStore(tmp_path))
    assert [f.updated for f in done] == [4, 3, 3]
    assert max(len(str(d)) for d in said) <= 300
    assert max(map(len, done[-1].outcome.problems)) <= 300
    assert sum(f.stat().st_size for f in tmp_path.iterdir()) < 8 * sum(a.nbytes for a in done[0].model.values())


@pytest.mark.parametrize("kind", ["train", "report"])
def test_row_8_who_is_silent_is_late_and_not_missing(dataset, vehicles, kind):
    """Nothing is deposited because of it, though it holds all trucks, until it has been silent for a whole deadline."""
    said, silent = [], {"from": 2}

    def owner(ask):
        return None if ask.kind == kind and ask.round >= silent["from"] else vehicles[OWNER].answer(ask)

    nodes = {**{f"node {v.name}": answering(v) for v in vehicles}, f"node {OWNER}": owner}
    running = server(dataset, nodes, log=said.extend, policy=RoundPolicy(deadline=3600))
    done = list(running.rounds(4))
    late = str(OWNER) if kind == "report" else None
    assert [len(f.outcome.answered) for f in done] == ([4, 3, 3, 3] if late else [4, 4, 4, 4])
    assert running.tracker.roster.having("late") == ((late,) if late else ())
    assert [(d.round, d.what) for d in said if d.what in ("late", "suspected", "deposited")] == (
        [(2, "late")] if late else []
    )
    assert (running.tracker.held_out, running.tracker.state.tracked) == ((), {})
    assert any("late, " in problem and "no reply within" in problem for problem in done[-1].outcome.problems)
    silent["from"] = 99
    list(running.rounds(5))
    assert running.tracker.roster.state(str(OWNER)) == "present"
    silent["from"] = 6
    list(running.rounds(6))
    running.waiting = {asked: since - 3600 for asked, since in running.waiting.items()}
    list(running.rounds(8))
    assert running.tracker.held_out == ((TRUCK,) if late else ())


def test_row_8_a_question_ends_a_short_tail_after_its_quorum():
    now = [0.0]
    patience = Patience(RoundPolicy(deadline=600, tail=1, tail_seconds=5), lambda: now[0])
    assert patience.left(False) == 600
    now[0] = 20.0
    assert patience.left(True) == 20
    now[0] = 30.0
    assert patience.left(True) == 10
    now[0] = 41.0
    assert patience.left(True) < 0
    prompt = Patience(RoundPolicy(deadline=600, tail=1, tail_seconds=5), lambda: now[0])
    assert prompt.left(True) == 5


def test_row_8_silent_ones_do_not_hold_up_the_quorum_of_the_next_round(dataset, vehicles):
    """Nine of thirteen nodes never say a word: the first round finds them silent, the next does not count on them."""
    nodes = {f"node {v.name}": answering(v) for v in vehicles} | {f"mute {i}": lambda ask: None for i in range(9)}
    running = server(dataset, nodes, policy=RoundPolicy(quorum=0.3, timeout=0.1, max_attempts=1, deadline=3600))
    assert [f.updated for f in running.rounds(2)] == [4, 4]
    running.policy = RoundPolicy(quorum=1.0, timeout=0.1, max_attempts=1, deadline=3600)
    assert next(running.rounds(3)).updated == 4


def test_whatever_a_reply_raises_is_its_own_refusal(dataset, vehicles):
    """Each of these is sent in both halves of the rounds, and nothing but its vehicle is missing from any."""
    wrong = [
        {"vehicle": None},
        {"vehicle": 3},
        {"round": "two"},
        {"samples": 2**40, "model": {}},
        {"samples": "many"},
        {"model": 7},
        {"model": {"backbone.layers.0.weight": "text"}},
        {"answer": "text"},
        {"answer": 3},
        {"unknown": {"x": None}},
        {"leaving": True, "vehicle": "0"},
    ]

    def attack(ask, reply):
        return replace(reply, **wrong[ask.round - 2])

    _, said, done = run(dataset, vehicles, attack, rounds=range(2, 2 + len(wrong)), last=2 + len(wrong))
    assert [f.round for f in done] == list(range(1, 3 + len(wrong)))
    assert {"0", "2", "3"} <= set(done[-1].outcome.answered)
    assert all(len(f.outcome.answered) >= 3 for f in done)
    assert len({d.round for d in said if d.what == "refused"}) >= len(wrong) - 2


def test_a_banned_vehicle_is_not_asked(dataset, vehicles, tmp_path):
    asked, store = [], FileStore(tmp_path)

    def watched(ask):
        asked.append((ask.round, ask.kind))
        return vehicles[VILLAIN].answer(ask)

    nodes = {**{f"node {v.name}": answering(v) for v in vehicles}, f"node {VILLAIN}": watched}
    running = server(dataset, LocalTransport(nodes), store=store)
    list(running.rounds(2))
    ban(store, str(VILLAIN))
    done = list(running.rounds(4))
    assert asked == [(1, "train"), (1, "report"), (2, "train"), (2, "report")]
    assert [(f.asked, f.updated, len(f.outcome.answered)) for f in done] == [(3, 3, 3), (3, 3, 3)]
