import shutil

import numpy as np
import pytest

from mpt.data import DataError, load, load_local, load_test

from .samples import CLASSES, assert_one_sentence, encode, smooth_image, write_folder

pytest.importorskip("PIL", reason="folder: needs Pillow")


def test_png_files_come_back_exactly(tmp_path):
    dataset = load(f"folder:{write_folder(tmp_path / 'roads')}")
    assert (dataset.name, dataset.classes) == ("roads", CLASSES)
    assert dataset.train.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    expected = np.stack([smooth_image(c, i) for c in range(3) for i in range(3)])
    assert np.array_equal(dataset.train.images, expected)
    assert np.array_equal(dataset.test.images, expected)


def test_jpeg_files_come_back_nearly(tmp_path):
    dataset = load(f"folder:{write_folder(tmp_path, kind='JPEG')}")
    expected = np.stack([smooth_image(c, i) for c in range(3) for i in range(3)])
    assert np.abs(dataset.train.images.astype(int) - expected).mean() < 4


def test_classes_and_files_are_sorted_and_other_files_are_left_out(tmp_path):
    write_folder(tmp_path, classes=("van", "ape"))
    (tmp_path / "train" / "notes.txt").write_text("no class")
    (tmp_path / "train" / ".cache").mkdir()
    (tmp_path / "train" / "van" / "notes.txt").write_text("no image")
    (tmp_path / "train" / "van" / ".hidden.png").write_bytes(b"no image")
    (tmp_path / "train" / "van" / "deep").mkdir()
    (tmp_path / "train" / "van" / "deep" / "x.PNG").write_bytes(encode(smooth_image(0, 7)))
    dataset = load(f"folder:{tmp_path}")
    assert dataset.classes == ("ape", "van")
    assert dataset.train.counts(2).tolist() == [3, 4]
    assert np.array_equal(dataset.train.images[-1], smooth_image(0, 7))


def test_grey_stays_grey_unless_one_is_coloured(tmp_path):
    write_folder(tmp_path, grey=True)
    assert load(f"folder:{tmp_path}").image_shape == (30, 30, 1)
    (tmp_path / "test" / "car" / "extra.png").write_bytes(encode(smooth_image(1, 1)))
    dataset = load(f"folder:{tmp_path}")
    assert dataset.image_shape == (30, 30, 3)
    assert np.array_equal(dataset.train.images[0], np.repeat(smooth_image(0, 0, grey=True)[..., None], 3, axis=2))


@pytest.mark.parametrize(
    ("sizes", "side"),
    [
        ([(12, 12)], 12),
        ([(300, 300)], 224),
        ([(60, 40)], 40),
        ([(40, 60), (50, 90), (80, 80)], 50),
        ([(10, 20), (12, 30)], 28),
    ],
)
def test_the_size_without_a_wish(tmp_path, sizes, side):
    write_folder(tmp_path, size=lambda c, i: sizes[i % len(sizes)])
    assert load(f"folder:{tmp_path}").image_shape == (side, side, 3)


def test_images_of_any_size_become_the_size_wanted(tmp_path):
    write_folder(tmp_path, size=lambda c, i: (20 + 30 * i, 40 + 7 * c))
    dataset = load(f"folder:{tmp_path}", image_size=24)
    assert dataset.image_shape == (24, 24, 3)
    for image, (c, i) in zip(dataset.train.images, [(c, i) for c in range(3) for i in range(3)], strict=True):
        assert np.array_equal(image[2, 2], smooth_image(c, i)[0, 0])
        assert np.array_equal(image[-2, -2], smooth_image(c, i)[-1, -1])


def test_kinds_of_png(tmp_path):
    """Palette with transparency, transparency, 16 bits, two colours."""
    from PIL import Image

    write_folder(tmp_path, classes=("a", "b"), per_class=1)
    grey = np.tile(np.linspace(0, 255, 30).astype(np.uint8), (30, 1))
    folder = tmp_path / "train" / "a"
    Image.fromarray(smooth_image(0, 0)).quantize(4).save(folder / "1.png", transparency=b"\x10\x20\x30\x40")
    Image.fromarray(np.dstack([smooth_image(0, 0), grey])).save(folder / "2.png")
    Image.fromarray(grey.astype(np.uint16) * 257).save(folder / "3.png")
    Image.fromarray(grey > 127).save(folder / "4.png")
    images = load(f"folder:{tmp_path}").train.images
    assert np.abs(images[1].astype(int) - smooth_image(0, 0)).max() < 4
    assert np.array_equal(images[2], smooth_image(0, 0))
    assert np.array_equal(images[3][..., 0], grey)
    assert np.array_equal(images[4][..., 0], np.where(grey > 127, 255, 0))


