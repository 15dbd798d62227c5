import numpy as np
import pytest

from mpt.data import DataError, load, save_npz

from .samples import CLASSES, assert_one_sentence, make_dataset


@pytest.mark.parametrize("channels", [1, 3])
def test_a_dataset_comes_back_whole(tmp_path, channels):
    dataset = make_dataset(channels=channels, classes=("Bus", "Straßenbahn", "traffic cone"))
    path = save_npz(dataset, tmp_path / "some.data")
    back = load(f"npz:{path}")
    assert back.fingerprint() == dataset.fingerprint()
    assert (back.name, back.classes) == (dataset.name, dataset.classes)
    assert load(f"npz:{path}", image_size=20).image_shape == (20, 20, channels)


def test_vehicles_and_notes_come_back(tmp_path):
    dataset = make_dataset()
    vehicles = np.array([f"n{i}" for i in range(len(dataset.train))])
    train = type(dataset.train)(dataset.train.images, dataset.train.labels, vehicles)
    dataset = type(dataset)("own", CLASSES, train, dataset.test, notes=("left out: broken images 3",))
    said = []
    back = load(f"npz:{save_npz(dataset, tmp_path / 'x.npz')}", say=said.append)
    assert back.train.vehicles.tolist() == vehicles.tolist()
    assert back.test.vehicles is None
    assert back.notes == dataset.notes
    assert said == [f"npz:{tmp_path / 'x.npz'}: left out: broken images 3"]


def test_a_path_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    save_npz(make_dataset(), tmp_path / "x.npz")
    assert load("npz:~/x.npz").fingerprint() == make_dataset().fingerprint()


def test_it_is_compressed(tmp_path):
    dataset = make_dataset(per_class=50, size=32)
    blank = type(dataset)("blank", CLASSES, *[type(s)(s.images * 0, s.labels) for s in (dataset.train, dataset.test)])
    assert save_npz(blank, tmp_path / "blank.npz").stat().st_size < 0.05 * blank.train.images.nbytes


def stored(tmp_path, **changes):
    path = save_npz(make_dataset(), tmp_path / "x.npz")
    fields = dict(np.load(path)) | changes
    np.savez(path, **{name: value for name, value in fields.items() if value is not None})
    return path


def overwritten(tmp_path, data):
    path = tmp_path / "x.npz"
    path.write_bytes(data)
    return path


def truncated(tmp_path):
    data = save_npz(make_dataset(), tmp_path / "x.npz").read_bytes()
    return overwritten(tmp_path, data[: len(data) // 2])


def altered(tmp_path):
    data = bytearray(save_npz(make_dataset(per_class=200), tmp_path / "x.npz").read_bytes())
    data[len(data) // 2] ^= 255
    return overwritten(tmp_path, bytes(data))


def pickled(tmp_path):
    return stored(tmp_path, classes=np.array([{"a": 1}, None, 3], dtype=object))


def single(tmp_path):
    with (tmp_path / "x.npz").open("wb") as file:
        np.save(file, np.arange(3))
    return tmp_path / "x.npz"


CASES = {
    "no file": (lambda t: t / "none.npz", "there is no file .*none.npz, should be a whole file"),
    "a folder": (lambda t: t, "is a folder, should be a whole file that mpt.data.save_npz or np.savez wrote"),
    "an empty file": (lambda t: overwritten(t, b""), "cannot be read, should be a whole file"),
    "a text": (lambda t: overwritten(t, b"not at all an archive"), "cannot be read, should be a whole file"),
    "half a file": (truncated, "cannot be read, should be a whole file"),
    "an altered file": (altered, "cannot be read, should be a whole file"),
    "objects in it": (pickled, r"classes holds Python objects, .* \.astype\(str\)"),
    "one array": (single, "cannot be read, should be a whole file"),
    "no labels": (lambda t: stored(t, test_labels=None), "has no test_labels, should be a file"),
    "another version": (lambda t: stored(t, version=np.array(9)), "version is 9, should be 1"),
    "real images": (lambda t: stored(t, train_images=np.zeros((12, 8, 8, 3))), "x.npz: images: dtype is float64"),
    "labels too high": (lambda t: stored(t, test_labels=np.full(6, 7)), "test labels: sample 0 has 7"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_refused_with_a_sentence(case, tmp_path):
    make, message = CASES[case]
    path = make(tmp_path)
    with pytest.raises(DataError, match=message) as raised:
        load(f"npz:{path}")
    assert_one_sentence(raised)
    assert str(raised.value).startswith("npz:")


def test_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(DataError, match=r"cannot be written .*, should be a file in a folder that exists") as raised:
        save_npz(make_dataset(), tmp_path / "none" / "x.npz")
    assert_one_sentence(raised)
