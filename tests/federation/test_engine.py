"""The whole federation on one machine, small: 8 classes, 4 vehicles, 3 rounds, a departure after the second."""

import gc
import time
import weakref
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.data import load
from mpt.federation.engine import Federation, run, run_together
from mpt.federation.plan import Plan
from mpt.federation.state import Handle, Model
from mpt.learning import FedLC, cross_entropy
from mpt.methods import METHODS, MethodError
from mpt.protocol.messages import pack
from mpt.scenario import PlanError

TRUCK, VEHICLES, OWNER = 2, 4, 3
PLAN = Plan(
    rare=TRUCK,
    methods=("fedavg", "frozen", "mpt"),
    vehicles=VEHICLES,
    remaining=0.1,
    rounds=3,
    depart_at=2,
    eval_every=1,
    epochs=1,
)

pytestmark = pytest.mark.usefixtures("two_threads")


@pytest.fixture(scope="module")
def dataset():
    return load("road?train=40&test=20", image_size=28)


@pytest.fixture(scope="module")
def rows_of_all(dataset):
    return run(dataset, replace(PLAN, methods=tuple(METHODS)))


class Spy:
    """A trainer that trains nothing and remembers the jobs of every round."""

    def __init__(self):
        self.calls = []

    def __call__(self, model, jobs):
        self.calls.append(list(jobs))
        return [dict(job.start) for job in jobs]


def who_trains(job):
    """The vehicles of a job, and how many of their samples are trucks and how many are not."""
    labels = np.concatenate([samples.labels.numpy() for samples in job.vehicles.values()])
    return sorted(job.vehicles), int(np.sum(labels == TRUCK)), int(np.sum(labels != TRUCK))


def plain(scores):
    """Every number of the scores, to compare."""
    return {name: np.asarray(value).tolist() for name, value in vars(scores).items()}


def without_seconds(row):
    sent = [(c.bytes_up, c.bytes_down, c.messages) for c in (row.cost, row.readout_cost)]
    return (
        row.seed,
        row.round,
        row.method,
        row.readout,
        plain(row.scores),
        row.prototype_distance,
        sent,
        row.notes,
        row.drift,
        row.step,
    )


def same(left, right):
    return left.keys() == right.keys() and all(torch.equal(tensor, right[name]) for name, tensor in left.items())


def test_the_same_seed_gives_the_same_rows_and_another_one_others(dataset):
    first, second = run(dataset, PLAN), run(dataset, PLAN)
    assert list(map(without_seconds, first)) == list(map(without_seconds, second))
    other = run(dataset, replace(PLAN, seed=1, methods=("mpt",)))
    distances = [r.prototype_distance for r in first if r.method == "mpt"]
    assert all(r.prototype_distance != d for r, d in zip(other, distances, strict=True))


def test_every_method_has_a_row_in_every_round(rows_of_all):
    assert sorted((r.method, r.round) for r in rows_of_all) == sorted((m, n) for m in METHODS for n in (1, 2, 3))
    for row in rows_of_all:
        assert 0 <= row.f1 <= 1
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


def test_every_round_is_one_call_of_the_trainer_with_the_jobs_that_differ(dataset):
    spy = Spy()
    run(dataset, replace(PLAN, methods=("fedavg", "fedlc", "frozen", "live")), trainer=spy)
    everybody, those_who_stay = list(range(VEHICLES)), list(range(OWNER))
    assert [[job.round for job in jobs] for jobs in spy.calls] == [[1, 1], [2, 2], [3, 3, 3, 3]]
    for usual, calibrated in spy.calls[:2]:
        assert (usual.loss, calibrated.loss) == (cross_entropy, FedLC())
        assert who_trains(usual) == who_trains(calibrated) == (everybody, 40, 280)
    held_out, continued, fedlc, live = spy.calls[2]
    assert who_trains(held_out) == (those_who_stay, 0, 210)
    assert who_trains(continued) == (those_who_stay, 4, 210)
    assert who_trains(fedlc) == (those_who_stay, 4, 210)
    assert who_trains(live) == (everybody, 40, 280)
    assert held_out.start is continued.start is live.start
    assert [job.loss for job in spy.calls[2]] == [cross_entropy, cross_entropy, FedLC(), cross_entropy]


