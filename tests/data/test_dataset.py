import dataclasses
import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpt.data import DataError, Dataset, Split
from mpt.data.resize import resized

from .samples import CLASSES, assert_one_sentence, make_dataset

IMAGES, LABELS = np.zeros((6, 8, 8, 3), dtype=np.uint8), np.array([0, 1, 2, 0, 1, 2])
SPLIT = Split(IMAGES, LABELS)


def test_a_dataset_cannot_be_changed_and_does_not_change_what_it_was_made_of():
    images, labels = IMAGES.copy(), LABELS.copy()
    split = Split(images, labels)
    for array in (split.images, split.labels):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    images[0], labels[0] = 9, 2
    assert split.labels[0] == 0
    assert split.labels.dtype == np.int64
    with pytest.raises(dataclasses.FrozenInstanceError):
        make_dataset().name = "other"


def test_a_class_is_found_by_name_by_index_and_by_a_numeral():
    dataset = make_dataset()
    assert [dataset.class_index(c) for c in CLASSES] == [0, 1, 2]
    assert dataset.class_index(2) == dataset.class_index(np.int32(2)) == dataset.class_index("2") == 2
    numerals = make_dataset(classes=("5", "1", "0"))
    assert numerals.class_index("1") == 1
    assert numerals.class_index("0") == 2


def test_counts_and_require():
    dataset = make_dataset(per_class=4)
    assert dataset.train.counts(5).tolist() == [4, 4, 4, 0, 0]
    assert dataset.require("truck", 4) == dataset.count("truck") == 4
    assert dataset.require(2, 2, "test") == 2
    with pytest.raises(DataError, match=r"^class 'truck': 4 train samples in small, should be at least 5$"):
        dataset.require("truck", 5)
    with pytest.raises(DataError, match="class 'car': 2 test samples"):
        dataset.require("car", 3, "test")


def test_the_fingerprint_is_a_hash_of_classes_images_and_labels():
    dataset = make_dataset()
    digest = hashlib.sha256(b"3:bus3:car5:truck")
    for split in (dataset.train, dataset.test):
        digest.update(str(tuple(split.images.shape)).encode() + split.images.tobytes() + split.labels.tobytes())
    assert dataset.fingerprint() == digest.hexdigest()[:16]
    assert dataclasses.replace(dataset, name="other").fingerprint() == dataset.fingerprint()
    image = dataset.train.images.copy()
    image[3, 2, 1, 0] ^= 1
    others = [
        dataclasses.replace(dataset, classes=("bus", "car", "lorry")),
        dataclasses.replace(dataset, train=Split(image, dataset.train.labels)),
        dataclasses.replace(dataset, test=Split(dataset.test.images, dataset.test.labels[::-1])),
        dataclasses.replace(dataset, train=dataset.test, test=dataset.train),
    ]
    assert len({d.fingerprint() for d in [dataset, *others]}) == 5


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 3))
def test_limited_takes_so_many_a_class_and_less_is_part_of_more(few, many, seed):
    dataset = make_dataset(per_class=9)
    few, many = sorted((few, many))
    small, large = dataset.limited(few, seed=seed), dataset.limited(many, seed=seed)
    assert small.train.counts(3).tolist() == [min(few, 9)] * 3
    assert small.test is dataset.test
    rows = {image.tobytes(): i for i, image in enumerate(dataset.train.images)}
    chosen = [[rows[image.tobytes()] for image in d.train.images] for d in (small, large)]
    assert set(chosen[0]) <= set(chosen[1])
    assert chosen[0] == sorted(chosen[0])
    assert np.array_equal(dataset.train.labels[chosen[0]], small.train.labels)


def test_limited_depends_on_the_seed_and_on_no_other_class():
    dataset = make_dataset(per_class=40)
    assert dataset.limited(5).fingerprint() == dataset.limited(5, seed=0).fingerprint()
    assert dataset.limited(5).fingerprint() != dataset.limited(5, seed=1).fingerprint()
    without = dataclasses.replace(dataset, train=dataset.train.take(np.flatnonzero(dataset.train.labels != 0)))
    mine, theirs = dataset.limited(5).train, without.limited(5).train
    assert np.array_equal(mine.images[mine.labels == 2], theirs.images[theirs.labels == 2])


def test_vehicles_go_with_their_samples():
    vehicles = np.array(["n3", "n1", "n2", "n1", "n3", "n2"])
    train = Split(IMAGES[..., :1], LABELS, vehicles)
    dataset = Dataset("own", CLASSES, train, train)
    assert dataset.rgb().train.vehicles.tolist() == vehicles.tolist()
    assert resized(dataset, 5).test.vehicles.tolist() == vehicles.tolist()
    assert train.take(np.array([4, 2])).vehicles.tolist() == ["n3", "n2"]
    assert not train.vehicles.flags.writeable
    prints = {Dataset("own", CLASSES, Split(IMAGES, LABELS, v), Split(IMAGES, LABELS))
              .fingerprint() for v in (None, vehicles, np.array(["n31", "n", "n2", "n1", "n3", "n2"]))}  # fmt: skip
    assert len(prints) == 3


