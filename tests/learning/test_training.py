import dataclasses
import math
from collections import Counter

import pytest

torch = pytest.importorskip("torch", reason="mpt.learning needs torch, which is not installed")

from torch import nn

from mpt.learning import Classifier, FedLC, LearningError, TrainingSettings, embed, generator, normalise, train
from mpt.learning.augmentation import Epoch, draw_epoch, take

from .tasks import copied, same_state, small, stripes

ONCE = TrainingSettings(epochs=1)
CPU = torch.device("cpu")


def trained(settings=ONCE, *, spec="cnn3", data=None, vehicle=0, start=None, **options):
    model = small(spec)
    if start is not None:
        model.load_state_dict(start)
    images, labels = data or stripes(100, seed=1)
    result = train(model, images, labels, settings, generator=generator(0, "training", 1, vehicle), **options)
    return model, result


def accuracy(model, images, labels):
    return float((model.head(embed(model, images)).argmax(1) == labels).float().mean())


def test_cnn3_learns_stripes():
    """On samples it has not seen; an untrained model is right about one time in four."""
    model, result = trained(TrainingSettings(epochs=3, batch_size=32), data=stripes(200, seed=1))
    images, labels = stripes(200, seed=2)
    assert accuracy(model, images, labels) > 0.9
    assert result.samples == 200
    assert 0 < result.loss < math.log(4)
    assert accuracy(small(), images, labels) < 0.6


def test_one_epoch_is_sgd_written_out():
    """Against the update rule by hand: g = grad + wd p; v = 0.9 v + g (v = g at first); p = p - lr v."""
    images, labels = stripes(10, seed=1)
    settings = TrainingSettings(epochs=2, batch_size=4, lr=0.05)
    model = small().double()
    expected = small().double()
    parameters = list(expected.parameters())
    draws, velocity, losses = generator(0, "training"), None, []
    for _ in range(2):
        order = torch.randperm(10, generator=draws)
        for batch in (order[:4], order[4:8], order[8:]):
            inputs = (images[batch].double() / 255 - 0.5) / 0.25
            value = nn.functional.cross_entropy(expected(inputs), labels[batch])
            losses += [float(value.detach())] * len(batch)
            gradients = torch.autograd.grad(value, parameters)
            step = [g + 5e-4 * p for g, p in zip(gradients, parameters, strict=True)]
            velocity = step if velocity is None else [0.9 * v + s for v, s in zip(velocity, step, strict=True)]
            with torch.no_grad():
                for p, v in zip(parameters, velocity, strict=True):
                    p.sub_(0.05 * v)
    result = train(model, images, labels, settings, generator=generator(0, "training"))
    assert result.loss == pytest.approx(sum(losses) / len(losses), abs=1e-9)
    for name, tensor in expected.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], tensor, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("augment", ["none", "flip", "crop-flip"])
def test_the_same_seed_gives_bitwise_the_same_model(augment):
    settings = TrainingSettings(epochs=2, augment=augment)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    model, result = trained(settings)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    torch.rand(3)
    again, repeated = trained(settings)
    assert same_state(model.state_dict(), again.state_dict())
    assert result == repeated
    other, _ = trained(settings, vehicle=1)
    assert not same_state(model.state_dict(), other.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["resnet18", "mobilenetv3", "vit-tiny"])
def test_the_larger_backbones_train_and_repeat_bitwise(spec):
    data = stripes(20, seed=1)
    settings = TrainingSettings(epochs=2, batch_size=10)
    model, result = trained(settings, spec=spec, data=data)
    again, _ = trained(settings, spec=spec, data=data)
    assert same_state(model.state_dict(), again.state_dict())
    assert math.isfinite(result.loss)
    assert not same_state(model.state_dict(), small(spec).state_dict())


