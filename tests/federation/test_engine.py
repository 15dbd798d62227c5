"""The whole federation on one machine, small: 8 classes, 4 vehicles, 3 rounds, a departure after the second."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.data import load
from mpt.federation import trainings
from mpt.federation.engine import run
from mpt.federation.plan import Plan
from mpt.learning import Settings, Trained, generator
from mpt.methods import METHODS

TRUCK, VEHICLES, OWNER = 2, 4, 3
PLAN = Plan(
    rare=TRUCK,
    methods=("fedavg", "frozen", "mpt"),
    vehicles=VEHICLES,
    remaining=0.1,
    rounds=3,
    depart_at=2,
    eval_every=1,
    settings=Settings(epochs=1),
)


@pytest.fixture(scope="module")
def dataset():
    return load("road?train=40&test=20", image_size=28)


@pytest.fixture(scope="module")
def rows_of_all(dataset):
    return run(dataset, replace(PLAN, methods=tuple(METHODS)))


@pytest.fixture
def spy(monkeypatch):
    """What `train` receives, without training: labels by (training, round, vehicle), once `spy.run` has run."""

    class Spy:
        def __init__(self):
            self.calls = []

        def train(self, model, images, labels, settings, *, generator, loss):
            self.calls.append((generator.initial_seed(), labels.numpy().copy()))
            return Trained(0.0, len(labels))

        def run(self, dataset, plan):
            received = defaultdict(dict)
            vehicle_of = {
                generator(plan.seed, "training", number, vehicle).initial_seed(): (number, vehicle)
                for number in range(1, plan.rounds + 1)
                for vehicle in range(VEHICLES)
            }

            def progress(training, number, rows):
                mine = received[training, number]
                for drawn, labels in self.calls:
                    at, vehicle = vehicle_of[drawn]
                    assert at == number
                    assert vehicle not in mine
                    mine[vehicle] = labels
                self.calls.clear()

            run(dataset, plan, progress=progress)
            return dict(received)

    spy = Spy()
    monkeypatch.setattr(trainings, "train", spy.train)
    return spy


def without_seconds(row):
    scores = {**vars(row.scores), "confused_with": row.scores.confused_with.tolist()}
    sent = (row.cost.bytes_up, row.cost.bytes_down, row.cost.messages)
    return row.seed, row.round, row.method, row.readout, scores, row.prototype_distance, sent


def test_the_same_seed_gives_the_same_rows_and_another_one_others(dataset):
    first, second = run(dataset, PLAN), run(dataset, PLAN)
    assert list(map(without_seconds, first)) == list(map(without_seconds, second))
    other = run(dataset, replace(PLAN, seed=1, methods=("mpt",)))
    distances = [r.prototype_distance for r in first if r.method == "mpt"]
    assert all(r.prototype_distance != d for r, d in zip(other, distances, strict=True))


def test_every_method_has_a_row_in_every_round(rows_of_all):
    assert sorted((r.method, r.round) for r in rows_of_all) == sorted((m, n) for m in METHODS for n in (1, 2, 3))
    for row in rows_of_all:
        assert 0 <= row.scores.rare_f1 <= 1
        assert 0 < row.scores.accuracy <= 1
        assert row.prototype_distance is None or np.isfinite(row.prototype_distance)


def test_prototype_distance_is_that_to_oracle_train(rows_of_all):
    distance = {(r.method, r.round): r.prototype_distance for r in rows_of_all}
    for number in (1, 2, 3):
        assert distance["oracle-train", number] == pytest.approx(0, abs=1e-6)
        assert distance["fedavg", number] is None
    # while the class is there its prototype is measured, in float32 on the wire
    assert distance["frozen", 2] == pytest.approx(0, abs=1e-3)
    assert distance["frozen", 3] > 0.1
    assert distance["oracle", 3] > 0.1


def test_remaining_samples_are_left_out_after_the_departure_and_not_before(dataset, spy):
    plan = replace(PLAN, methods=("fedavg", "fedlc", "frozen", "live"))
    received = spy.run(dataset, plan)

    def count(training, number):
        labels = np.concatenate([np.zeros(0, dtype=int), *received[training, number].values()])
        return sorted(received[training, number]), int(np.sum(labels == TRUCK)), int(np.sum(labels != TRUCK))

    everybody, those_who_stay = list(range(VEHICLES)), list(range(OWNER))
    for training in ("held-out", "fedlc"):
        for number in (1, 2):
            assert count(training, number) == (everybody, 40, 280)
    assert count("held-out", 3) == (those_who_stay, 0, 210)
    assert count("continued", 3) == (those_who_stay, 4, 210)
    assert count("fedlc", 3) == (those_who_stay, 4, 210)
    assert count("live", 3) == (everybody, 40, 280)
    # the rounds before the departure are trained once
    for training in ("continued", "live"):
        for number in (1, 2):
            assert count(training, number) == ([], 0, 0)


HEADS = """
from mpt.methods.simple import Head

