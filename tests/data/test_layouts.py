"""Data as people have it: each layout loads, or is refused with a sentence that says what would do."""

import shutil

import numpy as np
import pytest

from mpt.data import DataError, load

from .samples import CLASSES, assert_one_sentence, encode, smooth_image, write_folder

RNG = np.random.default_rng(0)
IMAGES, LABELS = RNG.integers(0, 256, (30, 12, 12), dtype=np.uint8), np.tile([0, 1, 2], 10)


def bare(root, per_class=10):
    """Class folders and nothing around them."""
    for c, name in enumerate(CLASSES):
        (root / name).mkdir(parents=True)
        for i in range(per_class):
            (root / name / f"{i:02}.png").write_bytes(encode(smooth_image(c, i % 5)))
    return root


def with_val(root):
    write_folder(root)
    (root / "test").rename(root / "val")
    return root


def npz(root, **arrays):
    root.mkdir()
    np.savez(root / "set.npz", **arrays)
    return root / "set.npz"


def table(root, lines, head="image,label"):
    bare(root)
    (root / "set.csv").write_text("\n".join([head, *lines]) + "\n")
    return root / "set.csv"


def listed(*, split=False):
    files = [(f"{name}/{i:02}.png", name) for name in CLASSES for i in range(10)]
    return [f"{f},{c}{',val' if i % 5 == 0 else ',train'}" if split else f"{f},{c}" for i, (f, c) in enumerate(files)]


SPLIT = {"x_train": IMAGES[:24], "y_train": LABELS[:24], "x_test": IMAGES[24:], "y_test": LABELS[24:]}
GOOD = {
    "class folders without a split": (lambda r: f"folder:{bare(r)}", 24, 6),
    "train and val": (lambda r: f"folder:{with_val(r)}", 9, 9),
    "grey arrays as Keras has them": (lambda r: f"npz:{npz(r, **SPLIT)}", 24, 6),
    "images and labels of one lot": (lambda r: f"npz:{npz(r, images=IMAGES, labels=LABELS[:, None])}", 24, 6),
    "channels first, words for labels": (
        lambda r: f"npz:{npz(r, x=np.stack([IMAGES] * 3, axis=1), y=np.array(CLASSES)[LABELS])}", 24, 6,
    ),
    "train and val arrays": (
        lambda r: "npz:" + str(npz(r, train_images=IMAGES[:24], train_labels=LABELS[:24], val_images=IMAGES[24:],
                                   val_labels=LABELS[24:])), 24, 6,
    ),
    "train and valid arrays": (
        lambda r: "npz:" + str(npz(r, X_train=IMAGES[:24], y_train=LABELS[:24], X_valid=IMAGES[24:],
                                   y_valid=LABELS[24:])), 24, 6,
    ),
    "a CSV of paths and labels": (lambda r: f"csv:{table(r, listed())}", 24, 6),
    "a CSV with a split": (lambda r: f"csv:{table(r, listed(split=True), 'path,class,split')}", 24, 6),
    "a CSV with semicolons": (
        lambda r: f"csv:{table(r, [row.replace(',', ';') for row in listed()], 'image;label')}", 24, 6,
    ),
    "a CSV with tabs and blanks": (
        lambda r: "csv:" + str(table(r, ["", *(row.replace(",", " \t ") for row in listed())], " path\tlabel ")), 24, 6,
    ),
    "a CSV with blanks": (
        lambda r: f"csv:{table(r, [row.replace(',', ', ') for row in listed(split=True)], 'path, class, part')}", 24, 6,
    ),
    "a CSV with capitals": (lambda r: f"csv:{table(r, listed(split=True), 'Image,Label,Split')}", 24, 6),
    "a CSV with a split of train alone": (
        lambda r: f"csv:{table(r, [f'{row},train' for row in listed()], 'image,label,split')}", 24, 6,
    ),
    "a CSV with names of its own": (lambda r: f"csv:{table(r, listed(), 'where,what')}?image=where&label=what", 24, 6),
}  # fmt: skip


