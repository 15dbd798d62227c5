"""Arrays as people have them in files and hand them over: columns of pandas, objects, real labels, other capitals."""

import numpy as np
import pytest

from mpt.data import DataError, load, save_features, save_npz
from mpt.data.plain import plain

from .samples import assert_one_sentence, make_dataset

RNG = np.random.default_rng(0)
LABELS = np.repeat(np.arange(3), 10)
WORDS = np.array(["car", "truck", "van"])[LABELS]
FEATURES = [RNG.normal(size=(30, 5)), RNG.normal(size=(30, 5))]


def saved(path, **arrays):
    np.savez(path / "x.npz", **arrays)
    return f"npz:{path / 'x.npz'}"


def series(values, kind):
    return pytest.importorskip("pandas").Series(values, dtype=kind)


COLUMNS = {
    "objects": lambda: WORDS.astype(object),
    "a column of objects": lambda: series(WORDS, object),
    "a column of texts": lambda: series(WORDS, "string"),
    "a column of categories": lambda: series(WORDS, "category"),
    "bytes": lambda: WORDS.astype(bytes),
    "a list": WORDS.tolist,
}


@pytest.mark.parametrize("case", COLUMNS)
def test_labels_of_pandas_are_texts(case, tmp_path):
    devices = np.array([f"d{i % 4}" for i in range(30)], dtype=object)
    path = save_features(tmp_path / "v.npz", COLUMNS[case](), FEATURES, devices=devices)
    dataset = load(f"features:{path}")
    assert dataset.classes == ("car", "truck", "van")
    assert dataset.train.counts(3).tolist() == [8, 8, 8]
    assert dataset.train.vehicles[:2].tolist() == ["d0", "d1"]


@pytest.mark.parametrize("kind", [object, "Int64", "float64", "int8"])
def test_numbers_of_pandas_are_whole_labels(kind, tmp_path):
    path = save_features(tmp_path / "v.npz", series(LABELS, kind), FEATURES, devices=series(LABELS + 1, kind))
    dataset = load(f"features:{path}")
    assert dataset.classes == ("0", "1", "2")
    assert set(dataset.train.vehicles) == {"1", "2", "3"}


def test_features_of_objects_are_numbers(tmp_path):
    path = save_features(tmp_path / "v.npz", LABELS, [one.astype(object) for one in FEATURES], test=np.arange(30) % 2)
    assert np.array_equal(load(f"features:{path}").test.versions[1], FEATURES[1][1::2])


def nan_at(array, *where):
    made = array.copy()
    made[where] = np.nan
    return made


