"""Hostile vehicles on the bench: what trainers make of their updates, what the gate does to their reports."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.core import ClassStatistics
from mpt.data import load
from mpt.federation.attacks import ATTACKS, AttackError, Scene
from mpt.federation.cuda_graph_trainer import CudaGraphTrainer
from mpt.federation.engine import Federation, run
from mpt.federation.hostile import Hostile
from mpt.federation.jobs import Job, train_plain, train_vehicle
from mpt.federation.plan import Plan
from mpt.federation.trainers import TritonTrainer, train_channels_last, train_side_by_side
from mpt.learning import LearningError, RunningAverage, Samples, TrainingSettings, batchnorm_prefixes, build
from mpt.learning.aggregation import Medians, Updates, find_aggregation

from . import training_work
from .test_engine import Spy, same, without_seconds
from .test_trainers import SIDE, interpreted, model  # noqa: F401 - a fixture
from .training_work import CLASSES, furthest

TRUCK, VEHICLES, OWNER = 2, 8, 7
PLAN = Plan(
    rare=TRUCK,
    methods=("mpt", "mpt-x"),
    vehicles=VEHICLES,
    remaining=0.4,
    rounds=4,
    depart_at=2,
    eval_every=1,
    epochs=1,
)
SETTINGS = TrainingSettings(epochs=1, batch_size=8, lr=0.05)
SEEN = Scene(round=1, vehicle=5, rare=TRUCK, num_classes=CLASSES, gone=False, leaving=False, seed=0)
UPDATES = ("flip(by=3)", "boost", "zero", "little")

pytestmark = pytest.mark.usefixtures("two_threads")


@pytest.fixture(scope="module")
def dataset():
    return load("road?train=20&test=5", image_size=28)


@pytest.fixture(scope="module")
def larger():
    """With so many samples of a class that nobody honest is clipped."""
    return load("road?train=40&test=20", image_size=28)


def federation(dataset, **settings):
    return Federation(dataset, replace(PLAN, **settings), torch.device("cpu"))


def advanced(dataset, rounds=3, **settings):
    """The models after some rounds, and the rows."""
    made, rows = federation(dataset, **settings), []
    state = made.start()
    for _ in range(rounds):
        state, new = made.advance(state)
        rows += new
    return state.models["held-out"], rows


def samples(n):
    return training_work.samples(n, SIDE)


def hostile_jobs(start, text, aggregation, held=None):
    """Vehicle 5 lies; the other two are honest."""
    held = held or {v: samples(n) for v, n in ((3, 9), (5, 12), (7, 10), (8, 0))}
    lies = {5: (ATTACKS.find(text), SEEN)}
    medians = Medians(10.0, 0.05, 0.5, 0.1)
    return [
        Job(start, held, SETTINGS, 0, 1, aggregation=aggregation, hostile=lies),
        Job(
            start, held, SETTINGS, 1, 1, aggregation=aggregation, hostile=lies, holders=frozenset({3}), medians=medians
        ),
    ]


def by_hand(made, job):
    """The job vehicle by vehicle, with its lie in place of the update, averaged as the rule says."""
    sent = {}
    for vehicle in sorted(v for v, mine in job.vehicles.items() if len(mine.labels)):
        mine = {name: tensor.clone() for name, tensor in train_vehicle(made, job, vehicle).items()}
        sent[vehicle] = mine, len(job.vehicles[vehicle].labels)
    others = {v: mine for v, (mine, _) in sent.items() if v != 5}
    sent[5] = job.hostile[5][0].update(job.start, *sent[5], SEEN, others)
    states, counts = zip(*sent.values(), strict=True)
    updates = Updates(job.start, states, counts, batchnorm_prefixes(made))
    return find_aggregation(job.aggregation)(updates)


@pytest.mark.parametrize("text", UPDATES)
@pytest.mark.parametrize("aggregation", ["average", "clipped", "median"])
def test_on_a_cpu_trainers_make_the_same_of_a_lie(text, aggregation):
    made = model()
    start = {name: tensor.clone() for name, tensor in made.state_dict().items()}
    reference = train_plain(made, hostile_jobs(start, text, aggregation))
    assert same(reference[0], by_hand(made, hostile_jobs(start, text, aggregation)[0]))
    honest = train_plain(made, [replace(hostile_jobs(start, text, aggregation)[0], hostile={})])[0]
    assert furthest(reference[0], honest, start) > 0.01
    for fast in (train_channels_last, train_side_by_side):
        jobs = hostile_jobs(start, text, aggregation)
        for left, right, job in zip(fast(made, jobs), reference, jobs, strict=True):
            assert furthest(left, right, start) < 1e-4
            assert all(tensor.is_contiguous() for tensor in left.values())
            assert (job.noted.medians is not None) == (aggregation == "clipped")
    assert all(torch.equal(start[name], tensor) for name, tensor in jobs[0].start.items())


@pytest.mark.slow
def test_stacked_makes_the_same_of_a_lie(interpreted):  # noqa: F811
    made = model()
    start = {name: tensor.clone() for name, tensor in made.state_dict().items()}
    jobs, plain = hostile_jobs(start, "boost", "clipped"), hostile_jobs(start, "boost", "clipped")
    stacked, reference = TritonTrainer("float32")(made, jobs), train_plain(made, plain)
    for left, right in zip(stacked, reference, strict=True):
        assert furthest(left, right, start) < 1e-4
        assert all(torch.equal(left[k], right[k]) for k in start if k.endswith("num_batches_tracked"))
    assert [job.noted.doubted for job in jobs] == [job.noted.doubted for job in plain]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("kind", [TritonTrainer, CudaGraphTrainer])
@pytest.mark.parametrize("text", UPDATES)
def test_on_a_gpu_trainers_make_the_same_of_a_lie(kind, text):
    made = build("cnn3", num_classes=CLASSES, in_channels=3, image_size=32, seed=0).cuda()
    start = {name: tensor.clone() for name, tensor in made.state_dict().items()}
    held = {v: samples(n, side=32) for v, n in ((3, 40), (5, 25), (7, 30))}
    held = {v: Samples(mine.images.cuda(), mine.labels.cuda()) for v, mine in held.items()}
    for aggregation in ("average", "clipped"):
        work = hostile_jobs(start, text, aggregation, held)
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            plain = train_plain(made, work)
        for left, right in zip(kind("float32")(made, work), plain, strict=True):
            assert furthest(left, right, start) < 1e-2


def test_an_update_that_is_no_model_is_left_out_and_others_are_as_they_were():
    @dataclass
    class Infinite:
        def update(self, start, update, samples, scene, others):
            assert sorted(others) == [3, 7]
            return {
                name: tensor * np.inf if tensor.is_floating_point() else tensor for name, tensor in update.items()
            }, 10**9

    made = model()
    start = {name: tensor.clone() for name, tensor in made.state_dict().items()}
    job = replace(hostile_jobs(start, "boost", "average")[0], hostile={5: (Infinite(), SEEN)})
    running = RunningAverage(made)
    for vehicle in (3, 7):
        running.add(train_vehicle(made, job, vehicle), len(job.vehicles[vehicle].labels))
    assert same(train_plain(made, [job])[0], running.state())


@pytest.mark.parametrize("attack", [(f"{text}@1",) for text in (*UPDATES, "wrong-labels")])
def test_both_engines_give_the_same_model(dataset, attack):
    ended = {engine: advanced(dataset, 2, attack=attack, engine=engine)[0] for engine in ("plain", "fast")}
    begun = dict(federation(dataset, attack=attack).start().models["held-out"].tensors)
    assert furthest(ended["fast"].tensors, ended["plain"].tensors, begun) < 1e-3
    assert ended["fast"].doubted == ended["plain"].doubted == (attack[0] in ("boost@1", "zero@1"))
    np.testing.assert_allclose(ended["fast"].medians, ended["plain"].medians, rtol=1e-3)


@pytest.mark.parametrize(
    ("settings", "gated", "rule"),
    [
        ({}, False, "average"),
        ({"gate": "on"}, True, "clipped"),
        ({"attack": ("shift@0",)}, True, "clipped"),
        ({"attack": ("shift@0",), "gate": "off"}, False, "average"),
        ({"attack": ("shift@0",), "aggregation": "median"}, True, "median"),
        ({"gate": "on", "aggregation": "average"}, True, "average"),
    ],
)
def test_a_gate_and_a_rule_follow_from_the_settings(dataset, settings, gated, rule):
    made = federation(dataset, **settings)
    assert (made.plan.gated, made.plan.rule) == (gated, rule)
    assert {job.aggregation for job in made.jobs(made.start()).values()} == {rule}


def test_a_gate_changes_nothing_where_nobody_is_clipped(larger):
    shut, rows = advanced(larger, 4, gate="on")
    held, plain = advanced(larger, 4, gate="off")
    assert same(shut.tensors, held.tensors)
    assert not shut.doubted
    assert [(r.notes.pop("clipped"), r.notes.pop("refused")) for r in rows] == [(0, 0)] * len(rows)
    for left, right in zip(rows, plain, strict=True):
        assert left.f1 == right.f1
        assert left.prototype_distance == pytest.approx(right.prototype_distance, rel=1e-6, abs=1e-6)
        assert left.cost.bytes_up == right.cost.bytes_up


def test_a_lie_in_reports_leaves_the_training_as_it_is(dataset):
    honest = advanced(dataset, 3, gate="on")[0]
    assert same(advanced(dataset, 3, attack=("counts@0", "cross@1", "swap@2"))[0].tensors, honest.tensors)
    assert not same(advanced(dataset, 3, attack=("flip@0",))[0].tensors, honest.tensors)


def test_wrong_labels_are_trained_on_and_not_reported(dataset):
    spy = Spy()
    rows = run(dataset, replace(PLAN, attack=("wrong-labels@1",)), trainer=spy)
    honest = federation(dataset)
    for (job,) in spy.calls:
        owned = honest.without_rare if job.round > 2 else honest.vehicles
        for vehicle, mine in job.vehicles.items():
            assert torch.equal(mine.images, owned[vehicle].images)
            expected = (owned[vehicle].labels + (vehicle == 1)) % dataset.num_classes
            assert torch.equal(mine.labels, expected)
        assert job.vehicles[1] is spy.calls[0 if job.round <= 2 else 2][0].vehicles[1], "one object for a GPU's pool"
    untrained = run(dataset, replace(PLAN, gate="on"), trainer=Spy())
    assert list(map(without_seconds, rows)) == list(map(without_seconds, untrained))


@dataclass
class Watching:
    """An honest attack that remembers what it was told."""

    scenes: list = field(default_factory=list)
    honest: dict = field(default_factory=dict)

    def features(self, features, labels, scene):
        self.scenes.append(scene)
        self.honest[scene.round] = scene.honest()
        return features, labels


def test_what_a_hostile_vehicle_knows(dataset):
    made = federation(dataset)
    here, owner = Watching(), Watching()
    made.hostile = Hostile({1: here, OWNER: owner}, made.presence, dataset.num_classes)
    state = made.start()
    for number in range(1, 5):
        state, _ = made.advance(state)
        there = sorted(v for v in range(VEHICLES) if v not in (1, OWNER))
        assert sorted(here.honest[number]) == there
        embedded = made.embed(state.models["held-out"], made.vehicles[3].images)[0].numpy()
        told = here.honest[number][3]
        mine = ClassStatistics.from_features(embedded, made.labels[3], dataset.num_classes, watched=[TRUCK])
        np.testing.assert_allclose(told.sums, mine.sums, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(told.counts, mine.counts)
    assert {(s.round, s.gone, s.leaving) for s in here.scenes} == {(n, n > 2, False) for n in (1, 2, 3, 4)}
    assert {(s.round, s.gone, s.leaving) for s in owner.scenes} == {(1, False, False), (2, False, True)}
    assert {(s.vehicle, s.rare, s.num_classes, s.seed) for s in here.scenes} == {(1, TRUCK, 8, 0)}


def test_honest_is_as_good_as_no_attack(dataset):
    """An attack that gives back what it gets goes another way through the code, to the same numbers."""
    plain, made = federation(dataset, gate="on"), federation(dataset, gate="on")
    made.hostile = Hostile({1: Watching()}, made.presence, dataset.num_classes)
    states = [plain.start(), made.start()]
    for _ in range(3):
        (states[0], left), (states[1], right) = (f.advance(s) for f, s in zip((plain, made), states, strict=True))
        for a, b in zip(left, right, strict=True):
            assert a.f1 == b.f1
            assert a.prototype_distance == pytest.approx(b.prototype_distance, rel=1e-5, abs=1e-5)


def test_what_the_gate_clips_and_refuses_is_noted(larger):
    noted = {}
    for text in ("shift@0", "outlier@0", "scale@0", "cross@0", "boost@0"):
        rows = run(larger, replace(PLAN, attack=(text,), rounds=3, eval_every=3))
        noted[text] = {r.method: (r.notes["clipped"] > 0, r.notes["refused"]) for r in rows if r.round == 3}
    both = {"mpt": (True, 0), "mpt-x": (True, 0)}
    assert noted["shift@0"] == noted["scale@0"] == both
    assert noted["outlier@0"] == {"mpt": (False, 1), "mpt-x": (False, 1)}
    assert noted["cross@0"] == {"mpt": (False, 0), "mpt-x": (True, 0)}
    assert noted["boost@0"] == {"mpt": (False, 0), "mpt-x": (False, 0)}
    rows = run(larger, replace(PLAN, attack=("shift@0",), gate="off", rounds=3))
    assert all("clipped" not in row.notes for row in rows)


OWN = {
    "Raises": ("features(self, f, l, scene): raise ValueError('no')", AttackError, "ValueError: no (mine.py, line 2)"),
    "Reports": (
        "report(self, report, scene): return 1 / 0",
        AttackError,
        "ZeroDivisionError: division by zero (mine.py",
    ),
    "Short": (
        "features(self, f, l, scene): return f[1:], l[1:]",
        AttackError,
        "attack: features gave shapes ({less}, 128) and ({less},), should be those of the vehicle's own, ({n}, 128)",
    ),
    "Few": ("labels(self, l, scene): return l[:3]", LearningError, "labels: shape is (3,), should be ({n},)"),
    "Dies": (
        "update(self, start, *more): return start['nothing']",
        AttackError,
        "KeyError: 'nothing' (mine.py, line 2)",
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_what_is_wrong_with_an_attack_of_ones_own_is_one_sentence(dataset, tmp_path, name):
    body, kind, message = OWN[name]
    (tmp_path / "mine.py").write_text(f"class {name}:\n    def {body}\n")
    with pytest.raises(kind) as raised:
        run(dataset, replace(PLAN, attack=(f"{tmp_path / 'mine.py'}:{name}@0",)))
    n = len(federation(dataset).labels[0])
    assert message.format(n=n, less=n - 1) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_the_gate_keeps_the_departed_class_where_a_vehicle_lies():
    """F1 of a digit that one of eight vehicles took along, while one of those that stay shifts its few samples."""
    plan = Plan(
        rare=8, vehicles=8, remaining=0.15, rounds=8, depart_at=4, eval_every=2, epochs=1, methods=("mpt", "mpt-x")
    )
    digits = load("digits")
    found = {}
    for name, settings in {
        "honest": {},
        "open": {"attack": ("shift@0",), "gate": "off"},
        "gated": {"attack": ("shift@0",)},
    }.items():
        rows = run(digits, replace(plan, **settings))
        found[name] = {m: np.mean([r.f1 for r in rows if r.gone and r.method == m]) for m in plan.methods}
    for method in plan.methods:
        assert found["honest"][method] > 0.8
        assert found["open"][method] < found["honest"][method] - 0.3
        assert found["gated"][method] > found["honest"][method] - 0.1
