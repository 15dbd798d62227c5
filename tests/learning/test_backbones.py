import random
import sys
from types import ModuleType

import pytest

torch = pytest.importorskip("torch", reason="mpt.learning needs torch, which is not installed")

from torch import nn

from mpt.learning import BACKBONES, Classifier, LearningError, build

from .tasks import same_state, small

DIMS = {"cnn3": 128, "cnn3-plain": 128, "cnn3-embedding": 128, "resnet18": 512, "mobilenetv3": 1280, "vit-tiny": 192}
OTHERS = {"cnn1d": 64, "mlp": 64}


def test_the_registry_names_and_describes_them():
    assert list(BACKBONES) == [*DIMS, *OTHERS]
    for name in BACKBONES:
        assert callable(BACKBONES.builtin[name].make)
        assert f"d = {(DIMS | OTHERS)[name]}" in BACKBONES.about(name)
        assert "\n" not in BACKBONES.about(name)


@pytest.mark.parametrize("size", [28, 32, 64, pytest.param(224, marks=pytest.mark.slow)])
@pytest.mark.parametrize("spec", DIMS)
def test_features_logits_and_gradients(spec, size):
    channels = 1 if size == 28 else 3
    model = small(spec, size=size, channels=channels)
    images = torch.randn(3, channels, size, size, generator=torch.Generator().manual_seed(0))
    assert model.dim == DIMS[spec] == model.head.in_features
    features = model.features(images)
    assert features.shape == (3, DIMS[spec])
    model.eval()
    with torch.no_grad():
        assert torch.equal(model(images), model.head(model.features(images)))
    model.train()
    logits = model(images)
    assert logits.shape == (3, 4)
    (logits**2).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name
        assert float(parameter.grad.abs().max()) > 0, name


@pytest.mark.parametrize("size", [29, 37, 49, 65, 96, 113])
@pytest.mark.parametrize("spec", DIMS)
def test_sizes_in_between(spec, size):
    model = small(spec, size=size).eval()
    with torch.no_grad():
        assert model(torch.zeros(2, 1, size, size)).shape == (2, 4)


@pytest.mark.parametrize(
    ("spec", "size", "expected"),
    [
        ("cnn3", 32, 27 * 32 + 9 * 32 * 64 + 9 * 64 * 128 + 2 * (32 + 64 + 128)),
        ("resnet18", 224, 11_689_512 - 513_000),
        ("resnet18", 32, 11_689_512 - 513_000 - 64 * 3 * (49 - 9)),
        ("mobilenetv3", 224, 5_483_032 - 1_281_000),
        ("mobilenetv3", 32, 5_483_032 - 1_281_000),
        ("vit-tiny", 224, 5_717_416 - 193_000),
    ],
)
def test_as_many_parameters_as_the_published_models_without_their_classifiers(spec, size, expected):
    """torchvision's resnet18 and mobilenet_v3_large, and DeiT-tiny, less the layer for 1000 classes."""
    model = small(spec, size=size, channels=3)
    assert sum(p.numel() for p in model.backbone.parameters()) == expected


@pytest.mark.parametrize(
    ("spec", "size", "side"),
    [
        *(("resnet18", 28, 4), ("resnet18", 32, 4), ("resnet18", 64, 8), ("resnet18", 65, 3)),
        *(("mobilenetv3", 28, 4), ("mobilenetv3", 32, 4), ("mobilenetv3", 64, 8)),
        *(("mobilenetv3", 96, 6), ("mobilenetv3", 128, 8), ("mobilenetv3", 160, 5)),
        *(("cnn3", 28, 7), ("cnn3", 32, 8)),
    ],
)
def test_the_final_map_keeps_a_sensible_size(spec, size, side):
    model = small(spec, size=size).eval()
    layers = {"resnet18": lambda b: b.stages, "mobilenetv3": lambda b: b.layers, "cnn3": lambda b: b.layers[-3]}
    seen = []
    layers[spec](model.backbone).register_forward_hook(lambda _, __, out: seen.append(out.shape[2:]))
    with torch.no_grad():
        model(torch.zeros(1, 1, size, size))
    assert seen == [(side, side)]


@pytest.mark.parametrize(("size", "tokens"), [(28, 49), (32, 64), (64, 64), (112, 196), (37, 100), (224, 196)])
def test_vit_tokens(size, tokens):
    assert small("vit-tiny", size=size).backbone.positions.shape == (1, 1 + tokens, 192)