def test_a_round_can_be_repeated_from_its_state(dataset):
    federation = Federation(dataset, replace(PLAN, methods=("mpt", "fedavg", "sdc")), torch.device("cpu"))
    state = federation.start()
    for number in range(1, 4):
        before = {training: {k: v.clone() for k, v in m.tensors.items()} for training, m in state.models.items()}
        first, rows = federation.advance(state)
        second, again = federation.advance(state)
        assert first.round == number
        assert list(map(without_seconds, rows)) == list(map(without_seconds, again))
        for training, model in first.models.items():
            assert model != second.models[training]
            assert same(model.tensors, second.models[training].tensors)
            assert same(before[training], state.models[training].tensors)
        assert (first.models["held-out"] is first.models["continued"]) == (number <= 2)
        assert (first.models["held-out"] == first.models["continued"]) == (number <= 2)
        state = first
    with pytest.raises(PlanError, match="round: 4, but the plan has 3"):
        federation.advance(state)
    fresh, _ = federation.advance(federation.start())
    other, _ = Federation(dataset, federation.plan, torch.device("cpu")).advance(federation.start())
    assert same(fresh.models["held-out"].tensors, other.models["held-out"].tensors)


def test_trainings_share_a_job_where_their_models_have_the_same_handle(dataset):
    federation = Federation(dataset, replace(PLAN, methods=("mpt", "fedavg", "live")), torch.device("cpu"))
    state = federation.start()
    apart = replace(state, models={t: replace(m, tensors=dict(m.tensors)) for t, m in state.models.items()})
    assert len(federation.jobs(apart)) == len(federation.jobs(state)) == 1
    others = {t: Model(Handle(0, number), state.models[t].tensors) for number, t in enumerate(state.models)}
    assert len(federation.jobs(replace(state, models=others))) == 3


def test_features_of_a_round_are_gone_with_it(dataset):
    seen = []
    federation = Federation(dataset, replace(PLAN, methods=("mpt", "sdc")), torch.device("cpu"), trainer=Spy())
    federation.record = lambda number, models: seen.extend(weakref.ref(one.features) for one in models.values())
    gc.disable()
    try:
        federation.advance(federation.start())
        assert [ref() for ref in seen] == [None]
    finally:
        gc.enable()


def test_samples_are_embedded_once_a_model_and_round(dataset, monkeypatch):
    sizes = []
    original = Federation.embed

    def counted(self, state, *several):
        sizes.extend(map(len, several))
        return original(self, state, *several)

    monkeypatch.setattr(Federation, "embed", counted)
    plan = replace(PLAN, methods=("fedavg", "ccvr", "frozen", "mpt", "sdc", "oracle-train", "live"))
    federation = Federation(dataset, plan, torch.device("cpu"), trainer=Spy())
    vehicles = [len(v) for v in federation.labels.values()]
    staying, test, rare = vehicles[:OWNER], 160, 40
    state, _ = federation.advance(federation.start())
    assert sorted(sizes) == sorted([*vehicles, test, rare])
    state, _ = federation.advance(state)
    sizes.clear()
    federation.advance(state)
    assert sorted(sizes) == sorted([*2 * staying, *vehicles, *3 * [test], *2 * [rare]])
    sizes.clear()
    plan = replace(PLAN, methods=("fedavg",))
    run(dataset, plan, trainer=Spy())
    assert sizes == [test] * 3


