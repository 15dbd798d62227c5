"""One network of several models gives what each of them gives."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from mpt.learning import build
from mpt.learning.backbones.classifier import Classifier
from mpt.learning.stacked.networks import NotStackable, Tall, TallMaps, Wide, can_be_stacked, stack_of

SIDE = 28


def model(name, seed=0):
    return build(name, num_classes=4, in_channels=3, image_size=SIDE, seed=seed)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("resnet18", Wide), ("mobilenetv3", TallMaps), ("cnn3", Wide), ("cnn3-embedding", Wide), ("vit-tiny", Tall)],
)
def test_a_stack_is_its_models(name, kind):
    models = [model(name, seed).train() for seed in range(3)]
    stack = stack_of(models[0], 3)
    assert isinstance(stack, kind)
    for place, one in enumerate(models):
        stack.load(one.state_dict(), place)
    images = torch.randn(3, 5, SIDE, SIDE, 3, generator=torch.Generator().manual_seed(0))
    logits = stack(stack.arranged(images))
    for place, one in enumerate(models):
        torch.testing.assert_close(logits[place], one(images[place].permute(0, 3, 1, 2)), rtol=2e-3, atol=2e-4)
        held = {name: t for name, t in one.state_dict().items() if t.is_floating_point()}
        assert stack.stacked.keys() == held.keys()
        for key, tensor in held.items():
            torch.testing.assert_close(stack.stacked[key][place], tensor, rtol=1e-4, atol=1e-5)


class Own(nn.Module):
    """A network of the user's."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, images):
        return self.layers(images).mean(dim=(2, 3))


def own(*layers):
    return Classifier(Own(nn.Conv2d(3, 8, 3), *layers), 8, num_classes=4, in_channels=3, image_size=8)


def test_of_networks_of_ones_own_too():
    assert isinstance(stack_of(own(nn.BatchNorm2d(8), nn.SiLU(), nn.MaxPool2d(2)), 2), Wide)


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (nn.GroupNorm(2, 8), "GroupNorm"),
        (nn.Softmax2d(), "other logits"),  # mixes the channels of all models
        (nn.ChannelShuffle(4), "other logits"),
    ],
)
def test_what_mixes_models_is_refused(layer, why):
    with pytest.raises(NotStackable, match=why):
        stack_of(own(layer), 2)


class Asking(Own):
    """It asks its first layer, which a stack's has another kind of."""

    def forward(self, images):
        return super().forward(images)[:, : self.layers[0].out_channels]


class Keeping(nn.Module):
    """With an attribute that layers of a stack have too."""

    keep = 0.5

    def forward(self, maps):
        return maps * self.keep


def test_a_network_that_no_stack_can_be_made_of_is_no_error():
    asking = Classifier(Asking(nn.Conv2d(3, 8, 3)), 8, num_classes=4, in_channels=3, image_size=8)
    assert not can_be_stacked(asking)
    with pytest.raises(NotStackable, match="out_channels"):
        stack_of(asking, 2)


def test_a_layers_own_attributes_stay():
    stack = stack_of(own(Keeping()), 2)
    stack.let_count(None)
    assert [layer.keep for layer in stack.modules() if isinstance(layer, Keeping)] == [0.5]


def test_a_frozen_backbone_stays_so():
    frozen = model("resnet18").freeze()
    stack = stack_of(frozen, 2)
    assert [name for name, p in stack.network.named_parameters() if p.requires_grad] == ["head.weight", "head.bias"]
    assert not stack.network.backbone.training
