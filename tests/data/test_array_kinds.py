"""Whether arrays of others are images, series or vectors: by dtype and shape, said in notes, asked for by options."""

import numpy as np
import pytest

from mpt.data import DataError, load

from .samples import assert_one_sentence

RNG = np.random.default_rng(0)
LABELS = np.repeat(np.arange(3), 10)
BYTES = RNG.integers(0, 256, (30, 12, 10), dtype=np.uint8)
READINGS = RNG.normal(size=(30, 128, 9))
SPLIT = "split here: the last fifth of every class is for the test"


def npz(path, x, options="", **others):
    np.savez(path / "x.npz", x=x, y=LABELS, **others)
    return f"npz:{path / 'x.npz'}{options}"


def first(dataset):
    """The samples as they were in the file: those of train and of test of each class."""
    return np.concatenate([dataset.train.images[:8], dataset.test.images[:2]])


TAKEN = {
    "bytes in three dimensions": (BYTES, "", "images", (12, 10, 1), ""),
    "bytes, wide": (BYTES.reshape(30, 4, 30), "", "images", (4, 30, 1), ""),
    "bytes in two": (BYTES.reshape(30, -1), "", "vectors", (120,), "taken for vectors; images should be of shape"),
    "whole numbers": (READINGS[:, 0].astype(np.int64), "", "vectors", (9,), ""),
    "truths": (READINGS[:, 0] > 0, "", "vectors", (9,), ""),
    "short integers": (np.int16(1000 * READINGS[:, :9].transpose(0, 2, 1)), "", "series", (9, 9), "taken for series"),
    "channels, then length": (READINGS.transpose(0, 2, 1), "", "series", (9, 128), ""),
    "length, then channels": (
        READINGS, "", "series", (9, 128), "series of 9 channels and length 128, turned around, say ?channels=first",
    ),
    "said to be channels first": (READINGS, "?channels=first", "series", (128, 9), ""),
    "said to be channels last": (READINGS.transpose(0, 2, 1), "?channels=last", "series", (128, 9), ""),
    "a little longer": (
        READINGS[:, :12], "", "series", (12, 9), "series of 12 channels and length 9, say ?channels=last",
    ),
    "one channel": (READINGS[:, :, :1], "", "series", (1, 128), "turned around"),
    "one channel, flat": (READINGS[:, :, 0], "?kind=series", "series", (1, 128), ""),
    "grey from 0 to 1": (BYTES / 255, "", "images", (12, 10, 1), "taken for grey images, say ?kind=series"),
    "grey as int64": (BYTES.astype(np.int64), "", "images", (12, 10, 1), "taken for grey images, say ?kind=series"),
    "grey, said to be series": (
        BYTES / 255, "?kind=series", "series", (12, 10), "series of 12 channels and length 10, say &channels=last",
    ),
    "grey, but normalised": (BYTES / 128 - 1, "", "series", (12, 10), "taken for series, say ?kind=images"),
    "bytes, said to be series": (BYTES, "?kind=series&channels=first", "series", (12, 10), ""),
    "real, said to be images": (
        READINGS[:, :9] ** 2 % 1, "?kind=images", "images", (9, 9, 1), "taken for pixels from 0 to 1",
    ),
    "colour from 0 to 1": (np.stack([BYTES / 255] * 3, axis=3), "", "images", (12, 10, 3), "taken for pixels"),
    "colour, real, to 255": (np.stack([BYTES / 1.0] * 3, axis=1), "", "images", (12, 10, 3), "taken for pixels"),
    "flattened": (np.stack([BYTES] * 3, axis=3), "?kind=vectors", "vectors", (360,), ""),
    "three rows of bytes": (np.zeros((30, 3, 8, 3), np.uint8), "?channels=first", "images", (8, 3, 3), ""),
}  # fmt: skip


@pytest.mark.parametrize("case", TAKEN)
def test_what_an_array_is_taken_for(case, tmp_path):
    array, options, kind, shape, note = TAKEN[case]
    dataset = load(npz(tmp_path, array, options))
    assert (dataset.kind, dataset.sample_shape) == (kind, shape)
    assert dataset.notes[0] == SPLIT
    assert note in "; ".join(dataset.notes[1:])
    assert bool(note) == (len(dataset.notes) > 1)
    assert dataset.train.images.dtype == (np.uint8 if kind == "images" else np.float32)