UNWRITTEN = {
    "one version": (LABELS, FEATURES[:1], {}, "versions: 1, should be a list of two or more arrays"),
    "no labels": (None, FEATURES, {}, "labels: entry 0 is missing \\(None\\), should be a text or a number"),
    "nothing for a version": (LABELS, [FEATURES[0], None], {}, "features_2: entry 0 is missing \\(None\\), should be"),
    "a dict": (LABELS, {"a": FEATURES[0], "b": FEATURES[1]}, {}, "versions: of type dict, should be a list"),
    "one array": (LABELS, FEATURES[0], {}, "versions: of type ndarray, should be a list"),
    "too few labels": (LABELS[:9], FEATURES, {}, r"features_1 is float64 of shape \(30, 5\), should be .* \(9, d\)"),
    "NaN": (LABELS, [FEATURES[0], nan_at(FEATURES[1], 4, 2)], {}, "features_2: sample 4 is NaN or infinite"),
    "other dimensions": (LABELS, [FEATURES[0], FEATURES[1][:, :3]], {}, "features_2 has 3 numbers a sample and"),
    "too few devices": (LABELS, FEATURES, {"devices": ["a", "b"]}, "devices is <U1 of shape .* should be 30 names"),
    "too few classes": (LABELS, FEATURES, {"classes": ("a", "b")}, "classes are 2 names and labels go from 0 to 2"),
    "a text of classes": (LABELS, FEATURES, {"classes": "abc"}, "classes: 'abc', should be several names"),
    "too short a test": (LABELS, FEATURES, {"test": [True, False]}, r"test is bool of shape \(2,\), .* \(30,\)"),
    "a missing label": ([*WORDS[:29], None], FEATURES, {}, r"labels: entry 29 is missing \(None\), should be a text"),
    "a NaN among texts": (np.array([*WORDS[:29], np.nan], dtype=object), FEATURES, {}, r"entry 29 is missing \(nan\)"),
    "texts and numbers": (np.array([*WORDS[:29], 7], dtype=object), FEATURES, {}, "'car' and entry 29 the number 7"),
    "lists": (np.array([[1], [2, 3]] * 15, dtype=object), FEATURES, {}, r"entry 0 is an array or a list \(\[1\]\)"),
    "other things": (np.array([{1}] * 30, dtype=object), FEATURES, {}, "labels: entry 0 is of type set"),
    "one sample of a class": ([9, *LABELS[1:]], FEATURES, {}, "class '9' has one sample, should have at least two, or"),
    "one of a class, tested": (
        [9, *LABELS[1:]], FEATURES, {"test": np.arange(30) % 5 == 0}, "class '9' is in test but not in train",
    ),
    "an empty text": (["", *WORDS[1:]], FEATURES, {}, "labels: entry 0 is an empty text"),
    "ragged": ([[1, 2], [3]], FEATURES, {}, "labels cannot be read as one array"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNWRITTEN)
def test_what_could_not_be_read_is_not_written(case, tmp_path):
    labels, versions, others, message = UNWRITTEN[case]
    good = save_features(tmp_path / "keep.npz", LABELS, FEATURES).read_bytes()
    with pytest.raises(DataError, match=message) as raised:
        save_features(tmp_path / "keep.npz", labels, versions, **others)
    assert_one_sentence(raised)
    assert str(raised.value).startswith("save_features: ")
    assert (tmp_path / "keep.npz").read_bytes() == good
    assert [file.name for file in tmp_path.iterdir()] == ["keep.npz"]


def test_a_file_is_replaced_once_the_new_one_is_whole(tmp_path, monkeypatch):
    path = save_npz(make_dataset(), tmp_path / "x.npz")
    good = path.read_bytes()

    def full(file, **arrays):
        file.write(b"PK")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(DataError, match=r"cannot be written \(No space left on device\)"):
        save_npz(make_dataset(seed=1), path)
    assert path.read_bytes() == good
    assert [file.name for file in tmp_path.iterdir()] == ["x.npz"]


def test_a_link_stays_a_link(tmp_path):
    save_npz(make_dataset(), tmp_path / "there.npz")
    (tmp_path / "link.npz").symlink_to("there.npz")
    save_npz(make_dataset(seed=1), tmp_path / "link.npz")
    assert (tmp_path / "link.npz").is_symlink()
    assert load(f"npz:{tmp_path / 'there.npz'}").fingerprint() == make_dataset(seed=1).fingerprint()


def test_save_npz_takes_datasets_of_samples(tmp_path):
    features = load(f"features:{save_features(tmp_path / 'v.npz', LABELS, FEATURES)}")
    for wrong, message in (
        ({"x_train": FEATURES[0]}, "dataset is of type dict, should be a Dataset; np.savez"),
        (features, "v has features under 2 versions of a model, should be samples; save_features"),
    ):
        with pytest.raises(DataError, match=message) as raised:
            save_npz(wrong, tmp_path / "x.npz")
        assert_one_sentence(raised)
    with pytest.raises(DataError, match=r"is a folder, should be a file in it, such as .*data.npz") as raised:
        save_npz(make_dataset(), tmp_path)
    assert_one_sentence(raised)


def test_pickled_labels_are_named_and_never_unpickled(tmp_path):
    told = r"y_train holds Python objects, should be texts or numbers: save it with \.astype\(str\)"
    arrays = {"x_train": FEATURES[0], "x_test": FEATURES[0], "y_test": WORDS}
    with pytest.raises(DataError, match=told) as raised:
        load(saved(tmp_path, **arrays, y_train=WORDS.astype(object)))
    assert_one_sentence(raised)
    assert load(saved(tmp_path, **arrays, y_train=WORDS, notes=WORDS.astype(object))).num_classes == 3
    versions = {"features_1": FEATURES[0], "features_2": FEATURES[1]}
    spec = saved(tmp_path, labels=WORDS.astype(object), **versions).replace("npz:", "features:", 1)
    with pytest.raises(DataError, match=told.replace("y_train", "labels")):
        load(spec)
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, array in {"labels": WORDS.astype(object), **versions}.items():
        np.save(folder / f"{name}.npy", array)
    with pytest.raises(DataError, match=told.replace("y_train", "labels")):
        load(f"features:{folder}")
    np.save(folder / "labels.npy", WORDS)
    np.save(folder / "remarks.npy", WORDS.astype(object))
    assert load(f"features:{folder}").num_classes == 3


def test_real_labels_that_are_whole_are_named_as_such(tmp_path):
    assert load(saved(tmp_path, x=FEATURES[0], y=LABELS / 1.0)).classes == ("0", "1", "2")
    assert load(saved(tmp_path, x=FEATURES[0], y=LABELS / 2)).classes == ("0.0", "0.5", "1.0")
    split = {"x_train": FEATURES[0], "y_train": LABELS / 1.0, "x_test": FEATURES[0], "y_test": LABELS}
    assert load(saved(tmp_path, **split)).test.counts(3).tolist() == [10, 10, 10]


LABELLED = {
    "NaN": (np.where(LABELS == 2, np.nan, LABELS), "y: entry 20 is nan, should be a finite number or a text"),
    "infinite": (np.where(LABELS == 2, np.inf, LABELS), "y: entry 20 is inf, should be a finite number or a text"),
    "complex": (LABELS * 1j, r"y is complex128 of shape \(30,\), should be texts or numbers"),
    "one-hot": (np.eye(3)[LABELS], r"y is of shape \(30, 3\), should be \(30,\), .* take \.argmax\(axis=1\)"),
    "one of a class": ([9, *LABELS[1:]], "class '9' has one sample, should have at least two, or test samples of"),
}


@pytest.mark.parametrize("case", LABELLED)
def test_labels_that_are_wrong_are_refused_with_a_sentence(case, tmp_path):
    labels, message = LABELLED[case]
    with pytest.raises(DataError, match=message) as raised:
        load(saved(tmp_path, x=FEATURES[0], y=labels))
    assert_one_sentence(raised)


def test_texts_in_train_and_numbers_in_test_are_refused(tmp_path):
    with pytest.raises(DataError, match="y_train is <U5 and y_test is int64, should both be texts or both") as raised:
        load(saved(tmp_path, x_train=FEATURES[0], y_train=WORDS, x_test=FEATURES[0], y_test=LABELS))
    assert_one_sentence(raised)


def test_capitals_do_not_count_and_train_alone_is_split(tmp_path):
    split = {"X_train": FEATURES[0], "Y_train": WORDS, "X_test": FEATURES[1], "Y_test": WORDS}
    assert len(load(saved(tmp_path, **split, Subject_train=LABELS)).train) == 30
    dataset = load(saved(tmp_path, X_train=FEATURES[0], y_train=WORDS, subject_train=LABELS))
    assert (len(dataset.train), len(dataset.test)) == (24, 6)
    assert dataset.notes == ("split here: the last fifth of every class is for the test",)
    assert dataset.train.vehicles[0] == "0"
    with pytest.raises(DataError, match="has x_train, y_train, x_test but no y_test, should have x_train") as e:
        load(saved(tmp_path, x_train=FEATURES[0], y_train=WORDS, x_test=FEATURES[1]))
    assert_one_sentence(e)
    assert load(saved(tmp_path, X=FEATURES[0], Y=WORDS)).num_classes == 3


def test_features_given_as_npz(tmp_path):
    path = save_features(tmp_path / "v.npz", LABELS, FEATURES)
    with pytest.raises(DataError, match=r"has features_1, should be given as features:.*v.npz") as raised:
        load(f"npz:{path}")
    assert_one_sentence(raised)


def test_numbers_beyond_64_bits_are_refused():
    with pytest.raises(DataError, match="labels has numbers beyond 64 bits"):
        plain("labels", np.array([2**70, 1], dtype=object))
    with pytest.raises(DataError, match="bytes that are no UTF-8"):
        plain("labels", np.array([b"\xff"]))
