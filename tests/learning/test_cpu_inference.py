import copy

import pytest

torch = pytest.importorskip("torch", reason="mpt.learning needs torch, which is not installed")

from torch import nn

from mpt.learning import Classifier, LearningError, TrainingSettings, build, embed, generator, train
from mpt.learning.cpu_inference import CpuEmbedder, Halved, folded

from .tasks import same_state, stripes

pytestmark = pytest.mark.usefixtures("two_threads")


def trained(spec):
    """A model whose BatchNorms have seen something."""
    model = build(spec, num_classes=4, in_channels=1, image_size=28, seed=0)
    images, labels = stripes(40, seed=1)
    train(model, images, labels, TrainingSettings(epochs=1, batch_size=10, lr=0.05), generator=generator(0, "training"))
    return model


@pytest.mark.parametrize("spec", ["cnn3", pytest.param("resnet18", marks=pytest.mark.slow), "mobilenetv3", "vit-tiny"])
def test_the_features_are_the_same(spec):
    model = trained(spec)
    before = copy.deepcopy(model.state_dict())
    images = stripes(150, seed=2)[0]
    expected = embed(model, images)
    made = CpuEmbedder(model)
    once, again = made(images), made(images)
    assert torch.equal(once, again)
    assert float((once - expected).norm() / expected.norm()) < 1e-5
    assert same_state(before, model.state_dict())
    assert model.training


def test_no_batchnorm_is_left_behind_a_convolution():
    for spec in ("cnn3", "resnet18", "mobilenetv3"):
        made = folded(build(spec, num_classes=4, in_channels=3, image_size=32, seed=0))
        assert not any(isinstance(module, nn.BatchNorm2d) for module in made.modules())


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("size", [(8, 8), (7, 5), (2, 3)])
def test_maxima_of_slices_are_max_pooling(size, order):
    maps = torch.randn(3, 16, *size, generator=generator(0, "maps")).contiguous(memory_format=order)
    maps[0, 0, 0, 0] = torch.nan
    torch.testing.assert_close(Halved()(maps), nn.MaxPool2d(2)(maps), rtol=0, atol=0, equal_nan=True)


def test_only_plain_pooling_becomes_maxima_of_slices():
    def halved(pooling):
        backbone = nn.Sequential(pooling, nn.Flatten())
        made = folded(Classifier(backbone, 196, num_classes=4, in_channels=1, image_size=28))
        return any(isinstance(module, Halved) for module in made.modules())

    watched = nn.MaxPool2d(2)
    watched.register_forward_hook(lambda module, inputs, output: None)
    others = (
        *(nn.MaxPool2d(3), nn.MaxPool2d(2, stride=1), nn.MaxPool2d(2, padding=1), nn.MaxPool2d(2, dilation=2)),
        *(nn.MaxPool2d(2, ceil_mode=True), nn.MaxPool2d(2, return_indices=True), nn.AvgPool2d(2), watched),
    )
    assert halved(nn.MaxPool2d(2))
    assert not any(map(halved, others))


def test_what_only_looks_foldable_is_left_alone():
    class Twice(nn.Sequential):
        def forward(self, maps):
            return super().forward(maps) + self[0](maps)

    def layers():
        return nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3, track_running_stats=False), nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3)

    torch.manual_seed(0)
    watched = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3))
    watched[0].register_forward_hook(lambda module, inputs, output: None)
    for part in (Twice(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3)), nn.Sequential(*layers()), watched):
        backbone = nn.Sequential(part, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        model = Classifier(backbone, 3, num_classes=4, in_channels=1, image_size=28)
        images = stripes(20, seed=1)[0]
        torch.testing.assert_close(CpuEmbedder(model)(images), embed(model, images))


def test_no_images_and_wrong_ones():
    model = build("cnn3", num_classes=4, in_channels=1, image_size=28, seed=0)
    made = CpuEmbedder(model)
    assert made(stripes(10, seed=1)[0][:0]).shape == (0, 128)
    with pytest.raises(LearningError, match="dtype"):
        made(torch.zeros(2, 1, 28, 28))