def test_the_feature_space_drifts_from_the_departure_on(dataset, rows_of_all):
    for row in rows_of_all:
        if row.method not in ("mpt", "frozen", "icarl") or row.round == 1:
            assert row.drift is None or row.round > 1
        elif row.round == 2:
            assert row.drift.rare == pytest.approx(0, abs=1e-6)
            assert row.drift.references == pytest.approx(0, abs=1e-6)
        else:
            frozen = next(r for r in rows_of_all if (r.method, r.round) == ("frozen", 3))
            assert row.drift.rare == pytest.approx(frozen.prototype_distance, rel=1e-3)
            assert row.drift.references > 0.1
    assert all(r.drift is None for r in rows_of_all if r.method in ("fedavg", "live"))
    still = run(dataset, replace(PLAN, methods=("mpt",)), trainer=Spy())
    assert still[2].drift.rare == pytest.approx(0, abs=1e-6)
    assert still[2].drift.references == pytest.approx(0, abs=1e-3)


def test_the_step_is_from_the_evaluated_round_before_by_the_vehicles_that_stay(dataset):
    """Beside the definition, written out: means over samples, their pooled covariance, a solved system."""
    found = {}

    def record(number, seen):
        view = seen["held-out"]
        held = {v: (view.features.vehicle(v), dataset.train.labels[federation.partition.indices[v]]) for v in view.here}
        found[number] = held, view.features.rare_mean

    plan = replace(PLAN, methods=("fedavg", "frozen"), rounds=5, eval_every=3)
    federation = Federation(dataset, plan, torch.device("cpu"), record=record)
    state, rows = federation.start(), []
    for _ in range(plan.rounds):
        state, some = federation.advance(state)
        rows += some
    steps = {row.round: row.step for row in rows if row.method == "frozen"}
    assert list(steps) == list(found) == [2, 3, 5]
    assert steps[2] is None
    assert [steps[number].rounds for number in (3, 5)] == [1, 2]
    assert all(row.step is None for row in rows if row.method == "fedavg")
    for before, now in ((2, 3), (3, 5)):
        references, rare = way_between(found[before], found[now])
        assert steps[now].references == pytest.approx(references, rel=1e-3)
        assert steps[now].rare == pytest.approx(rare, rel=1e-3)
    drift = next(row.drift for row in rows if (row.method, row.round) == ("frozen", 3))
    assert (steps[3].references, steps[3].rare) == (drift.references, drift.rare)


def way_between(before, now):
    (held, rare), (held_now, rare_now) = before, now
    features, labels = (np.concatenate(parts) for parts in zip(*held_now.values(), strict=True))
    others = [c for c in range(8) if c != TRUCK]
    centred = np.concatenate([features[labels == c] - features[labels == c].mean(axis=0) for c in others])
    covariance = centred.T @ centred / (len(centred) - len(others))
    d = len(covariance)
    covariance = covariance + PLAN.cov_ridge * np.trace(covariance) / d * np.eye(d)

    def mean(held, c):
        return np.concatenate([rows[y == c] for v, (rows, y) in held.items() if v != OWNER]).mean(axis=0)

    def length(gap):
        return np.sqrt(gap @ np.linalg.solve(covariance, gap))

    return np.mean([length(mean(held, c) - mean(held_now, c)) for c in others]), length(rare - rare_now)


def test_there_are_steps_before_the_departure_and_none_where_nothing_is_trained(dataset):
    moving = run(dataset, replace(PLAN, methods=("mpt",), rounds=4, depart_at=3))
    assert [row.step is None for row in moving] == [True, False, False, False]
    assert all(min(row.step.references, row.step.rare) > 0.1 for row in moving[1:])
    assert [row.drift is None for row in moving] == [True, True, False, False]
    still = run(dataset, replace(PLAN, methods=("mpt",), rounds=4, depart_at=3), trainer=Spy())
    for row in still[1:]:
        assert row.step.references == pytest.approx(0, abs=1e-3)
        assert row.step.rare == pytest.approx(0, abs=1e-6)


def test_where_nobody_but_the_departing_vehicle_is_there_the_references_have_no_step(dataset):
    plan = replace(PLAN, methods=("frozen",), events="join 0 at 2, join 1 at 2, join 2 at 2")
    _, second, third = run(dataset, plan)
    assert np.isnan(second.step.references)
    assert second.step.rare > 0.1
    assert third.step.references > 0.1


