import csv
import io
import shutil

import numpy as np
import pytest

from mpt.data import DataError, load

from .samples import assert_one_sentence, encode, smooth_image

pytest.importorskip("PIL", reason="car1000: needs Pillow")

TYPES = ("SUV", "sedan", "van")
SIZES = ("micro", "compact", "large")
HEADER = ("path", "type", "size", "model", "split")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MPT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write(root, change=lambda rows: rows, encoding="utf-8"):
    """Per type, size and split two JPEG files of different shapes."""
    rows = []
    for split in ("train", "test"):
        for t, kind in enumerate(TYPES):
            for s, size in enumerate(SIZES):
                for i in range(2):
                    path = f"images/{kind}/{split} {size}{i}.jpg"
                    file = root / path
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(encode(smooth_image(t, 3 * s + i, (60 + 9 * i, 40)), "JPEG", quality=95))
                    rows.append([path, kind, size, f"model {s}", split])
    text = io.StringIO()
    csv.writer(text).writerows([HEADER, *(change(rows) or rows)])
    (root / "labels.csv").write_text(text.getvalue(), encoding=encoding)
    return f"car1000:{root}"


def quietly(spec, **options):
    said = []
    return load(spec, say=said.append, **options), said


def expected(root, rows, side):
    from PIL import Image

    images = []
    for row in rows:
        with Image.open(root / row[0]) as image:
            images.append(np.asarray(image.resize((side, side), Image.Resampling.BILINEAR)).tobytes())
    return sorted(images)


@pytest.mark.parametrize(
    ("level", "classes", "column"),
    [("", ("sedan", "suv", "van"), 1), ("?level=fine", ("compact", "large", "micro"), 2)],
)
def test_classes_are_types_or_the_sizes_of_sedans(level, classes, column, tmp_path):
    rows = []
    dataset, said = quietly(write(tmp_path / "cars", rows.extend) + level, image_size=28)
    assert (dataset.name, dataset.classes, dataset.image_shape) == ("cars", classes, (28, 28, 3))
    assert dataset.train.vehicles is None
    for split, name in ((dataset.train, "train"), (dataset.test, "test")):
        for c, label in enumerate(classes):
            mine = [r for r in rows if r[4] == name and r[column].lower() == label and (not level or r[1] == "sedan")]
            assert len(mine) == (2 if level else 6)
            images = split.images[split.labels == c]
            assert sorted(image.tobytes() for image in images) == expected(tmp_path / "cars", mine, 28)
    assert said == (
        [f"{'car1000:' + str(tmp_path / 'cars') + level}: left out: types that are not sedan 2 (suv, van; 24 samples)"]
        if level
        else []
    )


def with_row(*row):
    return lambda rows: rows.append(list(row))


def at(i, column, value):
    def change(rows):
        rows[i][column] = value

    return change


AWKWARD = {
    "an absent image": (at(0, 0, "images/gone.jpg"), "absent images 1 (images/gone.jpg)", 17),
    "no path": (at(0, 0, " "), "rows without a path 1 (line 2)", 17),
    "no type": (at(0, 1, ""), "rows without a type 1 (images/SUV/train micro0.jpg)", 17),
    "another split": (at(0, 4, "val"), "rows of a split that is neither train nor test 1 (val)", 17),
    "no split": (at(0, 4, ""), "rows of a split that is neither train nor test 1 (none)", 17),
    "a short row": (with_row("images/SUV/train micro0.jpg"), "neither train nor test 1 (none)", 18),
    "the same image in test": (
        with_row("images/SUV/train micro0.jpg", "van", "micro", "", "test"),
        "paths that are there twice 1 (images/SUV/train micro0.jpg)",
        18,
    ),
    "the same image in another spelling": (
        with_row("./images//SUV\\train micro0.jpg", "van", "micro", "", "test"),
        "paths that are there twice 1 (images/SUV/train micro0.jpg)",
        18,
    ),
    "an image elsewhere": (
        with_row("images/../../x.jpg", "van", "", "", "train"),
        "outside the folder 1 (../x.jpg)",
        18,
    ),
    "an image by its whole path": (with_row("/etc/passwd", "van", "", "", "train"), "folder 1 (/etc/passwd)", 18),
    "a type of one split": (
        with_row("images/extra.jpg", "tank", "", "", "train"),
        "no samples in both train and test: tank",
        18,
    ),
}


