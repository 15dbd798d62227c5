"""Samples that are no images: series, vectors, made windows, and features under several versions of a model."""

import dataclasses

import numpy as np
import pytest

from mpt.data import DataError, Dataset, Split, load, save_features, save_npz

from .samples import assert_one_sentence

RNG = np.random.default_rng(0)
LABELS = np.repeat(np.arange(3), 10)
SERIES, VECTORS = RNG.normal(size=(30, 2, 16)), RNG.normal(size=(30, 5))


def saved(path, **arrays):
    np.savez(path / "x.npz", **arrays)
    return f"npz:{path / 'x.npz'}"


@pytest.mark.parametrize(("samples", "kind"), [(SERIES, "series"), (VECTORS, "vectors")])
def test_real_numbers_are_series_or_vectors_and_come_back(tmp_path, samples, kind):
    dataset = load(saved(tmp_path, x=samples, y=LABELS, subjects=np.arange(30) % 11))
    assert (dataset.kind, dataset.sample_shape) == (kind, samples.shape[1:])
    assert dataset.train.images.dtype == np.float32
    assert np.array_equal(dataset.train.channels_first, dataset.train.images)
    assert dataset.train.vehicles[:3].tolist() == ["00", "01", "02"]
    assert kind in repr(dataset)
    again = load(f"npz:{save_npz(dataset, tmp_path / 'again.npz')}")
    assert again.fingerprint() == dataset.fingerprint()
    assert again.train.vehicles.tolist() == dataset.train.vehicles.tolist()
    with pytest.raises(DataError, match=f"these are {kind} of .*, should be images"):
        _ = dataset.image_shape


def test_subjects_of_a_file_that_is_split(tmp_path):
    arrays = {"x_train": SERIES, "y_train": LABELS, "x_test": SERIES, "y_test": LABELS}
    dataset = load(saved(tmp_path, **arrays, subject_train=LABELS + 1))
    assert set(dataset.train.vehicles) == {"1", "2", "3"}
    assert dataset.test.vehicles is None
    with pytest.raises(DataError, match="29 devices and 30 labels") as raised:
        load(saved(tmp_path, **arrays, subject_train=np.arange(29)))
    assert_one_sentence(raised)


@pytest.mark.parametrize(
    ("samples", "size", "message"),
    [
        (np.where(SERIES > 2.5, np.nan, SERIES), None, "series: sample .* NaN or infinite"),
        (SERIES[:, :, :0], None, "series: shape is .*, should have at least one"),
        (SERIES, 32, "image_size: 32, should be left out: x has series of 2x16"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, samples, size, message):
    with pytest.raises(DataError, match=message) as raised:
        load(saved(tmp_path, x=samples, y=LABELS), image_size=size)
    assert_one_sentence(raised)


def test_motion_is_shaped_like_uci_har_and_drawn_from_its_seed():
    data = load("motion?each=2")
    assert (data.sample_shape, data.num_classes, len(set(data.train.vehicles))) == ((9, 128), 6, 21)
    assert len(set(data.test.vehicles)) == 9
    assert not set(data.test.vehicles) & set(data.train.vehicles)
    assert data.train.counts(6).tolist() == [42] * 6
    assert load("motion?each=2").fingerprint() == data.fingerprint() != load("motion?each=2&seed=1").fingerprint()
    still, moving = (
        data.train.images[np.isin(data.train.labels, some)][:, :3].std() for some in ([3, 4, 5], [0, 1, 2])
    )
    assert moving > 3 * still
    with pytest.raises(DataError, match="should be left out: these are no images"):
        load("motion", image_size=32)


def versions(n=3):
    return [VECTORS + i for i in range(n)]


def test_features_of_a_file_and_of_a_folder(tmp_path):
    texts = np.array(["a", "b", "c"])[LABELS]
    tested = np.arange(30) % 3 == 0
    path = save_features(tmp_path / "v.npz", texts, versions(), test=tested, devices=LABELS)
    dataset = load(f"features:{path}")
    assert (dataset.versions, dataset.classes, len(dataset.test)) == (3, ("a", "b", "c"), 10)
    assert np.array_equal(dataset.test.versions[2], (VECTORS + 2)[tested])
    for name, array in np.load(path).items():
        np.save(tmp_path / f"{name}.npy", array)
    assert load(f"features:{tmp_path}").fingerprint() == dataset.fingerprint()
    few = dataset.limited(2)
    assert [len(one) for one in few.train.versions] == [6, 6, 6]
    assert np.allclose(few.train.versions[1] - 1, few.train.versions[0])
    other = dataclasses.replace(dataset.train, versions=(*dataset.train.versions[:2], dataset.train.versions[2] + 1))
    assert Dataset("v", dataset.classes, other, dataset.test).fingerprint() != dataset.fingerprint()
    assert isinstance(dataset.train, Split)


WRONG = {
    "no labels": ({"labels": None}, "has no labels"),
    "no features": ({"features_1": None, "features_2": None, "features_3": None}, "has no features_1"),
    "a version is missing": ({"features_2": None}, "has features_1, features_3, should be features_1, features_2"),
    "other lengths": ({"features_2": VECTORS[:, :3]}, "features_2 has 3 numbers a sample and features_1 has 5"),
    "other samples": ({"features_2": VECTORS[:9]}, r"features_2 is float64 of shape \(9, 5\), should be .* \(30, d\)"),
    "texts": ({"features_2": VECTORS.astype(str)}, "features_2 is <U"),
    "infinite": ({"features_3": np.full_like(VECTORS, np.inf)}, "features_3: sample 0 is NaN or infinite"),
    "all tested": ({"test": np.ones(30)}, "should be True for some labels"),
    "devices": ({"devices": np.arange(4)}, "devices is int64 of shape"),
    "labels too high": ({"classes": np.array(["a", "b"])}, "classes are 2 names and labels go from 0 to 2"),
}


@pytest.mark.parametrize("case", WRONG)
def test_features_that_are_wrong_are_refused_with_a_sentence(case, tmp_path):
    changes, message = WRONG[case]
    arrays = dict(np.load(save_features(tmp_path / "v.npz", LABELS, versions()))) | changes
    np.savez(tmp_path / "v.npz", **{name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(DataError, match=message) as raised:
        load(f"features:{tmp_path / 'v.npz'}")
    assert_one_sentence(raised)
    assert str(raised.value).startswith("features:")


def test_no_file_and_no_archive(tmp_path):
    with pytest.raises(DataError, match=r"there is no .*none"):
        load(f"features:{tmp_path / 'none'}")
    (tmp_path / "x.npz").write_text("nothing")
    with pytest.raises(DataError, match=r"cannot be read, should be a \.npz file or a folder"):
        load(f"features:{tmp_path / 'x.npz'}")