def test_the_order_of_the_vehicles_does_not_matter():
    """One model object is loaded with the global state for each vehicle in turn, as a round does it."""
    worker, start = small(), copied(small())
    data = {vehicle: stripes(60, seed=vehicle) for vehicle in (3, 5, 8)}

    def one_round(order):
        updates = {}
        for vehicle in order:
            worker.load_state_dict(start)
            train(worker, *data[vehicle], ONCE, generator=generator(0, "training", 4, vehicle))
            updates[vehicle] = copied(worker)
        return updates

    forth, back = one_round([3, 5, 8]), one_round([8, 3, 5])
    assert all(same_state(forth[vehicle], back[vehicle]) for vehicle in data)
    assert not same_state(forth[3], forth[5])


def test_dropout_in_a_users_model_depends_on_the_generator_alone():
    def noisy():
        torch.manual_seed(0)
        backbone = nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.Dropout(0.5))
        return Classifier(backbone, 16, num_classes=4, in_channels=1, image_size=28)

    images, labels = stripes(40, seed=1)
    states = []
    for disturbance, vehicle in ((1, 0), (2, 0), (2, 1)):
        model = noisy()
        torch.manual_seed(disturbance)
        before = torch.get_rng_state()
        train(model, images, labels, ONCE, generator=generator(0, "training", 1, vehicle))
        assert torch.equal(torch.get_rng_state(), before)
        states.append(copied(model))
    assert same_state(states[0], states[1])
    assert not same_state(states[1], states[2])


@pytest.mark.parametrize(("n", "sizes"), [(9, [4, 4]), (10, [4, 4, 2]), (2, [2]), (1, []), (0, [])])
def test_a_last_batch_of_one_is_left_out(n, sizes):
    seen, data = [], stripes(n, seed=1)

    def watching(logits, labels, counts):
        seen.append(len(labels))
        assert counts.tolist() == [int((data[1] == c).sum()) for c in range(4)]
        return nn.functional.cross_entropy(logits, labels)

    settings = TrainingSettings(epochs=2, batch_size=4)
    model, result = trained(settings, data=data, loss=watching)
    assert seen == sizes * 2
    assert result.samples == n
    assert math.isfinite(result.loss) == bool(sizes)
    assert same_state(model.state_dict(), small().state_dict()) == (not sizes)


def test_no_epochs_change_nothing():
    model, result = trained(TrainingSettings(epochs=0))
    assert same_state(model.state_dict(), small().state_dict())
    assert math.isnan(result.loss)
    assert result.samples == 100


def test_every_sample_is_seen_once_an_epoch_and_in_another_order_each():
    images, _ = stripes(50, seed=1)
    labels = torch.arange(50)
    model, seen = small(num_classes=50), []

    def watching(logits, batch, counts):
        seen.extend(batch.tolist())
        return nn.functional.cross_entropy(logits, batch)

    train(model, images, labels, TrainingSettings(epochs=2, batch_size=16), generator=generator(0, "t"), loss=watching)
    assert set(Counter(seen).values()) == {2}
    assert sorted(seen[:50]) == list(range(50))
    assert seen[:50] != seen[50:]


def test_fedlc_trains_with_a_class_absent_and_leaves_its_row_of_the_head_alone():
    images, labels = stripes(120, seed=1)
    held = labels != 2
    settings = TrainingSettings(epochs=2, weight_decay=0.0)
    model, result = trained(settings, data=(images[held], labels[held]), loss=FedLC())
    plain, _ = trained(settings, data=(images[held], labels[held]))
    start = small().head.weight
    assert math.isfinite(result.loss)
    assert torch.allclose(model.head.weight[2], start[2], atol=1e-7)
    assert not torch.allclose(plain.head.weight[2], start[2], atol=1e-3)


def test_training_restores_each_modules_mode():
    model = small().eval()
    model.head.train()
    modes = [module.training for module in model.modules()]
    train(model, *stripes(8, seed=1), ONCE, generator=generator(0, "t"))
    embed(model, stripes(4, seed=1)[0])
    assert [module.training for module in model.modules()] == modes