def deep(kind):
    """A ramp of grey in more than 8 bits, and the file's ending."""
    from PIL import Image

    ramp = np.add.outer(np.arange(32), np.arange(32)) * 1057  # up to 65534
    return {
        "16 bits": (Image.fromarray(ramp.astype(np.uint16)), "png"),
        "16 bits, the other way round": (Image.frombytes("I;16B", (32, 32), ramp.astype(">u2").tobytes()), "tif"),
        "a PGM of 16 bits": (Image.fromarray(ramp.astype(np.uint16)), "pgm"),
        "32 bits": (Image.fromarray(ramp.astype(np.int32)), "tif"),
        "32 bits up to 255": (Image.fromarray((ramp >> 8).astype(np.int32)), "tif"),
        "real numbers to 1": (Image.fromarray(((ramp >> 8) / 255).astype(np.float32)), "tif"),
        "real numbers to 255": (Image.fromarray((ramp >> 8).astype(np.float32)), "tif"),
        "beyond": (Image.fromarray((ramp - 9.0).astype(np.float32)), "tif"),
    }[kind], ramp >> 8


KINDS = ("16 bits", "16 bits, the other way round", "a PGM of 16 bits", "32 bits", "32 bits up to 255")


@pytest.mark.parametrize("kind", [*KINDS, "real numbers to 1", "real numbers to 255"])
def test_grey_of_more_bits_becomes_grey_of_eight(tmp_path, kind):
    (image, suffix), expected = deep(kind)
    for name in ("bus", "car"):
        (tmp_path / name).mkdir()
        for i in range(2):
            image.save(tmp_path / name / f"{i}.{suffix}")
    dataset = load(f"folder:{tmp_path}")
    assert dataset.notes == ("split here: the last fifth of every class is for the test",)
    assert np.array_equal(dataset.train.images[0], expected[..., None])


def test_numbers_that_no_image_has_are_a_broken_image(tmp_path):
    root = write_folder(tmp_path)
    deep("beyond")[0][0].save(root / "train" / "car" / "x.tif")
    assert load(f"folder:{root}").notes == ("left out: broken images 1 (train/car/x.tif)",)


def test_a_photograph_taken_sideways_is_turned_upright(tmp_path):
    from PIL import Image

    write_folder(tmp_path, size=lambda c, i: (40, 60))
    exif = Image.Exif()
    exif[0x0112] = 6
    lying = np.rot90(smooth_image(0, 0, (40, 60)))
    (tmp_path / "train" / "bus" / "0.png").unlink()
    Image.fromarray(lying).save(tmp_path / "train" / "bus" / "0.jpg", exif=exif, quality=95)
    dataset = load(f"folder:{tmp_path}")
    assert np.abs(dataset.train.images[0].astype(int) - dataset.test.images[0]).mean() < 6


def without(which, name=None):
    def change(root):
        shutil.rmtree(root / which / name if name else root / which)

    return change


def emptied(root):
    (root / "test" / "car" / "0.png").unlink()
    (root / "test" / "car" / "1.png").unlink()
    (root / "test" / "car" / "2.png").unlink()


def only_car(root):
    without("train", "bus")(root)
    without("train", "truck")(root)


def corrupt(data):
    def change(root):
        file = root / "train" / "car" / "1.png"
        file.write_bytes(data(file.read_bytes()))

    return change


CASES = {
    "no folder": (
        shutil.rmtree,
        "there is no folder .*, should be one with a folder of images per class, or with train/ and test/",
    ),
    "no train": (without("train"), "has test/ but no train/, should have both, or a folder per class alone"),
    "one class": (only_car, "train has 1 class folder, should have at least 2"),
    "a class only in train": (
        without("test", "truck"),
        "class 'truck' is in train/ but not in test/, should be in both",
    ),
    "a class only in test": (without("train", "bus"), "class 'bus' is in test/ but not in train/, should be in both"),
    "an empty class": (emptied, "no images in .*car, should have at least one"),
}