def test_rgb_repeats_grey():
    grey = make_dataset(channels=1)
    assert grey.rgb().image_shape == (8, 8, 3)
    assert all(np.array_equal(grey.rgb().test.images[..., k : k + 1], grey.test.images) for k in range(3))
    coloured = make_dataset()
    assert coloured.rgb() is coloured


def test_what_is_printed():
    dataset = make_dataset()
    assert repr(dataset) == "<Dataset small: 12 train and 6 test images of 8x8x3, 3 classes>"
    assert repr(dataset.train) == "<Split: 12 images of 8x8x3>"
    assert len(dataset.train) == 12


def dataset(name="small", classes=CLASSES, train=SPLIT, test=SPLIT):
    return Dataset(name, classes, train, test)


CASES = {
    "real images": (lambda: Split(IMAGES / 255, LABELS), "images: dtype is float64, should be uint8"),
    "images without channels": (
        lambda: Split(IMAGES[..., 0], LABELS),
        r"shape is \(6, 8, 8\), should be \(N, H, W, C\)",
    ),
    "a vehicle without a name": (
        lambda: Split(IMAGES, LABELS, np.array(["a", ""] * 3)),
        r"vehicles: <U1 of shape \(6,\), should be a text that is not empty for each of the 6 images",
    ),
    "too few vehicles": (lambda: Split(IMAGES, LABELS, np.array(["a"])), r"vehicles: <U1 of shape \(1,\)"),
    "vehicles by number": (lambda: Split(IMAGES, LABELS, LABELS), "vehicles: int64"),
    "two channels": (
        lambda: Split(IMAGES[..., :2], LABELS),
        r"\(6, 8, 8, 2\), should be \(N, H, W, C\) with C = 1 or 3",
    ),
    "no images": (lambda: Split(IMAGES[:0], LABELS[:0]), "should have at least one image"),
    "images without pixels": (lambda: Split(IMAGES[:, :0], LABELS), "of at least one pixel"),
    "ragged images": (lambda: Split([IMAGES[0], IMAGES[0, :4]], [0, 1]), "images: cannot be read as one array"),
    "real labels": (lambda: Split(IMAGES, LABELS / 2), "labels: dtype is float64, should be integers"),
    "too few labels": (lambda: Split(IMAGES, LABELS[:5]), r"labels: shape is \(5,\), should be \(6,\)"),
    "a negative label": (lambda: Split(IMAGES, LABELS - 1), "labels: sample 0 has -1, should not be negative"),
    "a label too high": (
        lambda: dataset(classes=CLASSES[:2]),
        r"train labels: sample 2 has 2, should be 0 to 1 for 2 classes",
    ),
    "no name": (lambda: dataset(name=""), "name: '', should be"),
    "one class": (lambda: dataset(classes=("car",)), "classes: 1, should be at least 2"),
    "a class twice": (lambda: dataset(classes=("car", "bus", "car")), "'car' is there twice"),
    "a nameless class": (lambda: dataset(classes=("car", "", "bus")), "classes: '' among them"),
    "numbers for classes": (lambda: dataset(classes=(0, 1, 2)), "classes: 0 among them, should be texts"),
    "a text for classes": (lambda: dataset(classes="abc"), "classes: 'abc', should be several names"),
    "an array for a split": (lambda: dataset(train=IMAGES), "train: ndarray, should be a Split"),
    "two sizes": (lambda: dataset(test=Split(IMAGES[:, :4], LABELS)), r"\(8, 8, 3\) in train and \(4, 8, 3\) in test"),
    "an unknown class": (
        lambda: dataset().class_index("lorry"),
        "no 'lorry' in small, should be one of bus, car, truck",
    ),
    "a class too high": (lambda: dataset().class_index(3), "no 3 in small, should be 0 to 2 or one of bus, car, truck"),
    "a numeral too high": (lambda: dataset().class_index("3"), "no 3 in small, should be 0 to 2"),
    "a negative class": (lambda: dataset().class_index(-1), "no -1 in small"),
    "half a class": (lambda: dataset().class_index(0.5), "class: 0.5, should be a name or an index"),
    "truth for a class": (lambda: dataset().class_index(True), "no True in small"),
    "no samples a class": (lambda: dataset().limited(0), "per_class: 0, should be at least 1"),
    "a negative seed": (lambda: dataset().limited(1, seed=-1), "seed: -1, should not be negative"),
    "an unknown split": (lambda: dataset().split("valid"), "split: 'valid', should be one of train, test"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_refused_with_a_sentence(case):
    call, message = CASES[case]
    with pytest.raises(DataError, match=message) as raised:
        call()
    assert_one_sentence(raised)


def test_a_data_error_is_a_value_error():
    assert issubclass(DataError, ValueError)
