"""A training that ends with the departure: nothing is trained, the model stays, and rows stay as they are."""

import io
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.data import load
from mpt.federation.engine import Federation, run, run_together
from mpt.federation.lockstep import rounds
from mpt.federation.plan import Plan
from mpt.methods import MethodError, Training
from mpt.scenario import PlanError
from tests.federation.test_engine import Spy, same, without_seconds

ROW = "stop-at-departure"
PLAN = Plan(rare=2, methods=(ROW,), vehicles=4, remaining=0.1, rounds=4, depart_at=2, eval_every=1, epochs=1)


@pytest.fixture(scope="module")
def dataset():
    return load("road?train=10&test=5", image_size=28)


def of(rows, method):
    return [without_seconds(row) for row in rows if row.method == method]


@pytest.mark.parametrize("engine", ["plain", "fast"])
def test_rows_stay_as_they_are_and_the_others_are_those_without_it(dataset, engine):
    plan = replace(PLAN, engine=engine)
    rows = run(dataset, replace(plan, methods=(ROW, "frozen", "fedavg")))
    mine = [row for row in rows if row.method == ROW]
    assert [row.round for row in mine] == [1, 2, 3, 4]
    for row in mine[2:]:
        np.testing.assert_array_equal(row.scores.confusion, mine[2].scores.confusion)
        assert row.prototype_distance == mine[2].prototype_distance < 1e-3
    assert len({row.prototype_distance for row in rows if row.method == "frozen"}) == 4
    alone = run(dataset, replace(plan, methods=("frozen", "fedavg")))
    for method in ("frozen", "fedavg"):
        assert of(rows, method) == of(alone, method)
    assert of(run(dataset, plan), ROW) == of(rows, ROW)


def test_nothing_is_trained_after_the_departure(dataset):
    spy = Spy()
    run(dataset, replace(PLAN, methods=(ROW, "frozen")), trainer=spy)
    assert [[job.round for job in jobs] for jobs in spy.calls] == [[1], [2], [3], [4]]
    spy = Spy()
    run(dataset, PLAN, trainer=spy)
    assert [[job.round for job in jobs] for jobs in spy.calls] == [[1], [2]]


def test_the_model_is_that_of_the_departure(dataset):
    federation = Federation(dataset, replace(PLAN, methods=(ROW, "frozen")), torch.device("cpu"))
    state, models = federation.start(), {}
    while state.round < PLAN.rounds:
        state, _ = federation.advance(state)
        models[state.round] = state.models
    departed = models[2]["stopped"]
    assert departed is models[2]["held-out"]
    for number in (3, 4):
        assert models[number]["stopped"] is departed
        assert not same(models[number]["held-out"].tensors, departed.tensors)


def test_it_goes_on_from_a_state_that_was_written_and_read(dataset):
    plan = replace(PLAN, methods=(ROW, "sdc(training='stopped')", "mpt"))
    first = Federation(dataset, plan, torch.device("cpu"))
    state, rows = first.start(), []
    for _ in range(3):
        state, _ = first.advance(state)
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    again = Federation(dataset, plan, torch.device("cpu"))
    for _, some in rounds(again, torch.load(file, weights_only=False)):
        rows += some
    whole = run(dataset, plan)
    assert list(map(without_seconds, rows)) == [without_seconds(row) for row in whole if row.round > 3]
    assert all(row.prototype_distance < 1e-3 for row in rows if row.method.startswith("sdc"))


def test_several_seeds_together_give_what_each_gives_alone(dataset):
    plans = [replace(PLAN, methods=methods, seed=seed) for seed, methods in enumerate(((ROW,), (ROW, "frozen")))]
    together = run_together(dataset, plans)
    for plan, rows in zip(plans, together, strict=True):
        assert list(map(without_seconds, rows)) == list(map(without_seconds, run(dataset, plan)))


def test_who_takes_part_after_the_departure_needs_nothing_to_train_on(dataset, tmp_path):
    path = tmp_path / "parts.py"
    path.write_text(
        "import numpy as np\n"
        "def parts(request):\n"
        "    rare = np.flatnonzero(request.labels == request.rare)\n"
        "    others = np.flatnonzero(request.labels != request.rare)\n"
        "    return {0: np.append(others[::2], rare[:2]), 1: others[:0], 2: np.append(others[1::2], rare[2:])}\n"
    )
    plan = replace(PLAN, partition=f"{path}:parts", vehicles=None, participation=0.5, rounds=10, eval_every=5)
    with pytest.raises(PlanError, match=r"round \d+: no vehicle that takes part has a sample to train on"):
        run(dataset, replace(plan, methods=("frozen",)))
    assert [row.round for row in run(dataset, plan)] == [2, 5, 10]
    with pytest.raises(PlanError, match="nobody is left in round 3"):
        run(dataset, replace(plan, events="leave 0 after 2, leave 1 after 2"))


def test_a_training_that_stops_departs():
    with pytest.raises(MethodError, match="odd stops at the departure, should depart"):
        Training("odd", departs=False, stops=True)
    assert not Training("mine", stops=True).holds_out