def test_train_alone_is_split(tmp_path):
    root = write_folder(tmp_path / "set", per_class=5)
    shutil.rmtree(root / "test")
    dataset = load(f"folder:{root}")
    assert dataset.notes == ("split here: the last fifth of every class is for the test",)
    assert (len(dataset.train), len(dataset.test)) == (12, 3)


@pytest.mark.parametrize(("train", "test"), [("Train", "Test"), ("TRAIN", "Val"), ("training", "testing")])
def test_parts_are_no_classes_however_they_are_written(tmp_path, train, test):
    root = write_folder(tmp_path / "set")
    expected = load(f"folder:{root}"), load_local(f"folder:{root}"), load_test(f"folder:{root}")
    (root / "train").rename(root / train)
    (root / "test").rename(root / test)
    found = load(f"folder:{root}"), load_local(f"folder:{root}"), load_test(f"folder:{root}")
    assert (found[0].classes, found[0].fingerprint()) == (expected[0].classes, expected[0].fingerprint())
    for one, other in zip(found[1:], expected[1:], strict=True):
        assert one.classes == other.classes
        assert np.array_equal(one.train.images, other.train.images)


def test_a_class_may_be_called_train(tmp_path):
    root = write_folder(tmp_path / "set", classes=("bus", "train"), per_class=5)
    assert load(f"folder:{root / 'train'}").classes == ("bus", "train")


@pytest.mark.parametrize(
    "data",
    [lambda _: b"hello", lambda data: data[:60], lambda _: b"", lambda _: encode(smooth_image(0, 0), "JPEG")[:500]],
)
def test_a_broken_image_is_left_out_and_counted(tmp_path, data):
    root = write_folder(tmp_path / "set")
    corrupt(data)(root)
    dataset = load(f"folder:{root}")
    assert dataset.notes == ("left out: broken images 1 (train/car/1.png)",)
    assert np.bincount(dataset.train.labels).tolist() == [3, 2, 3]


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_refused_with_a_sentence(case, tmp_path):
    change, message = CASES[case]
    root = write_folder(tmp_path / "set")
    change(root)
    with pytest.raises(DataError, match=message) as raised:
        load(f"folder:{root}")
    assert_one_sentence(raised)


def test_a_vehicle_needs_train_alone_and_one_class(tmp_path):
    root = write_folder(tmp_path / "set")
    only_car(root)
    without("test")(root)
    held = load_local(f"folder:{root}")
    assert (held.name, held.classes, held.notes) == ("set", ("car",), ())
    assert np.array_equal(held.train.images, np.stack([smooth_image(1, i) for i in range(3)]))
    assert held.train.labels.tolist() == [0, 0, 0]
    assert len(load_local(f"folder:{root}", per_class=2).train) == 2


@pytest.mark.parametrize("data", [b"", b"hello", encode(smooth_image(0, 0))[:60]])
def test_a_vehicle_does_without_broken_images_and_empty_classes(tmp_path, data):
    root = write_folder(tmp_path)
    corrupt(lambda _: data)(root)
    for file in (root / "train" / "bus").iterdir():
        file.unlink()
    said = []
    held = load_local(f"folder:{root}", say=said.append)
    assert held.classes == ("car", "truck")
    expected = [smooth_image(c, i) for c, i in [(1, 0), (1, 2), (2, 0), (2, 1), (2, 2)]]
    assert np.array_equal(held.train.images, np.stack(expected))
    assert held.train.labels.tolist() == [0, 0, 1, 1, 1]
    assert said == [f"folder:{root}: left out: classes without images 1 (bus), broken images 1 (train/car/1.png)"]


def test_a_vehicle_without_any_image_is_told(tmp_path):
    (tmp_path / "train" / "car").mkdir(parents=True)
    with pytest.raises(DataError, match=r"no images in .*train, should have at least one; .*images 1"):
        load_local(f"folder:{tmp_path}")
    with pytest.raises(DataError, match=r"there is no folder .*/none, should be one with train/ that has a folder"):
        load_local(f"folder:{tmp_path / 'none'}")
    with pytest.raises(DataError, match=r"there is no folder .*/none, should be one with test/ that has a folder"):
        load_test(f"folder:{tmp_path / 'none'}")


def test_of_other_datasets_a_vehicle_takes_the_training_samples():
    held, dataset = load_local("road?train=3&test=2", per_class=2), load("road?train=3&test=2", per_class=2)
    assert held.classes == dataset.classes
    assert np.array_equal(held.train.images, dataset.train.images)
    assert np.array_equal(held.train.labels, dataset.train.labels)