def test_mobilenets_feature_is_behind_its_hardswish():
    model = small("mobilenetv3", size=28).eval()
    with torch.no_grad():
        features = model.features(torch.randn(8, 1, 28, 28, generator=torch.Generator().manual_seed(0)))
    assert float(features.min()) >= -0.375
    assert float(features.min()) < 0


@pytest.mark.parametrize("spec", DIMS)
def test_the_seed_alone_makes_the_weights(spec):
    torch.manual_seed(11)
    before, python_before = torch.get_rng_state(), random.getstate()
    first = small(spec, seed=3).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    assert random.getstate() == python_before
    torch.manual_seed(12)
    torch.rand(5)
    assert same_state(small(spec, seed=3).state_dict(), first)
    other = small(spec, seed=4).state_dict()
    assert not torch.equal(other["head.weight"], first["head.weight"])
    assert any(not torch.equal(other[k], first[k]) for k in first if k.startswith("backbone."))


def test_another_number_of_classes_keeps_the_backbone():
    a, b = small(num_classes=4), small(num_classes=9)
    assert same_state(a.backbone.state_dict(), b.backbone.state_dict())
    assert b(torch.zeros(2, 1, 28, 28)).shape == (2, 9)


def test_a_default_device_elsewhere_changes_nothing():
    expected = small().state_dict()
    with torch.device("meta"):
        assert same_state(small().state_dict(), expected)


OPTIONS = {"num_classes": 4, "in_channels": 1, "image_size": 28, "seed": 0}


@pytest.mark.parametrize(
    ("spec", "changes", "message"),
    [
        ("cnn4", {}, r"backbone: 'cnn4' is none, did you mean cnn3\?"),
        (
            "walrus",
            {},
            "backbone: 'walrus' is none, should be one of cnn3, cnn3-plain, cnn3-embedding, resnet18, mobilenetv3, ",
        ),
        ("resnet18", {"image_size": 27}, "image_size: 27, should be from 28 to 224 pixels for the backbone resnet18"),
        ("cnn3", {"image_size": 8}, "for the backbone cnn3; --image-size 32 makes images 32 x 32"),
        ("cnn3", {"image_size": 300}, "for the backbone cnn3; --image-size 224 makes images 224 x 224"),
        ("vit-tiny", {"image_size": 225}, "image_size: 225"),
        ("cnn3", {"image_size": 28.5}, "image_size: 28.5, should be an integer"),
        ("cnn3", {"in_channels": 2}, "in_channels: 2, should be 1 or 3"),
        ("cnn3", {"num_classes": 0}, "num_classes: 0, should be at least 1"),
        ("cnn3", {"seed": "x"}, "seed: 'x', should be an integer"),
        (
            "nowhere.at_all:f",
            {},
            "backbone: 'nowhere.at_all:f' is none, no module 'nowhere.at_all' can be imported from ",
        ),
        (":f", {}, "backbone: ':f' has nothing before the colon, should be like path.py:function"),
        ("math:", {}, "backbone: 'math:' has nothing after the colon, should be like path.py:function"),
        ("math:nothing", {}, "backbone: math has no 'nothing', should be one of its functions or classes$"),
        ("math:hypot", {}, "backbone: math:hypot returned a float, should be a torch.nn.Module"),
    ],
)
def test_wrong_specs_and_sizes_are_refused(spec, changes, message):
    with pytest.raises(LearningError, match=message):
        build(spec, **OPTIONS | changes)


@pytest.fixture
def package(monkeypatch):
    """A module of the user's, or a stand-in for a package that is not installed."""

    def install(name, **contents):
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return install


class Flat(nn.Module):
    def __init__(self, in_channels, image_size, width=5, dim=5):
        super().__init__()
        self.linear = nn.Linear(in_channels * image_size**2, width)
        self.dim = dim

    def forward(self, images):
        return self.linear(images.flatten(1))


def test_the_users_own_function_in_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "beside_me.py").write_text(
        "from torch import nn\n\n\ndef flat(in_channels, image_size):\n    made = nn.Flatten()\n"
        "    made.dim = in_channels * image_size**2\n    return made\n"
    )
    monkeypatch.chdir(tmp_path)
    for spec in ("beside_me:flat", "beside_me.py:flat", "./beside_me.py:flat"):
        assert build(spec, num_classes=2, in_channels=1, image_size=28, seed=0).dim == 784


