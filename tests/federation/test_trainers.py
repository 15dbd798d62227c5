"""The fast trainers do what the reference loop does."""

import os
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from mpt.federation.cuda_graph_trainer import CudaGraphTrainer
from mpt.federation.jobs import Job, train_plain
from mpt.federation.plan import Plan
from mpt.federation.trainers import (
    ByLoss,
    Trainers,
    TritonTrainer,
    fast_trainer,
    stackable,
    train_channels_last,
    train_side_by_side,
)
from mpt.learning import LearningError, Samples, TrainingSettings, build, cross_entropy
from mpt.learning.backbones.classifier import Classifier
from mpt.learning.backbones.cnn3 import CNN3
from tests.federation.training_work import CLASSES, furthest, samples, two_jobs

pytestmark = pytest.mark.usefixtures("two_threads")

SIDE = 8


@pytest.fixture
def interpreted(monkeypatch):
    """Triton's kernels run by its interpreter, on the CPU."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("there is a CUDA device: the kernels run there")
    interpreter = pytest.importorskip("triton.runtime.interpreter", reason="Triton is not installed")
    patch = interpreter._patch_lang_tensor

    def with_index(tensor, *scope):
        """NumPy no longer makes a number of an array of one entry, as Triton 3.6 asks it to."""
        patch(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", with_index)


def model(side=SIDE, **options):
    torch.manual_seed(0)
    return Classifier(CNN3(3, side, **options), 128, num_classes=CLASSES, in_channels=3, image_size=side)


def jobs(start, settings, side=SIDE):
    """Vehicles with several samples, one and none."""
    return two_jobs(start, settings, side, {3: 5, 5: 6, 7: 1, 8: 0})


@pytest.mark.slow
@pytest.mark.parametrize("most", [None, 2])
def test_stacked_gives_the_same_models(interpreted, most):
    made, settings = model(), TrainingSettings(epochs=1, batch_size=4, lr=0.05, augment="crop-flip")
    start = {name: tensor.clone() for name, tensor in made.state_dict().items()}
    work = jobs(start, settings)
    plain, stacked = train_plain(made, work), TritonTrainer("float32", most)(made, work)
    for left, right in zip(stacked, plain, strict=True):
        assert left.keys() == right.keys()
        assert furthest(left, right, start) < 1e-5
        counted = [k for k in start if k.endswith("num_batches_tracked")]
        assert all(torch.equal(left[k], right[k]) for k in counted)
    assert all(torch.equal(start[k], work[0].start[k]) for k in start)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("side", "options", "changed"),
    [
        (8, {"norm": False}, {"prox": 0.5, "momentum": 0.0}),
        (16, {"norm": False, "embedding": True}, {"local_steps": 2, "weight_decay": 0.1}),
        (16, {"embedding": True}, {"prox": 0.5, "batch_size": 3}),
    ],
)
def test_stacked_trains_the_other_three_layer_networks_and_settings(interpreted, side, options, changed):
    made, settings = model(side, **options), TrainingSettings(**{"epochs": 1, "batch_size": 4, "lr": 0.05, **changed})
    start = {name: tensor.clone() for name, tensor in made.state_dict().items()}
    work = jobs(start, settings, side)[:1]
    assert stackable(made, settings)
    for left, right in zip(TritonTrainer("float32")(made, work), train_plain(made, work), strict=True):
        assert left.keys() == right.keys()
        assert furthest(left, right, start) < 1e-5


@pytest.mark.slow
def test_another_learning_rate_needs_no_other_stack(interpreted):
    made, settings = model(), TrainingSettings(epochs=1, batch_size=4, lr=0.05)
    start = {name: tensor.clone() for name, tensor in made.state_dict().items()}
    work, trainer = jobs(start, settings), TritonTrainer("float32")
    trainer(made, work[:1])
    slower = [replace(job, settings=replace(settings, lr=0.01)) for job in work[:1]]
    held = trainer._stack
    again = trainer(made, slower)
    assert trainer._stack is held
    assert furthest(again[0], train_plain(made, slower)[0], start) < 1e-5


def test_memory_of_a_stack_is_what_its_buffers_take(interpreted):
    from mpt.learning.triton_stack.layout import Layout  # noqa: PLC0415
    from mpt.learning.triton_stack.stack import bytes_a_vehicle  # noqa: PLC0415

    settings = TrainingSettings(batch_size=64)
    maps = 64 * (32 * 32 * 32 + 16 * 16 * 64 + 8 * 8 * 128)
    for dtype, size in ((torch.bfloat16, 2), (torch.float32, 4)):
        taken = bytes_a_vehicle(Layout(3, 10), settings, 32, dtype)
        assert 2 * maps * size < taken < 4 * maps * size + 2**23


def test_stacked_refuses_jobs_that_differ_in_settings():
    made = model()
    start = dict(made.state_dict())
    work = [Job(start, {1: samples(4, SIDE)}, TrainingSettings(epochs=e), 0, 1) for e in (1, 2)]
    with pytest.raises(LearningError, match="settings differ"):
        TritonTrainer("float32")(made, work)


@pytest.mark.parametrize("fast", [train_channels_last, train_side_by_side])
def test_on_a_cpu_the_models_are_the_same_after_two_rounds(fast):
    made, settings = model(), TrainingSettings(epochs=1, batch_size=4, lr=0.05)
    start = {name: tensor.clone() for name, tensor in made.state_dict().items()}
    ended = {}
    for trainer in (train_plain, fast):
        states = [start, start]
        for number in (1, 2):
            work = [
                Job(state, job.vehicles, settings, job.seed, number, job.loss)
                for state, job in zip(states, jobs(start, settings), strict=True)
            ]
            states = trainer(made, work)
        ended[trainer] = states
    for left, right in zip(ended[fast], ended[train_plain], strict=True):
        assert furthest(left, right, start) < 1e-4
        assert all(tensor.is_contiguous() for tensor in left.values())


def test_side_by_side_repeats_bitwise_and_leaves_torch_as_it_was():
    made, settings = model(), TrainingSettings(epochs=1, batch_size=4, lr=0.05)
    start = {name: tensor.clone() for name, tensor in made.state_dict().items()}
    threads, drawn = torch.get_num_threads(), torch.get_rng_state()
    states = [train_side_by_side(made, jobs(start, settings)) for _ in range(3)]
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), drawn)
    for again in states[1:]:
        assert all(torch.equal(a[k], b[k]) for a, b in zip(states[0], again, strict=True) for k in a)
    assert all(torch.equal(start[k], tensor) for k, tensor in made.state_dict().items())


def test_a_model_with_dropout_is_not_trained_side_by_side():
    torch.manual_seed(0)
    backbone = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(3 * SIDE**2, 16))
    noisy = Classifier(backbone, 16, num_classes=CLASSES, in_channels=3, image_size=SIDE)
    assert fast_trainer(noisy, TrainingSettings()) is train_channels_last


def test_side_by_side_refuses_a_round_without_samples():
    made = model()
    work = [Job(dict(made.state_dict()), {1: samples(0, SIDE)}, TrainingSettings(), 0, 1)]
    with pytest.raises(LearningError, match="sum is 0"):
        train_side_by_side(made, work)


def test_the_choice_of_a_trainer():
    settings = TrainingSettings()
    small = build("cnn3", num_classes=10, in_channels=3, image_size=32, seed=0)
    assert fast_trainer(small, settings) is train_side_by_side
    assert not stackable(build("cnn3", num_classes=10, in_channels=3, image_size=30, seed=0), settings)
    assert not stackable(build("cnn3", num_classes=200, in_channels=3, image_size=32, seed=0), settings)
    assert not stackable(small, TrainingSettings(batch_size=512))
    assert not stackable(build("vit-tiny", num_classes=10, in_channels=3, image_size=32, seed=0), settings)


def test_a_trainer_serves_the_next_federation_of_its_kind(monkeypatch):
    chosen = []

    def choose(model, settings, precision, steps):
        chosen.append((settings.batch_size, steps))
        return ByLoss(TritonTrainer())

    monkeypatch.setattr("mpt.federation.trainers.fast_trainer", choose)
    made, plan, trainers = model(), Plan(rare=0), Trainers()
    with trainers.used():
        first = trainers.fast(made, plan, 1)
        first.fast.pool.images = torch.zeros(3)
    assert first.fast.pool.images is None  # nothing of the last federation's is held
    assert trainers.fast(made, replace(plan, lr=0.5, seed=1, methods=("mpt",)), 1) is first
    with pytest.raises(RuntimeError), trainers.used():
        raise RuntimeError("out of memory")
    assert trainers.fast(made, plan, 1) is not first
    for other in (replace(plan, batch_size=8), replace(plan, precision="tf32"), replace(plan, freeze=True)):
        assert trainers.fast(made, other, 1) is not first
    assert trainers.fast(made, plan, 10**6) is not trainers.fast(made, plan, 1)
    own = replace(plan, backbone="mine.py:net")  # its file may be edited, and what it makes may depend on the seed
    assert trainers.fast(made, own, 1) is not trainers.fast(made, own, 1)
    assert [size for size, _ in chosen] == [64, 64, 8, 64, 64, 64, 64, 64, 64]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize(("precision", "near"), [("float32", 1e-2), ("tf32", 0.1), ("bfloat16", 0.3)])
@pytest.mark.parametrize("kind", [TritonTrainer, CudaGraphTrainer])
def test_on_a_gpu(kind, precision, near):
    made = build("cnn3", num_classes=CLASSES, in_channels=3, image_size=32, seed=0).cuda()
    settings = TrainingSettings(epochs=1, batch_size=16)
    start = {name: tensor.clone() for name, tensor in made.state_dict().items()}
    rng = np.random.default_rng(0)
    held = {}
    for vehicle, n in {1: 40, 2: 25}.items():
        images = torch.from_numpy(rng.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)).cuda()
        held[vehicle] = Samples(images, torch.from_numpy(rng.integers(0, CLASSES, n)).cuda())
    work = [Job(start, held, settings, 0, 1, cross_entropy)]
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        plain = train_plain(made, work)[0]
    fast = kind(precision)(made, work)[0]
    assert furthest(fast, plain, start) < near