held_out = Head("head:held-out", "held-out")
continued = Head("head:continued", "continued")
"""


def test_trainings_share_the_rounds_before_the_departure(dataset, tmp_path):
    (tmp_path / "heads.py").write_text(HEADS)
    names = tuple(f"{tmp_path / 'heads.py'}:{name}" for name in ("held_out", "continued"))
    rows = run(dataset, replace(PLAN, methods=names, settings=Settings(epochs=2, lr=0.05)))
    shared = {
        name: [(r.round, r.scores.rare_f1, r.scores.accuracy) for r in rows if r.method == name and r.round <= 2]
        for name in ("head:held-out", "head:continued")
    }
    assert len(shared["head:held-out"]) == 2
    assert shared["head:held-out"] == shared["head:continued"]


def test_a_share_of_the_vehicles_trains_chosen_by_round(dataset, spy):
    plan = replace(PLAN, methods=("fedavg", "frozen"), participation=0.5, rounds=9, depart_at=7, eval_every=9)
    received = spy.run(dataset, plan)
    chosen = {number: frozenset(received["held-out", number]) for number in range(1, 10)}
    assert all(len(vehicles) == 2 for vehicles in chosen.values())
    assert len({chosen[number] for number in range(1, 8)}) > 2
    assert all(OWNER not in chosen[number] for number in (8, 9))
    for number in (8, 9):
        assert frozenset(received["continued", number]) == chosen[number]
    again = spy.run(dataset, plan)
    assert {number: frozenset(again["held-out", number]) for number in chosen} == chosen
    other = spy.run(dataset, replace(plan, seed=1))
    assert {number: frozenset(other["held-out", number]) for number in chosen} != chosen


def test_methods_are_read_out_in_the_rounds_of_the_plan(dataset, spy):
    rows = run(dataset, replace(PLAN, methods=("frozen",), rounds=8, depart_at=3, eval_every=5))
    assert [r.round for r in rows] == [3, 5, 8]


MINE = """
import numpy as np

class Mine:
    name, training, needs_departure = "mine", "held-out", True

    def depart(self, now):
        return [now.round]

    def track(self, kept, now):
        answers = now.ask(b"hi", lambda question, local: question * len(np.unique(local.labels)))
        assert all(a == b"hi" * 8 for a in answers)
        return [*kept, now.round], np.array([*kept, *[0.0] * (now.head[0].shape[1] - len(kept))])
"""


def test_a_users_own_method_runs_by_its_path(dataset, tmp_path, spy):
    (tmp_path / "mine.py").write_text(MINE)
    plan = replace(PLAN, methods=(f"{tmp_path / 'mine.py'}:Mine",), rounds=4, readouts=("mahalanobis", "cosine"))
    plan = replace(plan, remaining=0.2)
    rows = run(dataset, plan)
    assert [(r.method, r.round, r.readout) for r in rows] == [
        ("mine", number, readout) for number in range(1, 5) for readout in ("mahalanobis", "cosine")
    ]
    for row in rows:
        sent = (row.cost.messages, row.cost.bytes_down, row.cost.bytes_up)
        assert sent == ((0, 0, 0) if row.round <= 2 else (1, 3 * 2, 3 * 16))
        assert row.prototype_distance is not None


def test_runs_on_one_machine_leave_torchs_global_generator_alone(dataset):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    run(dataset, replace(PLAN, methods=("frozen",), rounds=1, depart_at=1))
    assert torch.equal(torch.get_rng_state(), before)