def test_mpt_notes_how_the_prototype_was_put_together(rows_of_all):
    notes = {(r.method, r.round): r.notes for r in rows_of_all}
    assert notes["mpt", 2] == notes["frozen", 3] == {}
    for method in ("mpt", "mpt-lite"):
        mine = notes[method, 3]
        assert 0 <= mine["alpha"] <= 1
        assert mine["remaining"] == 4
        assert mine["predicted_norm"] <= mine["growth"] * mine["residual_norm"] * (1 + 1e-9)
        assert mine["measured_norm"] > 0
        assert mine["noise"] > 0


def test_a_readout_is_charged_what_the_method_has_not_asked_for(dataset):
    methods, readouts = (
        ("mpt", "mpt-lite", "frozen", "remaining-mean", "oracle", "icarl", "fedavg"),
        ("mahalanobis", "cosine"),
    )
    rows = run(dataset, replace(PLAN, methods=methods, readout=readouts), trainer=Spy())
    up = {(r.method, r.readout): r.readout_cost.bytes_up for r in rows if r.round == 3}
    own = {r.method: r.cost.bytes_up for r in rows if r.round == 3}
    with_scatter, means = own["mpt"], own["remaining-mean"]
    assert 0 < means < with_scatter
    assert up == {
        ("mpt", "mahalanobis"): 0,
        ("mpt", "cosine"): 0,
        ("mpt-lite", "mahalanobis"): with_scatter,
        ("mpt-lite", "cosine"): 0,
        ("frozen", "mahalanobis"): with_scatter,
        ("frozen", "cosine"): means,
        ("remaining-mean", "mahalanobis"): with_scatter,
        ("remaining-mean", "cosine"): 0,
        ("oracle", "mahalanobis"): with_scatter,
        ("oracle", "cosine"): means,
        ("icarl", "own"): 0,
        ("fedavg", "own"): 0,
    }


HEADS = """
from mpt.methods.simple import SoftmaxHead

held_out = SoftmaxHead("head:held-out", "held-out")
continued = SoftmaxHead("head:continued", "continued")
"""


def test_trainings_share_the_rounds_before_the_departure(dataset, tmp_path):
    (tmp_path / "heads.py").write_text(HEADS)
    names = tuple(f"{tmp_path / 'heads.py'}:{name}" for name in ("held_out", "continued"))
    rows = run(dataset, replace(PLAN, methods=names, epochs=2, lr=0.05))
    shared = {
        name: [(r.round, r.f1, r.scores.accuracy) for r in rows if r.method == name and r.round <= 2]
        for name in ("head:held-out", "head:continued")
    }
    assert len(shared["head:held-out"]) == 2
    assert shared["head:held-out"] == shared["head:continued"]


def test_a_share_of_the_vehicles_trains_chosen_by_round(dataset):
    plan = replace(PLAN, methods=("fedavg", "frozen"), participation=0.5, rounds=9, depart_at=7, eval_every=9)

    def chosen(plan):
        spy = Spy()
        run(dataset, plan, trainer=spy)
        return [[frozenset(job.vehicles) for job in jobs] for jobs in spy.calls]

    first = chosen(plan)
    assert all(len(vehicles) == 2 for jobs in first for vehicles in jobs)
    assert len({jobs[0] for jobs in first[:7]}) > 2
    assert all(OWNER not in held_out and held_out == continued for held_out, continued in first[7:])
    assert chosen(plan) == first
    assert chosen(replace(plan, seed=1)) != first


def test_more_vehicles_than_samples_are_refused(dataset):
    most = len(dataset.train.labels)
    with pytest.raises(PlanError, match=f"vehicles: 100000, should be at most {most}, as many as there are"):
        Federation(dataset, Plan(rare=2, vehicles=100_000), torch.device("cpu"))


