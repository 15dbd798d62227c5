import itertools
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="mpt.learning needs torch, which is not installed")

from torch import nn

from mpt.learning import (
    LearningError,
    RunningAverage,
    TrainingSettings,
    batchnorm_prefixes,
    build,
    generator,
    train,
)

from .tasks import average, copied, same_state, small, stripes


def layer(features):
    """A BatchNorm layer whose running statistics are the mean and variance of `features` (N, d)."""
    module = nn.BatchNorm1d(features.shape[1])
    module.running_mean.copy_(torch.from_numpy(features.mean(axis=0)))
    module.running_var.copy_(torch.from_numpy(features.var(axis=0)))
    module.num_batches_tracked.fill_(len(features))
    return module


def groups(seed=0, apart=3.0):
    rng = np.random.default_rng(seed)
    return [apart * rng.standard_normal(4) + (k + 1) * rng.standard_normal((n, 4)) for k, n in enumerate((5, 60, 17))]


def test_pooled_batchnorm_is_that_of_the_pooled_samples():
    parts = groups()
    modules = [layer(part) for part in parts]
    merged = average([m.state_dict() for m in modules], [len(p) for p in parts], batchnorm=modules[0])
    together = np.concatenate(parts)
    np.testing.assert_allclose(merged["running_mean"], together.mean(axis=0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(merged["running_var"], together.var(axis=0), rtol=1e-6)
    plain = sum(len(p) * p.var(axis=0) for p in parts) / len(together)
    assert np.all(plain < 0.99 * together.var(axis=0))


def test_pooled_batchnorm_of_statistics_that_torch_kept():
    """torch's own running statistics (unbiased, of one batch) pooled, against the formula on the samples."""
    parts, states = groups(1), []
    for part in parts:
        module = nn.Sequential(nn.BatchNorm1d(4, momentum=None).double())
        module(torch.from_numpy(part))
        states.append(module.state_dict())
    merged = average(states, [len(p) for p in parts], batchnorm=module)
    share = np.array([len(p) for p in parts]) / sum(map(len, parts))
    means = np.stack([p.mean(axis=0) for p in parts])
    mean = share @ means
    variance = share @ (np.stack([p.var(axis=0, ddof=1) for p in parts]) + (means - mean) ** 2)
    np.testing.assert_allclose(merged["0.running_mean"], mean, rtol=1e-12)
    np.testing.assert_allclose(merged["0.running_var"], variance, rtol=1e-12)


def test_large_means_do_not_cancel():
    parts = [part + 1e6 for part in groups(2)]
    modules = [layer(part).double() for part in parts]
    for module, part in zip(modules, parts, strict=True):
        module.running_mean.copy_(torch.from_numpy(part.mean(axis=0)))
        module.running_var.copy_(torch.from_numpy(part.var(axis=0)))
    merged = average([m.state_dict() for m in modules], [len(p) for p in parts], batchnorm=modules[0])
    np.testing.assert_allclose(merged["running_var"], np.concatenate(parts).var(axis=0), rtol=1e-8)


def test_parameters_by_hand():
    states = [{"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([5.0, -2.0])}]
    merged = average(states, [30, 10], batchnorm=())
    assert torch.equal(merged["w"], torch.tensor([2.0, 1.0]))
    assert merged["w"].dtype == torch.float32


def vehicles(count=5):
    states, weights = [], []
    for vehicle in range(count):
        model = small()
        data = stripes(20 + 7 * vehicle, seed=vehicle)
        weights.append(train(model, *data, TrainingSettings(epochs=1), generator=generator(0, "t", 1, vehicle)).samples)
        states.append(copied(model))
    return states, weights


def test_a_models_average_entry_by_entry():
    states, weights = vehicles(3)
    before = [{name: tensor.clone() for name, tensor in state.items()} for state in states]
    merged = average(states, weights, batchnorm=small())
    assert list(merged) == list(states[0])
    share = np.array(weights) / sum(weights)
    for name, tensor in merged.items():
        stack = np.stack([state[name].double().numpy() for state in states])
        expected = np.tensordot(share, stack, 1)
        if name.endswith("running_var"):
            means = np.stack([s[name.replace("_var", "_mean")].double().numpy() for s in states])
            expected = expected + np.tensordot(share, (means - np.tensordot(share, means, 1)) ** 2, 1)
        if name.endswith("num_batches_tracked"):
            assert tensor.dtype == torch.int64
            assert int(tensor) == stack.max()
        else:
            np.testing.assert_allclose(tensor.numpy(), expected, rtol=1e-6, atol=1e-8)
    assert all(same_state(a, b) for a, b in zip(states, before, strict=True))
    model = small()
    model.load_state_dict(merged)
    model.eval()
    assert bool(model(torch.zeros(2, 1, 28, 28)).isfinite().all())


def test_the_order_of_the_vehicles_matters_to_rounding_only():
    states, weights = vehicles()
    first = average(states, weights, batchnorm=small())
    for order in itertools.islice(itertools.permutations(range(5)), 1, 120, 17):
        merged = average([states[k] for k in order], [weights[k] for k in order], batchnorm=small())
        for name, tensor in merged.items():
            torch.testing.assert_close(tensor, first[name], rtol=2e-7, atol=1e-9)


def test_equal_models_average_to_themselves():
    state = copied(small(seed=3))
    assert same_state(average([state] * 7, range(1, 8), batchnorm=small()), state)


def test_one_vehicle_is_its_own_average_and_shares_no_memory():
    (state,), _ = vehicles(1)
    merged = average([state], [12], batchnorm=small())
    assert same_state(merged, state)
    assert all(merged[name].data_ptr() != state[name].data_ptr() for name in state)
    running = RunningAverage(small())
    running.add(state, 1)
    early = running.state()
    kept = {name: tensor.clone() for name, tensor in early.items()}
    running.add({name: tensor + 1 for name, tensor in state.items()}, 1)
    assert same_state(early, kept)


def test_weights_matter_by_ratio_and_zero_counts_for_nothing():
    states, weights = vehicles(3)
    merged = average(states, weights, batchnorm=small())
    scaled = average(states, [w / 1000 for w in weights], batchnorm=small())
    for name, tensor in merged.items():
        torch.testing.assert_close(scaled[name], tensor, rtol=2e-7, atol=1e-9)
    stranger = {name: tensor + 100 for name, tensor in states[0].items()}
    for place in (0, 3):
        with_stranger, with_weight = list(states), list(weights)
        with_stranger.insert(place, stranger)
        with_weight.insert(place, 0)
        assert same_state(average(with_stranger, with_weight, batchnorm=small()), merged)


def test_it_holds_one_models_sums():
    running, model = RunningAverage(small()), small()
    sizes = set()
    for vehicle in range(4):
        running.add(small(seed=vehicle).state_dict(), 1 + vehicle)
        held = [t for part in vars(running).values() if isinstance(part, dict) for t in part.values()]
        sizes.add(sum(t.numel() for t in held if isinstance(t, torch.Tensor)))
    assert sizes == {sum(t.numel() for t in model.state_dict().values())}
    assert running.weight == 10


def test_batchnorm_is_found_by_type():
    """ResNet's shortcut has a BatchNorm whose name says nothing; a Linear called bn is none."""
    names = batchnorm_prefixes(build("resnet18", num_classes=2, in_channels=3, image_size=32, seed=0))
    assert len(names) == 20
    assert "backbone.stages.2.shortcut.1" in names
    misleading = nn.ModuleDict({"bn": nn.Linear(2, 2), "plain": nn.BatchNorm1d(2, track_running_stats=False)})
    assert batchnorm_prefixes(misleading) == ()
    assert batchnorm_prefixes(small("vit-tiny")) == ()
    assert batchnorm_prefixes(nn.BatchNorm2d(3)) == ("",)


def test_names_serve_as_well_as_the_model():
    states, weights = vehicles(2)
    by_name = average(states, weights, batchnorm=batchnorm_prefixes(small()))
    assert same_state(by_name, average(states, weights, batchnorm=small()))


def test_other_buffers():
    states = [
        {"index": torch.tensor([3, 1]), "mask": torch.tensor([True, False]), "half": torch.ones(2).half()},
        {"index": torch.tensor([3, 1]), "mask": torch.tensor([True, False]), "half": 2 * torch.ones(2).half()},
    ]
    merged = average(states, [1, 1], batchnorm=())
    assert torch.equal(merged["index"], states[0]["index"])
    assert torch.equal(merged["mask"], states[0]["mask"])
    assert torch.equal(merged["half"], torch.full((2,), 1.5).half())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool])
def test_integers_of_any_width_are_averaged(dtype):
    states = [{"index": torch.tensor([0, 1]).to(dtype)}] * 2
    assert torch.equal(average(states, [1, 2], batchnorm=())["index"], states[0]["index"])


def test_a_counter_beyond_all_batches_is_refused():
    running = RunningAverage([])
    running.add({"n": torch.tensor(7)}, 1)
    with pytest.raises(LearningError, match=r"state: n counts beyond 1e\+12, should be batches that were seen"):
        running.add({"n": torch.tensor(10**12)}, 1)


GOOD = {"bn.running_mean": torch.zeros(2), "bn.running_var": torch.ones(2), "w": torch.zeros(3)}


def changed(**entries):
    return GOOD | {name.replace("__", "."): value for name, value in entries.items()}


@pytest.mark.parametrize(
    ("state", "weight", "message"),
    [
        (changed(extra=torch.zeros(1)), 1, "state: extra is only in this state"),
        ({k: v for k, v in GOOD.items() if k != "w"}, 1, "state: w is missing from this state"),
        (changed(w=torch.zeros(4)), 1, r"w is torch.float32 of shape \(4,\), should be torch.float32 of shape \(3,\)"),
        (changed(w=torch.zeros(3).double()), 1, r"w is torch.float64 of shape \(3,\)"),
        (changed(w=torch.tensor([0.0, math.nan, 0.0])), 1, "state: w has entries that are NaN or infinite"),
        (changed(w=torch.tensor([0.0, math.inf, 0.0])), 0, "state: w has entries that are NaN or infinite"),
        (changed(bn__running_var=torch.tensor([1.0, -1.0])), 1, "state: bn.running_var has negative entries"),
        ({"w": torch.zeros(3)}, 1, "state: bn.running_mean or bn.running_var is missing, though batchnorm names"),
        (GOOD, -1, "weight: -1, should be finite and not negative"),
        (GOOD, math.nan, "weight: nan"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(state, weight, message):
    running = RunningAverage(["bn"])
    running.add(GOOD, 2)
    before = running.state()
    with pytest.raises(LearningError, match=message):
        running.add(state, weight)
    assert running.weight == 2
    assert same_state(running.state(), before)


@pytest.mark.parametrize(
    ("states", "weights"),
    [
        ([GOOD, GOOD], [0, 0]),
        ([], []),
    ],
)
def test_nothing_to_average(states, weights):
    with pytest.raises(LearningError, match="weights: their sum is 0"):
        average(states, weights, batchnorm=["bn"])