def test_normalise_is_the_fixed_formula():
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    expected = (torch.arange(256, dtype=torch.float64) / 255 - 0.5) / 0.25
    torch.testing.assert_close(normalise(images).flatten().double(), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(normalise(images, torch.float64).flatten(), expected, atol=1e-14, rtol=0)


def shifted_by_hand(image, flip, shift):
    if flip:
        image = image.flip(-1)
    height, width = image.shape[1:]
    sign = -1 if flip else 1
    moved = torch.empty_like(image)
    for i in range(height):
        for j in range(width):
            column = j + sign * int(shift[1])
            moved[:, i, j] = image[:, min(max(i + int(shift[0]), 0), height - 1), min(max(column, 0), width - 1)]
    return moved


def test_augmentation_against_loops():
    images, _ = stripes(6, seed=1, channels=3)
    epoch = draw_epoch(6, 28, "crop-flip", generator(3, "order"), CPU)
    batch = take(images, epoch, slice(1, 5))
    assert batch.dtype == torch.uint8
    for k, position in enumerate(range(1, 5)):
        sample, flip, shift = (int(epoch.order[position]), bool(epoch.flip[position]), epoch.shift[position])
        assert torch.equal(batch[k], shifted_by_hand(images[sample], flip, shift))
    assert bool(epoch.flip.any())
    assert not bool(epoch.flip.all())


def test_what_each_augmentation_draws():
    n, kinds = 4000, {}
    for augment in ("none", "flip", "crop-flip"):
        kinds[augment] = draw_epoch(n, 32, augment, generator(0, "order"), CPU)
        assert torch.equal(kinds[augment].order, kinds["none"].order)
    assert kinds["none"].flip is None
    assert kinds["flip"].shift is None
    assert float(kinds["flip"].flip.float().mean()) == pytest.approx(0.5, abs=0.03)
    shifts = kinds["crop-flip"].shift
    assert set(shifts.flatten().tolist()) == set(range(-4, 5))
    images, _ = stripes(5, seed=0)
    still = Epoch(torch.arange(5), torch.zeros(5, dtype=torch.bool), torch.zeros(5, 2, dtype=torch.int64))
    assert torch.equal(take(images, still, slice(0, 5)), images)


@pytest.mark.parametrize("spec", ["cnn3", "resnet18", "mobilenetv3", "vit-tiny"])
def test_batching_changes_features_by_rounding_only(spec):
    model = small(spec)
    images, _ = stripes(9, seed=1)
    whole = embed(model, images)
    for batch_size in (1, 4, 9):
        torch.testing.assert_close(embed(model, images, batch_size=batch_size), whole, atol=1e-5, rtol=1e-5)
    assert whole.shape == (9, model.dim)
    assert not whole.requires_grad
    assert model.training
    assert same_state(model.state_dict(), small(spec).state_dict())


def test_nothing_to_embed():
    model = small()
    none = torch.empty((0, 1, 28, 28), dtype=torch.uint8)
    assert embed(model, none).shape == (0, 128)


IMAGES, LABELS = stripes(6, seed=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: embed(m, IMAGES.float()), r"images: dtype is torch.float32, should be torch.uint8"),
        (lambda m: embed(m, IMAGES[0]), r"images: shape is \(1, 28, 28\), should be \(N, 1, 28, 28\) for this model"),
        (lambda m: embed(m, IMAGES[..., :27]), r"images: shape is \(6, 1, 28, 27\)"),
        (lambda m: embed(m, IMAGES.to("meta")), "images: on meta, should be on cpu like the model"),
        (lambda m: embed(m, IMAGES, batch_size=0), "batch_size: 0, should be at least 1"),
        (lambda m: train(m, IMAGES, LABELS.int(), ONCE, generator=None), "labels: dtype is torch.int32"),
        (lambda m: train(m, IMAGES, LABELS[1:], ONCE, generator=None), r"labels: shape is \(5,\), should be \(6,\)"),
        (lambda m: train(m, IMAGES, LABELS.to("meta"), ONCE, generator=None), "labels: on meta, should be on cpu"),
        (
            lambda m: train(m, IMAGES, LABELS + 1, ONCE, generator=None),
            r"labels: class 4, but there are 4 .*\(0 to 3\)",
        ),
        (lambda m: train(m, IMAGES, LABELS - 9, ONCE, generator=None), "labels: class -9, but"),
    ],
)
def test_wrong_data_is_refused_and_the_model_stays(call, message):
    model = small()
    with pytest.raises(LearningError, match=message):
        call(model)
    assert same_state(model.state_dict(), small().state_dict())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": -1}, "epochs: -1, should be at least 0"),
        ({"epochs": 1.5}, "epochs: 1.5, should be a whole number"),
        ({"batch_size": 1}, "batch_size: 1, should be at least 2"),
        ({"batch_size": True}, "batch_size: True, should be a whole number"),
        ({"lr": 0.0}, "lr: 0.0, should be above 0"),
        ({"lr": math.nan}, "lr: nan, should be a finite number"),
        ({"lr": "fast"}, "lr: 'fast', should be a number"),
        ({"momentum": 1.0}, "momentum: 1.0, should be below 1"),
        ({"weight_decay": -1e-4}, "weight_decay: -0.0001, should be at least 0"),
        ({"augment": "mixup"}, "augment: 'mixup', should be none, flip or crop-flip"),
    ],
)
def test_wrong_settings_are_refused(changes, message):
    with pytest.raises(LearningError, match=message):
        TrainingSettings(**changes)


