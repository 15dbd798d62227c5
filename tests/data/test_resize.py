import numpy as np
import pytest

from mpt.data.resize import resize, resized

from .samples import make_dataset


@pytest.mark.parametrize(("height", "width", "size"), [(8, 8, 32), (32, 32, 28), (64, 48, 32), (20, 90, 28), (9, 9, 9)])
@pytest.mark.parametrize("channels", [1, 3])
def test_it_is_pillows_bilinear_to_one_level(height, width, size, channels):
    image_module = pytest.importorskip("PIL.Image")
    images = np.random.default_rng(0).integers(0, 256, (3, height, width, channels), dtype=np.uint8)
    ours = resize(images, size)
    assert ours.shape == (3, size, size, channels)
    for image, mine in zip(images, ours, strict=True):
        shown = image_module.fromarray(image[:, :, 0] if channels == 1 else image)
        theirs = np.asarray(shown.resize((size, size), image_module.Resampling.BILINEAR)).reshape(mine.shape)
        assert np.abs(mine.astype(int) - theirs).max() <= 1


def test_an_even_image_stays_even():
    assert np.all(resize(np.full((2, 7, 5, 3), 200, dtype=np.uint8), 12) == 200)


def test_a_dataset_that_has_the_size_is_left_alone():
    dataset = make_dataset(size=8)
    assert resized(dataset, None) is resized(dataset, 8) is dataset
    assert resized(dataset, 16).image_shape == (16, 16, 3)
    assert np.array_equal(resized(dataset, 16).test.labels, dataset.test.labels)