def test_methods_are_read_out_in_the_rounds_of_the_plan(dataset):
    rows = run(dataset, replace(PLAN, methods=("frozen",), rounds=8, depart_at=3, eval_every=5), trainer=Spy())
    assert [r.round for r in rows] == [3, 5, 8]


def test_vehicles_are_told_which_classes_are_held_out(dataset):
    asked = []

    class Curious:
        name, training = "curious", "held-out"

        def depart(self, context):
            return None

        def track(self, state, context):
            asked.append((context.round, context.request().held_out, context.request().watched))
            return None, context.prototype()

    for training in ("held-out", "continued"):
        method = Curious()
        method.training = training
        federation = Federation(dataset, PLAN, torch.device("cpu"), trainer=Spy(), methods=[method])
        state = federation.start()
        while state.round < 3:
            state, _ = federation.advance(state)
    told = [(1, (), (TRUCK,)), (2, (), (TRUCK,)), (3, (TRUCK,), (TRUCK,))]
    assert asked == [*told, *told[:2], (3, (), (TRUCK,))]


def test_others_join_and_leave_as_planned(dataset):
    spy = Spy()
    plan = replace(PLAN, methods=("frozen", "live"), rounds=5, events="leave 0 after 3, join 1 at 2, join 0 at 5")
    run(dataset, plan, trainer=spy)
    assert [[sorted(job.vehicles) for job in jobs] for jobs in spy.calls] == [
        [[0, 2, 3]],
        [[0, 1, 2, 3]],
        [[0, 1, 2], [0, 1, 2, 3]],
        [[1, 2], [1, 2, 3]],
        [[0, 1, 2], [0, 1, 2, 3]],
    ]


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ("leave 9 after 2", "events: 'leave 9 after 2', but there is no vehicle 9, should be 0 to 3"),
        ("leave 3 after 1", "events: 'leave 3 after 1', but vehicle 3 is the one that departs"),
        ("leave 1 after 1, leave 1 after 2", "events: 'leave 1 after 2', but vehicle 1 has left already"),
        ("join 1 at 2, join 1 at 3", "events: 'join 1 at 3', but vehicle 1 is there already"),
        ("leave 0 after 2, leave 1 after 1, leave 2 after 2", "events: nobody is left in round 3"),
    ],
)
def test_events_that_cannot_be_are_refused_at_the_start(dataset, events, message):
    with pytest.raises(PlanError) as caught:
        Federation(dataset, replace(PLAN, events=events), torch.device("cpu"))
    assert str(caught.value).startswith(message)


MINE = """
import numpy as np
from mpt.protocol import on_vehicle

class Mine:
    name, training, needs_departure = "mine", "held-out", True

    def depart(self, context):
        return [context.round]

    def track(self, state, context):
        told = context.total(self.part, two=np.arange(2.0))
        assert told["classes"] == 3 * 8 and told["asked"] == 3
        return [*state, context.round], np.array([*state, *[0.0] * (context.head[0].shape[1] - len(state))])

    @on_vehicle(classes=(), asked=())
    def part(self, asked, local):
        return {"classes": float(len(np.unique(local.labels))), "asked": asked["two"].sum()}
"""