def test_the_defaults_are_the_papers():
    assert dataclasses.asdict(TrainingSettings()) == {
        "epochs": 5,
        "lr": 0.01,
        "momentum": 0.9,
        "weight_decay": 5e-4,
        "batch_size": 64,
        "augment": "none",
        "local_steps": None,
        "prox": 0.0,
    }


def test_local_steps_stand_in_place_of_epochs():
    """Seven steps are an epoch of four batches and three of the next, in the order that two epochs have."""
    seven = trained(TrainingSettings(batch_size=32, local_steps=7))[0]
    two = trained(TrainingSettings(batch_size=32, epochs=2))[0]
    counted = [int(m.state_dict()["backbone.layers.1.num_batches_tracked"]) for m in (seven, two)]
    assert counted == [7, 8]
    eight = trained(TrainingSettings(batch_size=32, local_steps=8, epochs=1))[0]
    assert same_state(eight.state_dict(), two.state_dict())
    alone = small()
    before = copied(alone)
    images, labels = stripes(1, seed=1)
    train(alone, images, labels, TrainingSettings(local_steps=5), generator=generator(0, "training", 1, 0))
    assert same_state(alone.state_dict(), before)


def test_fedprox_is_the_gradient_of_its_penalty():
    """A step of a loss that has the penalty in it gives the same parameters; a strong pull keeps the model near."""
    settings = TrainingSettings(batch_size=100, local_steps=3, prox=0.3, momentum=0.5)
    pulled, _ = trained(settings)
    start, model = small(), small()
    towards = [p.detach().clone() for p in start.parameters()]

    def with_penalty(logits, labels, counts):
        gaps = [((p - q) ** 2).sum() for p, q in zip(model.parameters(), towards, strict=True)]
        return nn.functional.cross_entropy(logits, labels) + 0.15 * torch.stack(gaps).sum()

    images, labels = stripes(100, seed=1)
    plain = dataclasses.replace(settings, prox=0.0)
    train(model, images, labels, plain, generator=generator(0, "training", 1, 0), loss=with_penalty)
    for mine, theirs in zip(pulled.parameters(), model.parameters(), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-6)
    free, _ = trained(plain)
    assert not torch.allclose(pulled.head.weight, free.head.weight)
