"""What the stacked engine takes when is what the reference loop takes."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from mpt.learning import TrainingSettings, build, generator
from mpt.learning.augmentation import draw_epoch
from mpt.learning.training import batches
from mpt.learning.triton_stack.layout import Layout
from mpt.learning.triton_stack.schedule import draw

ROWS = [np.arange(10, 13), np.arange(100, 120), np.array([7]), np.arange(0, 9)]


def drawn(augment="none"):
    settings = TrainingSettings(epochs=2, batch_size=8, augment=augment)
    generators = [generator(0, "training", 1, v) for v in range(len(ROWS))]
    return settings, draw(ROWS, generators, settings, 32)


@pytest.mark.parametrize("augment", ["none", "flip", "crop-flip"])
def test_each_vehicle_takes_what_the_reference_loop_takes(augment):
    settings, schedule = drawn(augment)
    for place, vehicle in enumerate(schedule.order):
        held, drawing, step = ROWS[vehicle], generator(0, "training", 1, int(vehicle)), 0
        for _ in range(settings.epochs):
            epoch = draw_epoch(len(held), 32, augment, drawing, torch.device("cpu"))
            for part in batches(len(held), settings.batch_size):
                size = part.stop - part.start
                assert schedule.sizes[step, place] == size
                np.testing.assert_array_equal(schedule.indices[step, place, :size], held[epoch.order[part].numpy()])
                if augment != "none":
                    np.testing.assert_array_equal(schedule.flips[step, place, :size], epoch.flip[part].numpy())
                if augment == "crop-flip":
                    np.testing.assert_array_equal(schedule.shifts[step, place, :size], epoch.shift[part].numpy())
                step += 1
        assert step == schedule.steps[place]
        assert (schedule.sizes[step:, place] == 0).all()


def test_those_with_the_most_steps_come_first_and_one_sample_takes_none():
    _, schedule = drawn()
    assert list(schedule.order) == [1, 0, 3, 2]
    assert list(schedule.steps) == [6, 2, 2, 0]
    assert schedule.active() == [(3, 2), (1, 4)]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("backbone", ["cnn3", "cnn3-plain", "cnn3-embedding", "cnn3-embedding(norm=True)"])
def test_a_state_is_the_same_after_packing_and_unpacking(channels, backbone):
    model = build(backbone, num_classes=7, in_channels=channels, image_size=32, seed=3)
    state, layout = model.state_dict(), Layout.of(model.backbone, channels, 7)
    parameters, running = layout.pack(state)
    assert parameters.shape == (layout.starts[-1],)
    again = layout.unpack(parameters, running, state)
    assert again.keys() == state.keys()
    assert all(torch.equal(again[name], state[name]) for name in state)