def test_the_users_own_function(package):
    package("garage", flat=Flat)
    model = build("garage:flat", num_classes=3, in_channels=2, image_size=6, seed=1)
    assert isinstance(model, Classifier)
    assert isinstance(model.backbone, Flat)
    assert model(torch.zeros(4, 2, 6, 6)).shape == (4, 3)
    again = build("garage:flat", num_classes=3, in_channels=2, image_size=6, seed=1)
    assert same_state(model.state_dict(), again.state_dict())


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda c, s: Flat(c, s, width=6), "garage:f says dim = 5, but its features have length 6"),
        (lambda c, s: Flat(c, s, dim=None), "without an integer attribute dim"),
        (lambda c, s: Flat(c, s + 1), r"garage:f does not take images of 1 x 28 x 28 \("),
    ],
)
def test_a_function_that_returns_something_else(package, function, message):
    package("garage", f=function)
    with pytest.raises(LearningError, match=message):
        build("garage:f", **OPTIONS)


def test_maps_instead_of_features_are_refused(package):
    class Maps(nn.Conv2d):
        dim = 4

    package("garage", f=lambda c, s: Maps(c, 4, 3))
    with pytest.raises(LearningError, match=r"maps two images to \(2, 4, 26, 26\), should be features of shape"):
        build("garage:f", **OPTIONS)


@pytest.mark.parametrize("name", ["timm", "torchvision"])
def test_a_package_that_is_not_installed(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, f"{name}.models", None)
    with pytest.raises(LearningError, match=rf"backbone: {name}:resnet18 needs the package {name}, which cannot be"):
        build(f"{name}:resnet18", **OPTIONS)


def test_timm_by_name(package):
    calls = []

    def create_model(name, *, pretrained, num_classes, in_chans, **options):
        calls.append((name, pretrained, num_classes, in_chans, options))
        if name == "conv" and options:
            raise TypeError("unexpected keyword argument 'img_size'")
        return Flat(in_chans, 28, width=7, dim=None)

    package("timm", create_model=create_model, is_model=lambda name: name in ("vit", "conv"))
    assert build("timm:vit", **OPTIONS).dim == 7
    assert build("timm:conv", **OPTIONS).dim == 7
    sized = {"img_size": 28}
    assert calls == [("vit", False, 0, 1, sized), ("conv", False, 0, 1, sized), ("conv", False, 0, 1, {})]
    with pytest.raises(LearningError, match="timm has no model 'walrus'"):
        build("timm:walrus", **OPTIONS)


def test_torchvision_by_name(package):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = nn.Sequential(nn.Conv2d(3, 6, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
            self.classifier = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1000))

        def forward(self, images):
            return self.classifier(self.trunk(images))

    made = {"net": Net, "convs": lambda: nn.Conv2d(3, 2, 3)}
    package("torchvision")
    models = package("torchvision.models", get_model=lambda name, *, weights: made[name]())
    models.list_models = lambda module: list(made) if module is models else []
    for channels in (1, 3):
        model = build("torchvision:net", **OPTIONS | {"in_channels": channels})
        assert model.dim == 8
        assert model(torch.zeros(2, channels, 28, 28)).shape == (2, 4)
    with pytest.raises(LearningError, match="torchvision has no classifier 'walrus'"):
        build("torchvision:walrus", **OPTIONS)
    with pytest.raises(LearningError, match="torchvision's convs has no linear layer"):
        build("torchvision:convs", **OPTIONS)


def test_cnn3_pools_before_relu_and_gives_the_same():
    """Against the network as section 6 of the design says it: BatchNorm, ReLU, pooling."""
    model = build("cnn3", num_classes=4, in_channels=3, image_size=32, seed=0)
    written = nn.Sequential(*model.backbone.layers)
    for pool, relu in ((2, 3), (6, 7)):
        written[pool], written[relu] = written[relu], written[pool]
    written[11] = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    images = torch.randn(6, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    grads = []
    for network in (model.backbone, written):
        features = network(images)
        grads.append(
            [features.detach(), *torch.autograd.grad(features.square().sum(), list(model.backbone.parameters()))]
        )
    for mine, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
