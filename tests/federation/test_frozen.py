"""A backbone that is not trained: every trainer leaves it alone, features do not move, and a kept mean stays true."""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.data import load
from mpt.federation.cuda_graph_trainer import CudaGraphTrainer
from mpt.federation.engine import Federation, run_together
from mpt.federation.jobs import Job, train_plain
from mpt.federation.lockstep import rounds
from mpt.federation.plan import Plan
from mpt.federation.trainers import (
    fast_trainer,
    stackable,
    train_channels_last,
    train_side_by_side,
)
from mpt.learning import FedLC, Samples, TrainingSettings, cross_entropy
from mpt.learning.backbones.classifier import Classifier
from mpt.learning.backbones.cnn3 import CNN3
from mpt.scenario import PlanError

pytestmark = pytest.mark.usefixtures("two_threads")

SIDE, CLASSES = 8, 4
PLAN = Plan(
    rare=8,
    methods=("fedavg", "frozen", "mpt", "oracle-train"),
    vehicles=4,
    remaining=0.1,
    rounds=6,
    depart_at=2,
    eval_every=1,
    epochs=1,
    lr=0.1,
    freeze=True,
)


def frozen():
    torch.manual_seed(0)
    return Classifier(CNN3(3, SIDE), 128, num_classes=CLASSES, in_channels=3, image_size=SIDE).freeze()


def work(model, settings):
    rng, held = np.random.default_rng(0), {}
    for vehicle, n in {1: 40, 2: 25, 5: 1}.items():
        images = torch.from_numpy(rng.integers(0, 256, (n, 3, SIDE, SIDE), dtype=np.uint8)).to(model.head.weight.device)
        held[vehicle] = Samples(images, torch.from_numpy(rng.integers(0, CLASSES, n)).to(images.device))
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    return start, [Job(start, held, settings, 0, 1, loss) for loss in (cross_entropy, FedLC())]


def check(trainer, model, near):
    """The backbone is the same bit by bit, and the head is the one that the reference loop gives."""
    start, jobs = work(model, TrainingSettings(epochs=1, batch_size=16, lr=0.05))
    for made, expected in zip(trainer(model, jobs), train_plain(model, jobs), strict=True):
        assert made.keys() == start.keys()
        assert all(torch.equal(made[k], start[k]) for k in start if k.startswith("backbone."))
        for name in ("head.weight", "head.bias"):
            moved = (expected[name] - start[name]).norm()
            assert moved > 0
            assert (made[name] - expected[name]).norm() < near * moved


@pytest.mark.parametrize("trainer", [train_plain, train_channels_last, train_side_by_side])
def test_on_a_cpu_the_backbone_stays_and_the_head_is_trained(trainer):
    check(trainer, frozen(), 1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize(("precision", "near"), [("float32", 1e-2), ("bfloat16", 0.3)])
@pytest.mark.parametrize("compiled", [False, True])
def test_on_a_gpu_too(precision, near, compiled):
    model = frozen().cuda()
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        check(CudaGraphTrainer(precision, compiled=compiled), model, near)
    trainer = fast_trainer(model, TrainingSettings())
    assert isinstance(trainer.fast, CudaGraphTrainer)


def test_the_stack_is_not_for_frozen_models():
    model = frozen()
    assert not stackable(model, TrainingSettings())
    model.frozen = False
    assert stackable(model, TrainingSettings()) == (find_spec("triton") is not None)


@pytest.fixture(scope="module")
def digits():
    return load("digits", image_size=28, per_class=20)


@pytest.fixture(scope="module")
def weights(digits, tmp_path_factory):
    """A backbone that a federation without a departure worth the name has learnt in two rounds."""
    plan = replace(PLAN, methods=("fedavg",), rounds=2, depart_at=1, freeze=False)
    *_, (state, _) = rounds(federation := Federation(digits, plan, torch.device("cpu")), federation.start())
    path = tmp_path_factory.mktemp("weights") / "digits.pt"
    torch.save(state.models["continued"].tensors, path)
    return path


@pytest.fixture(scope="module")
def done(digits, weights):
    federation = Federation(digits, replace(PLAN, weights=str(weights)), torch.device("cpu"))
    states, rows = [], []
    for state, new in rounds(federation, federation.start()):
        states.append(state)
        rows += new
    return federation, states, rows


def test_every_rounds_backbone_is_the_files(done, weights):
    _, states, _ = done
    file = torch.load(weights, weights_only=True)
    for state in states:
        assert set(state.models) == {"held-out", "continued"}
        for model in state.models.values():
            assert all(torch.equal(model.tensors[k], file[k]) for k in file if k.startswith("backbone."))
    first, last = (state.models["continued"].tensors["head.weight"] for state in (states[0], states[-1]))
    assert not torch.equal(first, last)
    assert not torch.equal(file["head.weight"], first)


def test_features_do_not_drift(done):
    _, _, rows = done
    drifts = [row.drift for row in rows if row.method == "frozen" and row.round > PLAN.depart_at]
    assert [(drift.references, drift.rare) for drift in drifts] == [(0.0, 0.0)] * 4


def test_a_kept_mean_stays_true_and_its_f1_with_it(done):
    """`frozen` at the departure is oracle-train's prototype, and is so for ever."""
    _, _, rows = done
    kept = {row.round: row for row in rows if row.method == "frozen"}
    oracle = {row.round: row for row in rows if row.method == "oracle-train"}
    after = range(PLAN.depart_at + 1, PLAN.rounds + 1)
    (distance,) = {kept[n].prototype_distance for n in after}
    assert distance < 1e-4  # a prototype travels in float32
    for n in after:
        assert np.array_equal(kept[n].scores.f1, kept[after[0]].scores.f1)
        assert np.array_equal(kept[n].scores.f1, oracle[n].scores.f1)
    assert kept[after[0]].f1 > 0.5
    heads = {row.round: row.f1 for row in rows if row.method == "fedavg"}
    assert heads[PLAN.rounds] < kept[PLAN.rounds].f1


def test_plans_that_differ_in_freeze_are_not_run_together(digits):
    with pytest.raises(PlanError, match="they differ in backbone, freeze, training"):
        run_together(digits, [PLAN, replace(PLAN, freeze=False)])
