import json
import os
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from mpt.data import DataError, load

from .samples import (
    CLASSES,
    FEATURES,
    assert_one_sentence,
    encode,
    make_table,
    smooth_image,
    write_parquet,
)

pytest.importorskip("pyarrow", reason="parquet: needs pyarrow")
pytest.importorskip("PIL", reason="parquet: needs Pillow")

SHARED = Path(os.environ.get("MPT_SHARED_DATA", Path(__file__).parents[3] / "shared" / "data"))


def test_images_labels_and_names_come_back(tmp_path):
    dataset = load(write_parquet(tmp_path / "roads", make_table(kind="PNG")))
    assert (dataset.name, dataset.classes) == ("roads", CLASSES)
    assert dataset.train.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    expected = np.stack([smooth_image(c, i) for c in range(3) for i in range(3)])
    assert np.array_equal(dataset.train.images, expected)
    assert dataset.test.counts(3).tolist() == [2, 2, 2]
    assert np.abs(dataset.test.images[:2].astype(int) - expected[:2]).mean() < 4


def test_another_label_column_has_its_values_for_names(tmp_path):
    dataset = load(write_parquet(tmp_path / "roads") + "?label=model")
    assert dataset.classes == ("5", "15", "25")
    assert dataset.train.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_labels_of_text(tmp_path):
    train, test = (
        make_table(n, label=[CLASSES[-1 - c] for c in range(3) for _ in range(n)], features=None) for n in (3, 2)
    )
    dataset = load(write_parquet(tmp_path / "roads", train, test))
    assert dataset.classes == CLASSES
    assert dataset.train.labels.tolist() == [2, 2, 2, 1, 1, 1, 0, 0, 0]


def test_columns_of_other_names_are_found_by_their_kind(tmp_path):
    features = {"img": {"_type": "Image"}, "coarse": FEATURES["label"], "model": FEATURES["model"]}
    names = ["img", "coarse", "model"]
    tables = []
    for n in (3, 2):
        table = make_table(n).rename_columns(names)
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        tables.append(table.replace_schema_metadata(metadata))
    dataset = load(write_parquet(tmp_path / "roads", *tables))
    assert dataset.classes == CLASSES
    assert load(write_parquet(tmp_path / "roads", *tables) + "?image=img&label=model").num_classes == 3


def test_a_class_may_have_no_samples_and_that_can_be_asked(tmp_path):
    features = FEATURES | {"label": {"names": [*CLASSES, "tram"], "_type": "ClassLabel"}}
    dataset = load(write_parquet(tmp_path / "x", make_table(features=features), make_table(2, features=features)))
    assert dataset.train.counts(4).tolist() == [3, 3, 3, 0]
    with pytest.raises(DataError, match="class 'tram': 0 train samples in x, should be at least 1"):
        dataset.require("tram", 1)


def bad(**columns):
    return lambda prefix: write_parquet(prefix, make_table(**columns))


def removed(which):
    def make(prefix):
        spec = write_parquet(prefix)
        Path(f"{prefix}-{which}.parquet").unlink()
        return spec

    return make


def damaged(change):
    def make(prefix):
        spec = write_parquet(prefix)
        path = Path(f"{prefix}-train.parquet")
        path.write_bytes(change(path.read_bytes()))
        return spec

    return make


def images(**replaced):
    rows = [{"bytes": encode(smooth_image(0, 0)), "path": None} for _ in range(9)]
    for row, value in replaced.items():
        rows[int(row[1:])] = {"bytes": value, "path": "a.png"}
    return rows


def other_names(prefix):
    features = FEATURES | {"label": {"names": ["bus", "lorry", "car"], "_type": "ClassLabel"}}
    return write_parquet(prefix, test=make_table(features=features))


def no_features(prefix):
    table = make_table().replace_schema_metadata({"huggingface": "{}"})
    return write_parquet(prefix, table)


