"""What must hold on a GPU as on a CPU."""

import pytest

torch = pytest.importorskip("torch", reason="mpt.learning needs torch, which is not installed")

from mpt.learning import FedLC, TrainingSettings, embed, generator, train

from .tasks import average, copied, small, stripes

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def round_on(device, dtype):
    """Two vehicles trained and averaged, and the features under the average."""
    model = small().to(device, dtype)
    start, states, weights = copied(model), [], []
    for vehicle in (3, 5):
        images, labels = (part.to(device) for part in stripes(70, seed=vehicle))
        model.load_state_dict(start)
        settings = TrainingSettings(epochs=2, batch_size=32, augment="crop-flip")
        done = train(model, images, labels, settings, generator=generator(0, "training", 1, vehicle), loss=FedLC())
        states.append(copied(model))
        weights.append(done.samples)
    model.load_state_dict(average(states, weights, batchnorm=model))
    return done.loss, copied(model), embed(model, stripes(20, seed=9)[0].to(device))


def test_a_round_is_that_of_the_cpu_to_rounding():
    loss, state, features = round_on("cuda", torch.float64)
    expected_loss, expected_state, expected_features = round_on("cpu", torch.float64)
    assert loss == pytest.approx(expected_loss, abs=1e-7)
    torch.testing.assert_close(features.cpu(), expected_features, atol=1e-6, rtol=1e-6)
    for name, tensor in state.items():
        assert tensor.device.type == "cuda"
        torch.testing.assert_close(tensor.cpu(), expected_state[name], atol=1e-6, rtol=1e-6)


def test_global_generators_stay_as_they_were():
    before = torch.get_rng_state(), torch.cuda.get_rng_state()
    round_on("cuda", torch.float32)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.equal(torch.cuda.get_rng_state(), before[1])