def test_pixels_come_out_as_they_were(tmp_path):
    whole = first(load(npz(tmp_path, BYTES)))
    for array in (BYTES / 255, (BYTES / 255).astype(np.float32), BYTES.astype(np.int32), BYTES / 1.0):
        assert np.array_equal(first(load(npz(tmp_path, array))), whole)
    masks = BYTES > 128
    for array in (masks, masks.astype(np.int8), masks / 1.0):
        assert np.array_equal(np.unique(first(load(npz(tmp_path, array, "?kind=images")))), [0, 255])


def test_turned_series_keep_their_channels(tmp_path):
    assert np.array_equal(first(load(npz(tmp_path, READINGS))), READINGS[:10].transpose(0, 2, 1).astype(np.float32))


def test_train_decides_for_the_test(tmp_path):
    """Were each judged by itself, the test samples would be series: they have no number beyond 1."""
    dark = np.where(BYTES < 2, BYTES, 0) / 1.0
    arrays = {"x_train": BYTES / 1.0, "y_train": LABELS, "x_test": dark, "y_test": LABELS}
    np.savez(tmp_path / "x.npz", **arrays)
    dataset = load(f"npz:{tmp_path / 'x.npz'}")
    assert dataset.kind == "images"
    assert dataset.test.images.max() == 1


REFUSED = {
    "texts": (READINGS[:, 0].astype(str), "", r"x is <U\d+ of shape \(30, 9\), should be numbers: images as uint8"),
    "complex": (READINGS * 1j, "", r"x is complex128 of shape \(30, 128, 9\), should be numbers: images as uint8"),
    "one dimension": (LABELS, "", r"x is int64 of shape \(30,\), should be numbers"),
    "five dimensions": (READINGS[:, None, None], "", r"x is float64 of shape \(30, 1, 1, 128, 9\), should be numbers"),
    "negative images": (
        READINGS[..., None], "", r"x is float64 of shape \(30, 128, 9, 1\) and has numbers from -.* should be uint8 or",
    ),
    "large images": (READINGS[..., None] ** 2 * 1000, "", r"has numbers from .* to .*, should be uint8 or from 0 to 1"),
    "holes in images": (np.where(BYTES > 9, BYTES, np.nan)[..., None], "", "and has NaN or infinity, should be uint8"),
    "vectors as images": (
        BYTES.reshape(30, -1), "?kind=images", r"x is uint8 of shape \(30, 120\), should be \(N, H, W\), .*kind=images",
    ),
    "images as series": (BYTES[..., None], "?kind=series", r"should be \(N, channels, length\) for \?kind=series"),
    "another kind": (BYTES, "?kind=image", "kind is 'image', should be images, series or vectors"),
    "other channels": (BYTES, "?channels=middle", "channels is 'middle', should be first or last"),
    "four channels": (np.zeros((30, 8, 8, 4), np.uint8), "", r"images: shape is .*8, 4\), should be \(N, H, W, C\)"),
    "nothing": (READINGS[:, 0, :0], "", "vectors: shape is .* should have at least one vector"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_sample_is_refused_with_dtype_and_shape(case, tmp_path):
    array, options, message = REFUSED[case]
    with pytest.raises(DataError, match=message) as raised:
        load(npz(tmp_path, array, options))
    assert_one_sentence(raised)


def test_train_and_test_of_unlike_shapes(tmp_path):
    np.savez(tmp_path / "x.npz", x_train=READINGS, y_train=LABELS, x_test=READINGS[:, 0], y_test=LABELS)
    with pytest.raises(DataError, match=r"x_train is float64 of shape .* and x_test is .*, should have as many") as e:
        load(f"npz:{tmp_path / 'x.npz'}")
    assert_one_sentence(e)


def test_what_save_npz_wrote_says_itself_what_it_is(tmp_path):
    from mpt.data import save_npz

    dataset = load(npz(tmp_path, READINGS, "?channels=first"))
    path = save_npz(dataset, tmp_path / "own.npz")
    assert load(f"npz:{path}").sample_shape == (128, 9)
    with pytest.raises(DataError, match="kind is given, should be left out: save_npz has written") as raised:
        load(f"npz:{path}?kind=images")
    assert_one_sentence(raised)
