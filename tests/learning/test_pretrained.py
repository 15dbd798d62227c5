"""A backbone's weights from a file, in the forms they come in, and a backbone that stays as it is."""

import copy
import sys
from types import ModuleType

import pytest

torch = pytest.importorskip("torch", reason="mpt.learning needs torch, which is not installed")

from torch import nn

from mpt.learning import LearningError, RunningAverage, TrainingSettings, build, embed, generator, train
from mpt.learning.pretrained import load_weights

from .tasks import copied, same_state, small, stripes

OPTIONS = {"num_classes": 4, "in_channels": 1, "image_size": 28, "seed": 0}


@pytest.fixture
def theirs():
    """Another cnn3, with more classes, after some training."""
    made = small(seed=5, num_classes=9)
    images, labels = stripes(64, seed=0)
    train(made, images, labels, TrainingSettings(epochs=1, batch_size=32), generator=generator(0, "training", 1, 0))
    return made


def saved(path, content):
    torch.save(content, path)
    return str(path)


def prefixed(state, prefix):
    return {f"{prefix}{name}": tensor for name, tensor in state.items()}


FORMS = {
    "backbone": lambda m: m.backbone.state_dict(),
    "classifier": lambda m: m.state_dict(),
    "wrapped": lambda m: {"state_dict": m.state_dict(), "epoch": 3},
    "model": lambda m: {"model": m.backbone.state_dict(), "optimizer": {"lr": 0.1}},
    "twice": lambda m: {"model": {"state_dict": m.state_dict()}},
    "parallel": lambda m: prefixed(m.state_dict(), "module."),
    "compiled": lambda m: prefixed(m.backbone.state_dict(), "_orig_mod."),
    "both": lambda m: {"state_dict": prefixed(m.state_dict(), "module.model.")},
    "halves": lambda m: {k: v.half() if v.is_floating_point() else v for k, v in m.backbone.state_dict().items()},
    "torchvision": lambda m: {
        **m.backbone.state_dict(),
        "fc.weight": torch.zeros(1000, 128),
        "classifier.3.bias": torch.zeros(3),
    },
    "old": lambda m: {k: v for k, v in m.backbone.state_dict().items() if not k.endswith("num_batches_tracked")},
    "a run's": lambda m: {
        "version": 1, "trainings": {"held-out": 0, "continued": 0}, "models": [m.state_dict()], "methods": {},
        "readouts": {},
    },
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_features_and_the_seeds_head(tmp_path, theirs, form):
    path = saved(tmp_path / "w.pt", FORMS[form](theirs))
    model, images = build("cnn3", **OPTIONS, weights=path), stripes(10, seed=3)[0]
    fresh = build("cnn3", **OPTIONS)
    near = 1e-2 if form == "halves" else 0
    torch.testing.assert_close(embed(model, images), embed(theirs, images), atol=near, rtol=near)
    assert not torch.allclose(embed(fresh, images), embed(theirs, images), atol=1e-2)
    assert same_state(model.head.state_dict(), fresh.head.state_dict())
    assert {t.dtype for t in model.state_dict().values()} == {torch.float32, torch.int64}
    heads = {"classifier": ["head"], "wrapped": ["head"], "twice": ["head"], "parallel": ["head"], "both": ["head"]}
    heads |= {"a run's": ["head"], "torchvision": ["fc", "classifier"]}
    said = [
        f"weights: {top}.* of {path} is passed over, the head begins as the seed says" for top in heads.get(form, [])
    ]
    assert list(model.notes) == said


def changed(state, **changes):
    return {**state, **{name.replace("_dot_", "."): value for name, value in changes.items()}}


def without(state, name):
    return {key: value for key, value in state.items() if key != name}


NAN, LAYER = float("nan"), "layers.0.weight"
WRONG = {
    "a list": (lambda s: [1, 2], "w.pt holds a list, should be a state dict"),
    "a tensor": (lambda s: torch.zeros(3), "w.pt holds a Tensor, should be a state dict"),
    "nothing": (lambda s: {}, "w.pt is empty, should have the backbone's tensors"),
    "an epoch": (lambda s: {"epoch": 3, "net": s}, "has an entry 'epoch' of type int, should be a state dict"),
    "numbers": (lambda s: {0: torch.zeros(1)}, "has an entry '0' of type Tensor"),
    "another": (
        lambda s: {"conv1.weight": torch.zeros(1)},
        r"has conv1.weight and nothing of cnn3 for images of 1 x 28 x 28, should be of the same backbone \(layers.0.w",
    ),
    "missing": (lambda s: without(s, "layers.5.running_var"), "w.pt lacks layers.5.running_var, should have all tens"),
    "unexpected": (
        lambda s: changed(s, layers_dot_12_dot_weight=torch.zeros(1)),
        "w.pt has layers.12.weight, which cnn3 for images of 1 x 28 x 28 does not have",
    ),
    "colour": (
        lambda s: changed(s, layers_dot_0_dot_weight=torch.zeros(32, 3, 3, 3)),
        r"layers.0.weight of .*w.pt has shape \(32, 3, 3, 3\), should have \(32, 1, 3, 3\) for cnn3 for images of 1 x",
    ),
    "bytes": (
        lambda s: changed(s, layers_dot_0_dot_weight=torch.zeros(32, 1, 3, 3, dtype=torch.int8)),
        "layers.0.weight of .*w.pt is torch.int8, should be torch.float32",
    ),
    "sparse": (
        lambda s: changed(s, layers_dot_0_dot_weight=s[LAYER].to_sparse()),
        "layers.0.weight of .*w.pt is torch.sparse_coo, should be torch.float32",
    ),
    "NaN": (lambda s: changed(s, layers_dot_0_dot_weight=s[LAYER] * NAN), "has entries that are NaN or infinite"),
    "too large": (
        lambda s: changed(s, layers_dot_0_dot_weight=torch.full((32, 1, 3, 3), 1e300, dtype=torch.float64)),
        "layers.0.weight of .* has entries that are NaN or infinite",
    ),
    "variance": (
        lambda s: changed(s, layers_dot_1_dot_running_var=-torch.ones(32)),
        "layers.1.running_var of .* has negative entries, a variance should not",
    ),
    "trainings": (
        lambda s: {"version": 1, "trainings": {"held-out": 0, "continued": 1}, "models": [s, s]},
        r"holds the models of several trainings \(held-out, continued\), should hold one",
    ),
    "no models": (lambda s: {"trainings": 3, "models": "all"}, "should hold one"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_does_not_fit_is_named(tmp_path, wrong):
    made, message = WRONG[wrong]
    path = saved(tmp_path / "w.pt", made(small().backbone.state_dict()))
    with pytest.raises(LearningError, match=f"^weights: .*{message}") as raised:
        build("cnn3", **OPTIONS, weights=path)
    assert "\n" not in str(raised.value)


def test_a_dict_that_holds_itself_ends(tmp_path):
    loop = {}
    loop["model"] = loop
    with pytest.raises(LearningError, match="has an entry 'model' of type dict"):
        build("cnn3", **OPTIONS, weights=saved(tmp_path / "w.pt", loop))


def test_what_does_not_fit_leaves_the_backbone_as_it_was(tmp_path, theirs):
    backbone = small().backbone
    before = copied(backbone)
    state = theirs.backbone.state_dict() | {"layers.9.running_mean": torch.full((128,), NAN)}
    with pytest.raises(LearningError, match=r"layers\.9\.running_mean"):
        load_weights(backbone, saved(tmp_path / "w.pt", state), "mine")
    assert same_state(before, copied(backbone))


def test_a_backbone_whose_own_names_have_such_prefixes(tmp_path):
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = nn.Linear(3, 2)
            self.head = nn.Linear(2, 2)

    first, second = Wrapped(), Wrapped()
    assert load_weights(second, saved(tmp_path / "w.pt", first.state_dict()), "mine") == ()
    assert same_state(first.state_dict(), second.state_dict())


def test_torchvisions_file_for_grey_images(tmp_path, monkeypatch):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = nn.Sequential(nn.Conv2d(3, 6, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
            self.fc = nn.Linear(6, 1000)

        def forward(self, images):
            return self.fc(self.trunk(images))

    models = ModuleType("torchvision.models")
    models.get_model, models.list_models = lambda name, *, weights: Net(), lambda module: ["net"]
    monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    theirs = Net()
    path = saved(tmp_path / "w.pth", theirs.state_dict())
    model, images = build("torchvision:net", **OPTIONS, weights=path), torch.rand(2, 1, 28, 28)
    assert torch.equal(model.features(images), theirs.trunk(images.expand(-1, 3, -1, -1)))
    again = build("torchvision:net", **OPTIONS | {"seed": 7}, weights=saved(tmp_path / "again.pth", model.state_dict()))
    assert torch.equal(model.features(images), again.features(images))


class Noisy(nn.Module):
    """Dropout and BatchNorm, both of which behave otherwise in training."""

    dim = 8

    def __init__(self, in_channels, image_size):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(in_channels * image_size**2, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)
        )

    def forward(self, images):
        return self.layers(images)


@pytest.mark.parametrize("noisy", [False, True])
def test_a_frozen_backbone_stays_as_it_is_and_the_head_learns(monkeypatch, noisy):
    module = ModuleType("garage")
    module.noisy = Noisy
    monkeypatch.setitem(sys.modules, "garage", module)
    model = build("garage:noisy" if noisy else "cnn3", **OPTIONS, freeze=True)
    before, modes = copied(model), [m.training for m in model.modules()]
    images, labels = stripes(65, seed=0)
    settings = TrainingSettings(epochs=3, batch_size=16, lr=0.1)
    first = train(model, images, labels, settings, generator=generator(0, "training", 1, 0)).loss
    after = copied(model)
    assert all(torch.equal(before[k], after[k]) for k in before if k.startswith("backbone."))
    assert not torch.equal(before["head.weight"], after["head.weight"])
    assert train(model, images, labels, settings, generator=generator(0, "training", 2, 0)).loss < first
    assert [m.training for m in model.modules()] == modes


def test_the_head_on_a_frozen_backbone_is_a_linear_layer_trained_on_fixed_features():
    """Against the same written out: features once, then SGD on a layer of its own in the same order."""
    model = build("cnn3", **OPTIONS, freeze=True)
    images, labels = stripes(48, seed=0)
    features, layer = embed(model, images), copy.deepcopy(model.head)
    settings = TrainingSettings(epochs=2, batch_size=16, lr=0.05)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    drawn = generator(0, "training", 1, 0)
    for _ in range(2):
        order = torch.randperm(48, generator=drawn)
        for batch in order.split(16):
            optimiser.zero_grad()
            nn.functional.cross_entropy(layer(features[batch]), labels[batch]).backward()
            optimiser.step()
    train(model, images, labels, settings, generator=generator(0, "training", 1, 0))
    torch.testing.assert_close(model.head.weight, layer.weight, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(model.head.bias, layer.bias, atol=1e-5, rtol=1e-5)


def test_a_copy_of_a_frozen_model_is_frozen():
    model = copy.deepcopy(build("cnn3", **OPTIONS, freeze=True)).train()
    assert model.training
    assert not any(m.training for m in model.backbone.modules())
    assert [name for name, p in model.named_parameters() if p.requires_grad] == ["head.weight", "head.bias"]


@pytest.mark.parametrize("weights", [[7, 11, 3, 1], [1 / 3, 2 / 7, 1e9, 0.1]])
def test_the_average_of_equal_backbones_is_that_backbone_exactly(theirs, weights):
    """Also of its running variances, whose pooled formula divides by the sum of the weights."""
    state, running = copied(theirs), RunningAverage(theirs)
    for weight in weights:
        running.add(state, weight)
    assert same_state(running.state(), state)
