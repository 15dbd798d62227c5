"""Vehicles as one network are trained as the reference loop trains them."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from mpt.federation.jobs import Job, train_plain
from mpt.federation.stacked_trainer import StackedTrainer, bytes_a_vehicle, portioned
from mpt.federation.taking_part import TakingPart
from mpt.learning import LearningError, TrainingSettings, build
from mpt.learning.stacked import steps
from tests.federation.training_work import CLASSES, furthest, samples, two_jobs

pytestmark = pytest.mark.usefixtures("two_threads")

SIDE = 28
NAMES = ("resnet18", "mobilenetv3", "vit-tiny", "cnn3", "cnn3-embedding")


@pytest.fixture
def doubles(monkeypatch):
    """Everything in float64: what differs then is no rounding."""
    normalise = steps.normalise
    monkeypatch.setattr(steps, "normalise", lambda images: normalise(images, torch.float64))
    monkeypatch.setattr(torch.Tensor, "float", lambda self: self.double())
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def model(name):
    return build(name, num_classes=CLASSES, in_channels=3, image_size=SIDE, seed=0)


def jobs(start, settings):
    """Batches of different sizes, one that takes more steps, one with a single sample, one without."""
    return two_jobs(start, settings, SIDE, {3: 7, 5: 6, 6: 5, 7: 1, 8: 0, 9: 12})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("resnet18", {"augment": "crop-flip"}),
        ("mobilenetv3", {"prox": 0.5, "momentum": 0.0}),
        ("vit-tiny", {"augment": "flip", "weight_decay": 0.1}),
        ("cnn3", {"local_steps": 3}),
    ],
)
def test_the_models_are_those_of_the_reference_loop(doubles, name, changed):
    made, settings = model(name).double(), TrainingSettings(**{"epochs": 1, "batch_size": 4, "lr": 0.05, **changed})
    start = {key: tensor.clone() for key, tensor in made.state_dict().items()}
    work, trainer = jobs(start, settings), StackedTrainer("float32", most=3)
    for again in range(2):
        if again:
            some = work if name in ("cnn3", "vit-tiny") else work[1:]
            work = [replace(job, settings=replace(settings, lr=0.01), round=2) for job in some]
        for left, right in zip(trainer(made, work), train_plain(made, work), strict=True):
            assert left.keys() == right.keys()
            assert furthest(left, right, start) < 1e-12
            counted = [k for k in start if k.endswith("num_batches_tracked")]
            assert all(torch.equal(left[k], right[k]) for k in counted)
    assert all(torch.equal(start[k], work[0].start[k]) for k in start)


def test_another_learning_rate_needs_no_other_stack():
    made, settings = model("cnn3"), TrainingSettings(epochs=1, batch_size=4)
    work = jobs(dict(made.state_dict()), settings)
    trainer = StackedTrainer("float32")
    trainer(made, work)
    held = list(trainer._stacks)
    trainer(made, [replace(job, settings=replace(settings, lr=0.5)) for job in work])
    assert trainer._stacks == held
    trainer(made, [replace(job, settings=replace(settings, momentum=0.5)) for job in work])
    assert not set(trainer._stacks) & set(held)


def test_the_next_federations_models_are_those_of_a_new_trainer():
    made, settings = model("cnn3"), TrainingSettings(epochs=1, batch_size=4)
    first, other = jobs(dict(made.state_dict()), settings), jobs(dict(made.state_dict()), settings)
    trainer = StackedTrainer("float32", most=3)
    trainer(made, first)
    held = list(trainer._stacks)
    trainer.forget()
    assert trainer.pool.images is None
    again, new = trainer(made, other[1:]), StackedTrainer("float32", most=3)(made, other[1:])
    assert set(trainer._stacks) & set(held)
    used = list(trainer._stacks)
    trainer.forget()
    assert list(trainer._kept.values()) == used  # not all that ever were
    for left, right in zip(again, new, strict=True):
        assert all(torch.equal(left[k], right[k]) for k in left)


def test_settings_that_differ_are_refused():
    made = model("cnn3")
    work = [Job(dict(made.state_dict()), {1: samples(4, SIDE)}, TrainingSettings(epochs=e), 0, 1) for e in (1, 2)]
    with pytest.raises(LearningError, match="settings differ"):
        StackedTrainer("float32")(made, work)


def test_who_takes_about_as_many_steps_trains_side_by_side():
    settings = TrainingSettings(epochs=1, batch_size=2)
    work = [TakingPart(0, v, samples(n, SIDE)) for v, n in ((1, 20), (2, 20), (3, 40), (4, 18), (5, 20), (6, 4))]
    found = [[one.vehicle for one in part] for part in portioned(work, settings, 3)]
    assert found == [[3], [1, 2], [5, 4], [6]]
    assert portioned([], settings, 3) == []


@pytest.mark.parametrize("name", NAMES)
def test_memory_grows_with_what_is_in_a_batch(name):
    small, large = (bytes_a_vehicle(model(name), TrainingSettings(batch_size=n)) for n in (16, 64))
    weights = sum(p.numel() for p in model(name).parameters())
    assert small > 24 * weights
    assert (large - 24 * weights) == 4 * (small - 24 * weights)


def test_lies_and_rules_see_every_update():
    made, settings = model("cnn3"), TrainingSettings(epochs=1, batch_size=4, lr=0.05)
    start = {key: tensor.clone() for key, tensor in made.state_dict().items()}
    work = [replace(job, aggregation="median") for job in jobs(start, settings)]
    for left, right in zip(StackedTrainer("float32")(made, work), train_plain(made, work), strict=True):
        assert furthest(left, right, start) < 1e-4
