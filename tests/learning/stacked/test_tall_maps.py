"""Maps of many models, by kernels of our own and by torch's operations."""

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.nn import functional

from mpt.learning.backbones.classifier import Classifier
from mpt.learning.backbones.mobilenetv3 import SqueezeExcite
from mpt.learning.stacked import tall_maps
from mpt.learning.stacked.networks import TallMaps, stack_of
from mpt.learning.stacked.tall_functions import parts_of

from ...federation.test_trainers import interpreted  # noqa: F401 - a fixture

ACTIVATIONS = (lambda x: x, functional.relu, functional.hardswish)


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("shape", "kernel", "stride"),
    [((2, 2, 8, 4, 24), 3, 1), ((2, 1, 7, 5, 11), 3, 2), ((1, 2, 8, 6, 16), 5, 2), ((2, 1, 5, 7, 40), 5, 1)],
)
def test_depthwise_kernels_give_what_torch_gives(interpreted, shape, kernel, stride):  # noqa: F811
    from mpt.learning.stacked import depthwise_kernels as kernels  # noqa: PLC0415
    from mpt.learning.stacked import norm_kernels  # noqa: PLC0415

    v, _, h, w, c = shape
    maps, weight = drawn(*shape).requires_grad_(), drawn(v, c, kernel, kernel, seed=1).requires_grad_()
    expected = torch.stack(
        [
            functional.conv2d(one.permute(0, 3, 1, 2), mine[:, None], None, stride, kernel // 2, 1, c)
            for one, mine in zip(maps, weight, strict=True)
        ]
    ).permute(0, 1, 3, 4, 2)
    above = drawn(*expected.shape, seed=2)
    to_maps, to_weight = torch.autograd.grad(expected, (maps, weight), above)
    maps, taps = maps.detach(), weight.detach().flatten(2).mT.contiguous()
    out, partial, rows = kernels.convolved(maps, taps, stride, stats=True)
    torch.testing.assert_close(out, expected.detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(kernels.towards_maps(above, taps, stride, h, w), to_maps, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(kernels.towards_weights(maps, above, kernel, stride), to_weight, rtol=1e-4, atol=1e-4)
    n = out[0, ..., 0].numel()
    found = norm_kernels.moments(partial, rows, n, (torch.zeros(v * c), torch.ones(v * c)), 0.1, 1e-3)
    variance, mean = torch.var_mean(out.flatten(1, 3), dim=1, correction=0)
    torch.testing.assert_close(found, torch.stack([mean, (variance + 1e-3).rsqrt()], dim=1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("rows", "channels", "act", "counts"), [(70, 24, 2, None), (40, 11, 1, [40, 33]), (600, 16, 0, [70, 600])]
)
def test_norm_kernels_give_what_torch_gives(interpreted, monkeypatch, rows, channels, act, counts):  # noqa: F811
    from mpt.learning.stacked import norm_kernels as kernels  # noqa: PLC0415

    monkeypatch.setattr(kernels, "PROGRAMS", 4)  # so that a program has several tiles
    monkeypatch.setattr(kernels, "TILE", 1024)
    given = (30 + 2 * drawn(2, rows, channels)).requires_grad_()
    weight, bias = drawn(2 * channels, seed=1).requires_grad_(), drawn(2 * channels, seed=2).requires_grad_()
    running, past = (
        (torch.zeros(2, channels), torch.ones(2, channels)),
        (torch.zeros(2, channels), torch.ones(2, channels)),
    )
    parts = [
        ACTIVATIONS[act](functional.batch_norm(x[:n], mean, variance, gamma, beta, True, 0.1, 1e-3))
        for x, n, mean, variance, gamma, beta in zip(
            given, counts or [rows] * 2, *running, weight.chunk(2), bias.chunk(2), strict=True
        )
    ]
    expected = torch.stack([functional.pad(part, (0, 0, 0, rows - len(part))) for part in parts])
    counting = torch.stack([torch.arange(rows) < len(part) for part in parts])
    above = drawn(*expected.shape, seed=3) * counting[:, :, None]
    gradients = torch.autograd.grad(expected, (given, weight, bias), above)
    x, gamma, beta = given.detach(), weight.detach(), bias.detach()
    some = None if counts is None else torch.tensor(counts, dtype=torch.int32)
    found = kernels.moments(*kernels.sums(x, some), rows, past, 0.1, 1e-3, some)
    out = kernels.normalised(x, found, gamma, beta, act)
    torch.testing.assert_close(out[counting], expected.detach()[counting], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(past, running, rtol=1e-4, atol=1e-4)
    for left, right in zip(kernels.backward(above, x, found, gamma, beta, act, some), gradients, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-3)


def test_a_model_without_samples_stays_finite_and_as_it_was(interpreted):  # noqa: F811
    from mpt.learning.stacked import norm_kernels as kernels  # noqa: PLC0415

    rows, running, counts = drawn(2, 9, 8), (drawn(16), drawn(16).exp()), torch.tensor([0, 9], dtype=torch.int32)
    before = [one.clone() for one in running]
    found = kernels.moments(*kernels.sums(rows, counts), 9, running, 0.1, 1e-3, counts)
    assert torch.equal(found[0], torch.zeros(2, 8))
    for one, was in zip(running, before, strict=True):
        assert torch.equal(one[:8], was[:8])
        assert not torch.equal(one[8:], was[8:])
    back = kernels.backward(torch.zeros(2, 9, 8), rows, found, torch.ones(16), torch.ones(16), 1, counts)
    assert all(torch.equal(one, torch.zeros_like(one)) for one in back)


def test_patches_are_those_of_torch(interpreted):  # noqa: F811
    from mpt.learning.stacked import map_kernels as kernels  # noqa: PLC0415

    images = drawn(2, 5, 6, 3)
    found = kernels.patches(images, (3, 5), (2, 1), [2, 2, 1, 1], 48, torch.float32)
    expected = functional.unfold(images.permute(0, 3, 1, 2), (3, 5), padding=(1, 2), stride=(2, 1))
    expected = expected.unflatten(1, (3, 15)).permute(0, 3, 2, 1).flatten(2)
    torch.testing.assert_close(found.flatten(1, 2)[..., :45], expected)
    assert not found[..., 45:].any()


class Own(nn.Module):
    """A small network with depthwise convolutions, and others besides."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.Hardswish(),
            nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            SqueezeExcite(8),
            nn.Conv2d(8, 12, 1, bias=False),
            nn.BatchNorm2d(12),
            nn.Conv2d(12, 12, 5, 2, padding=2, groups=12, bias=False),
            nn.BatchNorm2d(12, momentum=0.3),
            nn.SiLU(),
            nn.Conv2d(12, 8, 3, padding=1, groups=4, padding_mode="reflect"),
            nn.BatchNorm2d(8, affine=False),
        )

    def forward(self, images):
        return self.layers(images).mean(dim=(2, 3))


def own(seed):
    torch.manual_seed(seed)
    return Classifier(Own(), 8, num_classes=4, in_channels=3, image_size=6)


def trained(models, images, keep=None, dtype=torch.float64):
    """Logits, gradients and states of a stack, and of its models one by one."""
    models = [copy.deepcopy(one).to(dtype).train() for one in models]
    stack = stack_of(models[0], len(models))
    assert isinstance(stack, TallMaps)
    for place, one in enumerate(models):
        stack.load(one.state_dict(), place)
    stack.let_count(keep)
    counts = [len(mine) for mine in images] if keep is None else keep.sum(dim=1).tolist()
    logits = [one(mine[:n].permute(0, 3, 1, 2)) for one, mine, n in zip(models, images, counts, strict=True) if n]
    sum((mine**3).sum() for mine in logits).backward()
    found = [mine[:n] for mine, n in zip(stack(stack.arranged(images)), counts, strict=True) if n]
    sum((mine**3).sum() for mine in found).backward()
    return stack, models, found, logits


def compared(stack, models, found, logits, counts, **close):
    torch.testing.assert_close(found, logits, **close)
    for place, (one, n) in enumerate(zip(models, counts, strict=True)):
        for name, tensor in one.state_dict().items():
            if tensor.is_floating_point():
                torch.testing.assert_close(stack.stacked[name][place], tensor, **close)
        for (_, left), (_, right) in zip(stack.network.named_parameters(), one.named_parameters(), strict=True):
            assert left.grad.stride() == left.stride()
            if n:
                mine = torch.unflatten(left.grad, 0, (len(models), -1))[place]
                torch.testing.assert_close(mine.view(right.shape), right.grad, **close)


def test_layers_are_those_of_each_model():
    images = drawn(3, 4, 6, 6, 3).double()
    compared(*trained([own(seed) for seed in range(3)], images), [4, 4, 4], rtol=1e-9, atol=1e-10)


def test_samples_that_do_not_count_change_nothing():
    keep = torch.tensor([[True] * 4, [True, True, False, False], [True, False, False, False]])
    images = drawn(3, 4, 6, 6, 3).double()
    compared(*trained([own(seed) for seed in range(3)], images, keep), [4, 2, 1], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("keep", [None, torch.tensor([[True, True], [True, False]])])
def test_the_network_by_kernels_is_that_of_each_model(interpreted, monkeypatch, keep):  # noqa: F811
    monkeypatch.setattr(tall_maps, "by_kernels", lambda maps: maps.dtype == torch.float32)
    made = trained([own(seed) for seed in range(2)], drawn(2, 2, 6, 6, 3), keep, dtype=torch.float32)
    compared(*made, [2, 2] if keep is None else [2, 1], rtol=1e-3, atol=1e-3)


def test_rows_are_cut_into_equal_parts_that_are_not_small():
    assert [parts_of(n, 10) for n in (65536, 4096, 1024, 600, 64, 7)] == [32, 16, 4, 2, 1, 1]