def new_value_in_test(prefix):
    return write_parquet(prefix, make_table(features=None), make_table(2, features=None, label=[0, 0, 1, 1, 7, 2]))


CASES = {
    "no train": (removed("train"), "no file .*-train.parquet, should be there"),
    "an empty file": (damaged(lambda _: b""), "-train.parquet cannot be read, should be a whole Parquet file"),
    "half a file": (damaged(lambda data: data[: len(data) // 2]), "cannot be read, should be a whole Parquet file"),
    "a text": (damaged(lambda _: b"PAR1 but not really PAR1"), "cannot be read, should be a whole Parquet file"),
    "an altered page": (
        damaged(lambda data: data[:4] + b"\xff" * 2000 + data[2004:]),
        "should be a whole Parquet file",
    ),
    "no label column": (
        bad(label=None, features={}),
        "no column 'label', should be there or be named by .label= as one of image, model",
    ),
    "no image column": (bad(image=None, features={}), "no column 'image', should be there or be named by .image= as"),
    "a label that is not asked for rightly": (
        lambda prefix: write_parquet(prefix) + "?label=body",
        "no column 'body', should be one of image, label, model",
    ),
    "a label column only in train": (
        lambda prefix: write_parquet(prefix, test=make_table(2, label=None)),
        "no column 'label' in test, should be there as in train",
    ),
    "real labels": (bad(label=[0.5] * 9), "row 0 of train has label 0.5, should be 0 to 2 for the 3 class names"),
    "a missing label": (
        bad(label=[None] + [1] * 8),
        r"column 'label' of train: entry 0 is missing \(None\), should be",
    ),
    "several labels": (bad(label=[[1, 2]] * 9), r"column 'label' of train is of shape \(9, 2\), should be \(9,\), one"),
    "dates for labels": (
        bad(label=[datetime(2024, 1, 1)] * 9),
        "column 'label' of train: entry 0 is of type datetime, should be a text",
    ),
    "one class": (bad(label=[0] * 9, features=None), "row 2 of test has label 1, should be one of those in train"),
    "one class of one file": (
        lambda prefix: alone(prefix, make_table(label=["a"] * 9, features=None)),
        "all images are of class 'a', should have at least 2 classes",
    ),
    "one image of a class": (
        lambda prefix: alone(prefix, make_table(1)),
        "class 'bus' has one sample, should have at least two, or rows for",
    ),
    "a label of -1": (bad(label=[0, 1, -1, 2, 0, 0, 0, 0, 0]), "row 2 of train has label -1, should be 0 to 2"),
    "a label too high": (bad(label=[0, 3, 1, 2, 0, 0, 0, 0, 0]), "row 1 of train has label 3, should be 0 to 2"),
    "numbers for images": (bad(image=[1] * 9), "row 0 of train has no image in column 'image', should be a struct"),
    "no image at all": (bad(image=[None] * 9), "9 of 15 images are of no use"),
    "no rows": (lambda prefix: write_parquet(prefix, test=make_table(2).slice(0, 0)), "no rows in test, should"),
    "other class names in test": (other_names, "the class names of 'label' differ between train and test, should be"),
    "metadata without features": (no_features, "has metadata 'huggingface' without info.features, should be as"),
    "a class only in test": (new_value_in_test, "row 4 of test has label 7, should be one of those in train"),
}


def test_broken_images_are_left_out_and_counted(tmp_path):
    broken = images(r4=encode(smooth_image(0, 0), "JPEG")[:300], r5=b"hello", r7=None)
    dataset = load(bad(image=broken)(tmp_path / "roads"))
    assert dataset.notes == ("left out: broken images 3 (row 4 of train, row 5 of train, row 7 of train)",)
    assert len(dataset.train.labels) == 6


def test_a_broken_image_beside_a_class_without_samples(tmp_path):
    features = FEATURES | {"label": {"names": [*CLASSES, "tram"], "_type": "ClassLabel"}}
    train, test = make_table(features=features, image=images(r4=b"")), make_table(2, features=features)
    dataset = load(write_parquet(tmp_path / "x", train, test))
    assert dataset.train.counts(4).tolist() == [3, 2, 3, 0]


def test_images_may_be_files_beside_the_table(tmp_path):
    expected = load(write_parquet(tmp_path / "bytes", make_table(kind="PNG")))
    rows = []
    for i in range(9):
        (tmp_path / f"{i}.png").write_bytes(encode(smooth_image(i // 3, i % 3)))
        rows.append({"bytes": None, "path": str(tmp_path / f"{i}.png") if i % 2 else f"{i}.png"})
    found = load(write_parquet(tmp_path / "paths", make_table(image=rows)))
    assert found.notes == ()
    assert np.array_equal(found.train.images, expected.train.images)


def categories(values):
    import pyarrow as pa

    return pa.array(values).dictionary_encode()


LABELS = {
    "texts": (list, ["a", "b", "c"]),
    "bytes": (list, [b"a", b"b", b"c"]),
    "categories": (categories, ["a", "b", "c"]),
    "real numbers": (list, [1.0, 2.0, 3.0]),
    "truth values": (list, [False, True, True]),
}


@pytest.mark.parametrize("case", LABELS)
def test_labels_of_other_types(case, tmp_path):
    made, names = LABELS[case]
    train, test = (make_table(n, features=None, label=made([name for name in names for _ in range(n)])) for n in (3, 2))
    dataset = load(write_parquet(tmp_path / "x", train, test))
    expected = {"real numbers": ("1", "2", "3"), "truth values": ("False", "True")}.get(case, ("a", "b", "c"))
    assert dataset.classes == expected
    assert dataset.train.labels.tolist() == [min(c, len(expected) - 1) for c in range(3) for _ in range(3)]


def alone(prefix, table):
    spec = write_parquet(prefix, table)
    Path(f"{prefix}-test.parquet").unlink()
    return spec


@pytest.mark.parametrize("form", ["", "-train.parquet", ".parquet"])
def test_without_a_test_part_it_is_split(form, tmp_path):
    spec = alone(tmp_path / "x", make_table(5))
    if form == ".parquet":
        (tmp_path / "x-train.parquet").rename(tmp_path / "x.parquet")
    dataset = load(spec + form)
    assert dataset.notes == ("split here: the last fifth of every class is for the test",)
    assert (dataset.name, len(dataset.train), dataset.test.labels.tolist()) == ("x", 12, [0, 1, 2])
    assert np.abs(dataset.test.images[0].astype(int) - smooth_image(0, 4)).mean() < 4


def test_a_part_for_validation_is_the_test_where_there_is_no_other(tmp_path):
    spec = write_parquet(tmp_path / "x")
    expected = load(spec)
    (tmp_path / "x-test.parquet").rename(tmp_path / "x-validation.parquet")
    assert load(spec).fingerprint() == expected.fingerprint()


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_refused_with_a_sentence(case, tmp_path):
    make, message = CASES[case]
    spec = make(tmp_path / "roads")
    with pytest.raises(DataError, match=message) as raised:
        load(spec)
    assert_one_sentence(raised)
    assert str(raised.value).startswith("parquet:")


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"the real images of {SHARED} are not here")
@pytest.mark.parametrize(
    ("name", "side", "counts", "rare"),
    [
        ("cars-sedansize", 64, [574, 586, 344, 152], "subcompact"),
        pytest.param("cars-bodytype", 64, [576] * 6 + [431], "van", marks=pytest.mark.slow),
        pytest.param("cifar10", 32, [1000] * 10, "truck", marks=pytest.mark.slow),
    ],
)
def test_real_images(name, side, counts, rare):
    dataset = load(f"parquet:{SHARED / name}")
    assert dataset.image_shape == (side, side, 3)
    assert dataset.train.counts(dataset.num_classes).tolist() == counts
    assert dataset.require(rare, 100) == counts[dataset.class_index(rare)]