@pytest.mark.parametrize("case", GOOD)
def test_it_loads(case, tmp_path):
    make, train, test = GOOD[case]
    dataset = load(make(tmp_path / "set"))
    assert (len(dataset.train.labels), len(dataset.test.labels)) == (train, test)
    assert sorted(np.bincount(dataset.test.labels)) == [test // 3] * 3
    assert dataset.num_classes == 3


def test_the_last_fifth_is_for_the_test(tmp_path):
    dataset = load(f"npz:{npz(tmp_path / 'set', images=IMAGES, labels=LABELS)}")
    mine = IMAGES[LABELS == 1]
    assert np.array_equal(dataset.test.images[dataset.test.labels == 1][..., 0], mine[-2:])
    assert dataset.notes == ("split here: the last fifth of every class is for the test",)
    listed_too = load(f"csv:{table(tmp_path / 'list', listed())}")
    folders = load(f"folder:{tmp_path / 'list'}")
    assert listed_too.fingerprint() == folders.fingerprint()
    assert listed_too.notes == folders.notes == dataset.notes


def test_where_there_is_a_test_val_is_not_read(tmp_path):
    root = write_folder(tmp_path / "set")
    shutil.copytree(root / "test", root / "val")
    assert load(f"folder:{root}").notes == ("not read: val/",)


BROKEN = {
    "class folders": (lambda r: f"folder:{bare(r)}", "bus/09.png", "1 (bus/09.png); split here"),
    "val": (lambda r: f"folder:{with_val(r)}", "val/car/1.png", "1 (val/car/1.png)"),
    "train alone": (
        lambda r: f"folder:{(shutil.rmtree(with_val(r) / 'val'), r)[1]}", "train/car/1.png",
        "1 (train/car/1.png); split here",
    ),
    "csv, and one that is not there": (
        lambda r: f"csv:{table(r, [*listed(), 'bus/away.png,bus'])}", "car/00.png",
        "2 (bus/away.png, car/00.png); split here",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_image_is_left_out_and_counted(case, tmp_path):
    make, file, counted = BROKEN[case]
    spec, said = make(tmp_path / "set"), []
    (tmp_path / "set" / file).write_bytes((tmp_path / "set" / file).read_bytes()[:60])
    dataset = load(spec, say=said.append)
    assert dataset.notes[0].startswith(f"left out: broken images {counted}")
    assert said == [f"{spec}: {dataset.notes[0]}"]


def test_an_image_that_is_listed_twice_is_there_once(tmp_path):
    rows = [*listed(split=True), "./bus/00.png,bus,train", "car/01.png,car,val"]
    dataset = load(f"csv:{table(tmp_path / 'set', rows, 'image,label,split')}")
    assert (len(dataset.train), len(dataset.test)) == (24, 6)
    assert dataset.notes == ("left out: images that are there twice 2 (./bus/00.png, car/01.png)",)


def mostly_broken(root):
    bare(root)
    for file in list(root.rglob("*.png"))[:20]:
        file.write_bytes(b"no image")
    return f"folder:{root}"


def one_class_broken(root):
    bare(root)
    for file in (root / "car").iterdir():
        file.write_bytes(b"no image")
    return f"folder:{root}"


def lonely(root):
    bare(root)
    for file in sorted((root / "bus").iterdir())[1:]:
        file.unlink()
    return f"folder:{root}"


BAD = {
    "mostly broken": (mostly_broken, "20 of 30 images are of no use"),
    "a class of broken images": (one_class_broken, "no whole image of 'car' in train, should be at least one"),
    "one image of a class": (lonely, "bus has one image, should have at least two, or train/ and test/ around it"),
    "val without train": (
        lambda r: f"folder:{(shutil.rmtree(with_val(r) / 'train'), r)[1]}", "has val/ but no train/, should have both",
    ),
    "arrays by other names": (lambda r: f"npz:{npz(r, a=IMAGES, b=LABELS)}", "or images and labels"),
    "one number a sample": (
        lambda r: f"npz:{npz(r, x=LABELS, y=LABELS)}", r"x is int64 of shape \(30,\), .* uint8 of shape \(N, H, W\)",
    ),
    "too few labels": (lambda r: f"npz:{npz(r, x=IMAGES, y=LABELS[:9])}", "30 images and 9 labels, should be as many"),
    "a label only in test": (
        lambda r: f"npz:{npz(r, **{**SPLIT, 'y_test': np.full(6, 7)})}", "label 7 is in test but not in train",
    ),
    "real numbers": (
        lambda r: f"npz:{npz(r, x=IMAGES[..., None] / 128 - 1, y=LABELS)}",
        r"x is float64 of shape \(30, 12, 12, 1\) and has numbers from -1 to 0.992188, should be uint8 or from 0 to 1",
    ),
    "a CSV without labels": (
        lambda r: f"csv:{table(r, listed(), 'image,what')}",
        r"no column label or class, should be one of image, what; add \?label=what$",
    ),
    "a CSV without labels, with an option": (
        lambda r: f"csv:{table(r, listed(), 'where,what')}?image=where",
        "no column label or class, should be one of where, what; add &label=what$",
    ),
    "a CSV without the column that was named": (
        lambda r: f"csv:{table(r, listed(), 'where,what')}?image=here", "no column here, .* what, named by .image",
    ),
    "a CSV of paths alone": (
        lambda r: f"csv:{table(r, ['bus/00.png'], 'image')}", "no column label or class beside image, should have one",
    ),
    "an empty CSV": (lambda r: f"csv:{table(r, [], '')}", "is empty, should begin with a header such as image,label"),
    "a header alone": (
        lambda r: f"csv:{table(r, [])}", "has the columns image, label and no row, should have a row for every image",
    ),
    "a CSV with one image of a class": (
        lambda r: f"csv:{table(r, listed()[:11])}", "class 'car' has one image, should have at least two, or a column",
    ),
    "a CSV with a short row": (lambda r: f"csv:{table(r, ['', 'bus/00.png'])}", "line 3 has no label"),
    "a CSV with a gap": (lambda r: f"csv:{table(r, ['bus/00.png,'])}", "line 2 has no label, should have both"),
    "a CSV with a strange split": (
        lambda r: f"csv:{table(r, ['bus/00.png,bus,later'], 'image,label,split')}", "line 2 has split 'later'",
    ),
    "a CSV of one class": (lambda r: f"csv:{table(r, listed()[:5])}", "all rows are of class 'bus', should have at"),
    "a CSV that lies elsewhere": (
        lambda r: f"csv:{table(r, ['x/1.png,a', 'x/2.png,a', 'x/3.png,b', 'x/4.png,b'])}", "nor any other, paths",
    ),
    "a CSV with two columns of a name": (
        lambda r: f"csv:{table(r, listed(split=True), 'image,label,label')}", "has 2 columns label, should have one of",
    ),
    "a CSV without a header": (
        lambda r: f"csv:{table(r, listed()[1:], listed()[0])}", "begins with bus/00.png, bus, should begin with a head",
    ),
    "a CSV with an image in two classes": (
        lambda r: f"csv:{table(r, [*listed(), './bus/00.png,car'])}",
        "line 32 has ./bus/00.png as car, line 2 as bus, should be of one class",
    ),
    "a CSV of names that no file can have": (
        lambda r: f"csv:{table(r, [f'{300 * c}.png,{c.lower()}' for c in 'aAbB'])}", "nor any other, paths should",
    ),
    "no CSV": (lambda r: f"csv:{bare(r)}", "set is a folder, should be a CSV file with a row for every image"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_it_is_refused_with_a_sentence(case, tmp_path):
    make, why = BAD[case]
    with pytest.raises(DataError, match=why) as raised:
        load(make(tmp_path / "set"))
    assert_one_sentence(raised)