@pytest.mark.parametrize("case", AWKWARD)
def test_awkward_rows_are_left_out_and_said(case, tmp_path):
    change, clause, number = AWKWARD[case]
    spec = write(tmp_path, change)
    (tmp_path / "images" / "extra.jpg").write_bytes(encode(smooth_image(0, 0), "JPEG"))
    dataset, (said,) = quietly(spec)
    assert clause in said
    assert len(dataset.train) == number


def test_broken_images_are_left_out_and_others_stand_in_for_them(tmp_path):
    spec = write(tmp_path)
    for i in range(2):
        (tmp_path / "images" / "van" / f"train micro{i}.jpg").write_bytes(b"\xff\xd8 broken")
    dataset, (said,) = quietly(spec)
    assert dataset.train.counts(3).tolist() == [6, 6, 4]
    assert "left out: broken images 2 (images/van/train micro" in said
    dataset, _ = quietly(spec, per_class=4)
    assert dataset.train.counts(3).tolist() == [4, 4, 4]


def test_what_spreadsheets_do_to_a_file_does_no_harm(tmp_path):
    def untidy(rows):
        for row in rows:
            row[:] = [row[0].replace("/", "\\"), f" {row[1].upper()} ", row[2], row[3], row[4].title()]
        rows.append([])

    plain, _ = quietly(write(tmp_path))
    dataset, said = quietly(write(tmp_path, untidy, "utf-8-sig"))
    assert said == []
    assert dataset.classes == plain.classes
    assert {i.tobytes() for i in dataset.train.images} == {i.tobytes() for i in plain.train.images}


def test_images_are_kept_until_one_changes(tmp_path, cache):
    spec = write(tmp_path / "cars")
    first, _ = quietly(spec)
    again, _ = quietly(spec)
    assert len(list(cache.iterdir())) == 1
    assert again.fingerprint() == first.fingerprint()
    (tmp_path / "cars" / "images" / "van" / "train micro0.jpg").unlink()
    later, said = quietly(spec)
    assert len(later.train) == 17
    assert "absent images 1 (" in said[0]


def gone(root):
    shutil.rmtree(root / "images" / "SUV")
    shutil.rmtree(root / "images" / "van")


def text(content):
    return lambda root: (root / "labels.csv").write_bytes(content)


FILES = {
    "no root": (shutil.rmtree, "no file .*labels.csv, should be a CSV file with path, type, split"),
    "most images gone": (gone, "24 of 36 images are absent .first images/SUV/"),
    "no size for fine": (text(b"path,type,split\n"), "no column 'size' in .*, should be beside .*: path, type, split"),
    "semicolons": (text(b"path;type;size;split\na;b;c;train\n"), "no column 'path' in .*: path;type;size;split"),
    "nothing": (text(b""), "no column 'path' .*none"),
    "no rows": (text(b"path,type,size,split\n"), "no rows in .*labels.csv"),
    "no text": (text(b"path,type,size,split\n\xff\xfe,,,\n"), "labels.csv cannot be read .*UTF-8"),
    "an open quotation": (text(b'path,type,size,split\n"a,b,c,train\n'), "labels.csv cannot be read"),
    "no sedans": (text(b"path,type,size,split\nx.jpg,van,micro,train\n"), "no rows of a class in .*should have some"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_folder_that_is_not_whole_is_one_sentence(case, tmp_path):
    change, message = FILES[case]
    spec = write(tmp_path / "cars")
    change(tmp_path / "cars")
    with pytest.raises(DataError, match=message) as raised:
        load(spec + ("?level=fine" if "fine" in case or "sedans" in case else ""))
    assert_one_sentence(raised)


def test_the_level_is_one_of_two(tmp_path):
    with pytest.raises(DataError, match="level is 'model', should be coarse"):
        load(write(tmp_path) + "?level=model")