def test_a_users_own_method_runs_by_its_path(dataset, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    plan = replace(PLAN, methods=(f"{tmp_path / 'mine.py'}:Mine",), rounds=4, readout=("mahalanobis", "cosine"))
    plan = replace(plan, remaining=0.2)
    rows = run(dataset, plan, trainer=Spy())
    assert [(r.method, r.round, r.readout) for r in rows] == [
        ("mine", number, readout) for number in range(1, 5) for readout in ("mahalanobis", "cosine")
    ]
    for row in rows:
        sent = (row.cost.messages, row.cost.bytes_down, row.cost.bytes_up)
        assert sent == (
            (0, 0, 0) if row.round <= 2 else (1, 3 * len(pack(np.zeros(2))), 3 * len(pack(np.zeros(()), np.zeros(()))))
        )
        assert row.prototype_distance is not None


SPOILS = """
class Spoils:
    name, training, needs_departure = "spoils", "held-out", True

    def depart(self, context):
        return None

    def track(self, state, context):
        {body}
"""


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ("return state, [1.0]", MethodError, "spoils gave list, should be a prototype"),
        ("return state, context.head[0]", MethodError, "spoils gave an array of shape"),
        ("context.head[0][:] = 0; return state, context.head[0][0]", ValueError, "read-only"),
    ],
)
def test_a_method_that_spoils_what_others_see_is_stopped(dataset, tmp_path, body, error, message):
    (tmp_path / "mine.py").write_text(SPOILS.format(body=body))
    plan = replace(PLAN, methods=(f"{tmp_path / 'mine.py'}:Spoils",))
    with pytest.raises(error, match=message):
        run(dataset, plan, trainer=Spy())


def test_the_servers_seconds_are_without_the_forward_pass(dataset, monkeypatch):
    embed = Federation.embed

    def slow(self, model, *several):
        time.sleep(0.3)
        return embed(self, model, *several)

    monkeypatch.setattr(Federation, "embed", slow)
    rows = run(dataset, replace(PLAN, methods=("mpt", "sdc", "frozen")), trainer=Spy())
    for row in rows:
        assert row.cost.server_seconds + row.readout_cost.server_seconds < 0.3, row.method


def test_float32_means_float32(dataset):
    allowed = []

    def trainer(model, jobs):
        allowed.append(torch.backends.cudnn.allow_tf32)
        return [dict(job.start) for job in jobs]

    before = torch.backends.cudnn.allow_tf32
    for precision in ("float32", "auto"):
        run(dataset, replace(PLAN, methods=("frozen",), rounds=2, depart_at=1, precision=precision), trainer=trainer)
        assert torch.backends.cudnn.allow_tf32 == before
    assert allowed == [False, False, before, before]


def test_runs_on_one_machine_leave_torchs_global_generator_alone(dataset):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    run(dataset, replace(PLAN, methods=("frozen",), rounds=2, depart_at=1))
    assert torch.equal(torch.get_rng_state(), before)


class Watching:
    """A method that keeps the prototype it gives, and what it is compared with."""

    name, training = "watching", "held-out"

    def __init__(self):
        self.seen = []

    def depart(self, context):
        return None

    def track(self, state, context):
        means = context.report(context.request()).means
        references = np.delete(means, TRUCK, axis=0)
        prototype = means[TRUCK] + 1
        self.seen.append((prototype - context.oracle("train"), references))
        return None, prototype


def test_span_errors_are_the_parts_of_the_way_inside_and_outside_the_reference_span(dataset):
    watching = Watching()
    (rows,) = run_together(dataset, [PLAN], methods=[watching])
    assert len(rows) == len(watching.seen) == 3
    for row, (way, references) in zip(rows[2:], watching.seen[2:], strict=True):  # all who are there stay
        inside = references.T @ np.linalg.lstsq(references.T, way, rcond=None)[0]
        expected = np.linalg.norm(inside), np.linalg.norm(way - inside)
        assert row.span_errors == pytest.approx(expected, rel=1e-5)
    assert all(np.hypot(*row.span_errors) == pytest.approx(np.linalg.norm(way), rel=1e-9)
               for row, (way, _) in zip(rows, watching.seen, strict=True))  # fmt: skip


def test_span_errors_of_mpts_parts(rows_of_all):
    last = {row.method: row for row in rows_of_all if row.round == 3}
    inside = {name: last[name].span_errors[0] for name in ("mpt", "mpt:in-span", "mpt:predicted", "mpt:measured")}
    assert len({round(value, 6) for value in inside.values()}) == 1  # residuals lie outside the span
    assert last["fedavg"].span_errors is None
    assert last["oracle-train"].span_errors == pytest.approx((0, 0), abs=1e-9)
    assert last["mpt:trained"].span_errors != last["mpt"].span_errors  # another training
