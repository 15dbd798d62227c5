import json
import os
import shutil

import numpy as np
import pytest

from mpt.data import DataError, jsonlist, load
from mpt.data import gather as gathering
from mpt.data.jsonlist import json_list
from mpt.data.nuimages import box_within

from .nuimages_folder import OBJECTS, SIZE, VEHICLES, Folder, token
from .samples import assert_one_sentence, encode

pytest.importorskip("PIL", reason="nuimages: needs Pillow")

TRAIN, VAL = "v1.0-train", "v1.0-val"
CLASSES = ("car", "truck", "bus", "pedestrian")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MPT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "nuimages")


def quietly(spec, **options):
    """The dataset and what was said."""
    said = []
    return load(spec, say=said.append, **options), said


def expected(folder, version, i, category, side, box=None):
    from PIL import Image

    with Image.open(folder.file(version, i)) as image:
        crop = image.convert("RGB").crop(box or OBJECTS[category])
        return np.asarray(crop.resize((side, side), Image.Resampling.BILINEAR))


def same_images(images, others):
    return sorted(image.tobytes() for image in images) == sorted(image.tobytes() for image in others)


def test_every_box_is_cut_from_its_image_and_labelled_by_the_table(folder):
    dataset, said = quietly(folder.write(), image_size=24)
    assert (dataset.name, dataset.classes) == ("nuimages", CLASSES)
    assert dataset.image_shape == (24, 24, 3)
    assert dataset.train.counts(4).tolist() == [9] * 4
    assert dataset.test.counts(4).tolist() == [4] * 4
    for c, category in enumerate(OBJECTS):
        for split, version, images in ((dataset.train, TRAIN, 9), (dataset.test, VAL, 4)):
            cut = [expected(folder, version, i, category, 24) for i in range(images)]
            assert same_images(split.images[split.labels == c], cut)
    assert said == [
        f"nuimages:{folder.root}: no category of the groups' names: vehicle.motorcycle, vehicle.bicycle, "
        "human.pedestrian.child and 4 more; no samples in both train and test: motorcycle, bicycle, barrier and 1 more"
    ]


def test_the_vehicle_is_that_of_the_log(folder):
    dataset, _ = quietly(folder.write())
    assert set(dataset.train.vehicles) == set(VEHICLES)
    for i, vehicle in enumerate(VEHICLES):
        mine = dataset.train.images[dataset.train.vehicles == vehicle]
        cut = [expected(folder, TRAIN, k, c, 32) for k in range(i, 9, 3) for c in OBJECTS]
        assert same_images(mine, cut)


def test_three_broken_images_and_two_dangling_boxes_are_left_out_and_said(folder):
    whole = folder.file(TRAIN, 0).read_bytes()
    folder.file(TRAIN, 0).write_bytes(whole[: len(whole) // 2])
    folder.file(TRAIN, 1).write_bytes(b"<html>404</html>")
    folder.file(VAL, 0).write_bytes(b"")
    boxes = folder.tables[TRAIN]["object_ann"]
    boxes[-1]["sample_data_token"] = token("gone")
    boxes[-2]["category_token"] = token("gone")
    dataset, said = quietly(folder.write())
    assert dataset.train.counts(4).tolist() == [7, 7, 6, 6]
    assert dataset.test.counts(4).tolist() == [3, 3, 3, 3]
    assert len(said) == 1
    assert "boxes with a dangling token 2 (" in said[0]
    assert f"{boxes[-1]['token']}: sample_data_token" in said[0]
    assert f"{boxes[-2]['token']}: category_token" in said[0]
    assert "broken images 3 (samples/CAM_" in said[0]
    assert "; 12 samples)" in said[0]
    assert dataset.notes == (said[0].removeprefix(f"nuimages:{folder.root}: "),)


AWKWARD = {
    "no sample": (lambda f: f.tables[TRAIN]["sample"].pop(0), "boxes with a dangling token 4 ("),
    "no log": (lambda f: f.row(TRAIN, "sample", 0).update(log_token="x"), ": log_token"),
    "a log without a vehicle": (
        lambda f: f.row(TRAIN, "log", 0).update(vehicle=""),
        "a dangling token 12 (",
    ),
    "a category that is a list": (
        lambda f: f.row(TRAIN, "object_ann", 0).update(category_token=["x"]),
        "boxes with a dangling token 1 (",
    ),
    "a row that is no object": (
        lambda f: f.tables[TRAIN]["object_ann"].append(None),
        "boxes with a dangling token 1 (row 37: category_token)",
    ),
    "an annotation twice": (
        lambda f: f.tables[TRAIN]["object_ann"].append(f.row(TRAIN, "object_ann", 0)),
        "annotations that are there twice 1 (",
    ),
    "an image without a width": (lambda f: f.row(TRAIN, "sample_data", 0).pop("width"), ": sample_data_token"),
    "no area": (lambda f: f.row(TRAIN, "object_ann", 0).update(bbox=[5, 5, 5, 90]), "boxes without area 1"),
    "no box": (lambda f: f.row(TRAIN, "object_ann", 0).update(bbox=None), "boxes without area 1"),
    "outside the image": (lambda f: f.row(TRAIN, "object_ann", 0).update(bbox=[400, 0, 480, 90]), "without area 1"),
    "no number": (lambda f: f.row(TRAIN, "object_ann", 0).update(bbox=[0, 0, float("nan"), 90]), "without area 1"),
    "a small box": (lambda f: f.row(TRAIN, "object_ann", 0).update(bbox=[5, 5, 90, 36]), "boxes under 32 pixels 1"),
    "a box mostly outside": (
        lambda f: f.row(TRAIN, "object_ann", 0).update(bbox=[300, 5, 390, 90]),
        "boxes under 32 pixels 1",
    ),
    "a category in no class": (
        lambda f: f.row(TRAIN, "object_ann", 0).update(category_token=token("vehicle.trailer")),
        "categories in no class 1 (vehicle.trailer)",
    ),
    "an absent image": (lambda f: f.file(TRAIN, 0).unlink(), "absent images 1 (samples/CAM_FRONT/n003-2018"),
    "an image that a link leads to nothing": (
        lambda f: (f.file(TRAIN, 0).unlink(), f.file(TRAIN, 0).symlink_to("nowhere")),
        "absent images 1 (",
    ),
    "an image of another size": (
        lambda f: f.file(TRAIN, 0).write_bytes(encode(np.zeros((90, 160, 3), np.uint8), "JPEG")),
        "images of another size than their table says 1 (samples/CAM_FRONT/n003-2018",
    ),
    "an image outside samples": (
        lambda f: f.row(TRAIN, "sample_data", 0).update(filename="../secret.jpg"),
        "absent images 1 (../secret.jpg; 4 samples)",
    ),
}


@pytest.mark.parametrize("case", AWKWARD)
def test_awkward_rows_are_left_out_and_said(case, folder):
    change, clause = AWKWARD[case]
    change(folder)
    dataset, said = quietly(folder.write())
    assert clause in said[0]
    assert len(dataset.test) == 16
    removed = {"no sample": 4, "no log": 4, "a log": 12, "an image": 4, "an absent": 4}
    assert len(dataset.train) == 36 - next((n for start, n in removed.items() if case.startswith(start)), 0) - (
        case.startswith(("a category", "no area", "no box", "outside", "no number", "a small", "a box"))
    )


def test_a_box_that_reaches_beyond_the_image_is_cut_at_its_edge(folder):
    folder.row(TRAIN, "object_ann", 0)["bbox"] = [-20.5, -3, 90.2, 60]
    dataset, _ = quietly(folder.write())
    cut = expected(folder, TRAIN, 0, "vehicle.car", 32, (0, 0, 91, 60))
    assert any(np.array_equal(cut, image) for image in dataset.train.images[dataset.train.labels == 0])
    assert box_within([-20.5, -3, 1e300, 60], *SIZE) is None
    assert box_within([0, 0, 10**400, 60], *SIZE) is None


def test_min_side_is_an_option(folder):
    dataset, said = quietly(folder.write() + "?min_side=60")
    assert dataset.classes == ("truck", "bus")
    assert "boxes under 60 pixels 26" in said[0]


def test_the_table_of_classes_is_the_users(folder, tmp_path):
    (tmp_path / "my.toml").write_text('person = ["human"]\n"motor vehicle" = ["vehicle.truck", "vehicle.bus.bendy"]\n')
    dataset, said = quietly(f"{folder.write()}?groups={tmp_path / 'my.toml'}")
    assert dataset.classes == ("person", "motor vehicle")
    assert dataset.train.counts(2).tolist() == [9, 18]
    assert "categories in no class 1 (vehicle.car; 13 samples)" in said[0]
    assert "groups" not in said[0].split("?groups", 1)[1].split(": ", 1)[1]


GROUPS = {
    "no file": (None, "groups: .*my.toml cannot be read .No such file"),
    "no TOML": ("car = [", "groups: .*my.toml cannot be read .*should be TOML"),
    "no list": ('car = "vehicle.car"\nbus = ["vehicle.bus"]', "groups: car in .* should be a list of categories"),
    "an empty list": ('car = []\nbus = ["vehicle.bus"]', "groups: car in .* should be a list of categories"),
    "one class": ('car = ["vehicle.car"]', "has 1 classes, should have at least 2"),
    "a category twice": ('car = ["vehicle"]\nbus = ["vehicle.bus"]', "'vehicle.bus' of bus and 'vehicle' of car"),
    "categories of another set": ('car = ["auto"]\nbus = ["omnibus"]', "no category of .* is in a class of the groups"),
}


@pytest.mark.parametrize("case", GROUPS)
def test_a_table_of_classes_that_cannot_be_used_is_one_sentence(case, folder, tmp_path):
    text, message = GROUPS[case]
    if text is not None:
        (tmp_path / "my.toml").write_text(text)
    with pytest.raises(DataError, match=message) as raised:
        load(f"{folder.write()}?groups={tmp_path / 'my.toml'}")
    assert_one_sentence(raised)


def test_one_version_is_split_by_logs(tmp_path):
    folder = Folder(tmp_path / "mini", [("v1.0-mini", 12)])
    spec = folder.write()
    dataset, _ = quietly(spec)
    assert len(dataset.train) + len(dataset.test) == 48
    assert not set(dataset.train.vehicles) & set(dataset.test.vehicles), "in this folder each log has its own vehicle"
    again, _ = quietly(f"{spec}?train=v1.0-mini&test=v1.0-mini")
    assert again.fingerprint() == dataset.fingerprint()


def test_the_limit_holds_before_anything_is_read_and_a_smaller_choice_is_part_of_a_larger(folder, monkeypatch):
    spec = folder.write()
    read = []
    cut = gathering._cut
    monkeypatch.setattr(gathering, "_cut", lambda *a: read.append(a[-1][0].file) or cut(*a))
    few, _ = quietly(spec + "?test_per_class=2", per_class=2)
    assert few.train.counts(4).tolist() == few.test.counts(4).tolist() == [2, 2, 2, 2]
    assert len(set(read)) <= 16
    assert len(read) == len(set(read)), "no file is read twice"
    more, _ = quietly(spec, per_class=5)
    for c in range(4):
        larger = {image.tobytes() for image in more.train.images[more.train.labels == c]}
        assert len(larger) == 5
        assert {image.tobytes() for image in few.train.images[few.train.labels == c]} < larger
    every, _ = quietly(spec)
    assert every.train.counts(4).tolist() == [9] * 4


def test_others_stand_in_for_broken_images(folder):
    spec = folder.write()
    before, _ = quietly(spec, per_class=6)
    for i in (0, 1, 2):
        folder.file(TRAIN, i).write_bytes(b"broken")
    after, said = quietly(spec, per_class=6)
    assert before.train.counts(4).tolist() == after.train.counts(4).tolist() == [6] * 4
    assert "broken images 3 (" in said[0]


def test_many_images_are_announced(folder, monkeypatch):
    monkeypatch.setattr(gathering, "MANY", 5)
    _, said = quietly(folder.write())
    assert said[0] == f"nuimages:{folder.root}: reading 9 images"
    assert len(said) == 2


def test_crops_are_kept_and_made_anew_where_anything_has_changed(folder, cache, monkeypatch, tmp_path):
    spec = folder.write()
    read = []
    cut = gathering._cut
    monkeypatch.setattr(gathering, "_cut", lambda *a: read.append(a[-1][0].file) or cut(*a))

    def reads(spec=spec, **options):
        read.clear()
        dataset, _ = quietly(spec, **options)
        return dataset, len(read)

    first, number = reads()
    assert number == 13
    again, number = reads()
    assert number == 0
    assert (again.fingerprint(), again.notes) == (first.fingerprint(), first.notes)
    assert again.train.vehicles.tolist() == first.train.vehicles.tolist()
    for options in ({"image_size": 20}, {"per_class": 3}):
        assert reads(**options)[1] > 0
    for option in ("min_side=40", "test_per_class=2", f"test={TRAIN}"):
        assert reads(f"{spec}?{option}")[1] > 0
    (tmp_path / "my.toml").write_text('person = ["human"]\nmotor = ["vehicle"]\n')
    assert reads(f"{spec}?groups={tmp_path / 'my.toml'}")[1] == 13
    (tmp_path / "my.toml").write_text('person = ["human"]\nmotor = ["vehicle.car"]\n')
    assert reads(f"{spec}?groups={tmp_path / 'my.toml'}")[1] == 13
    assert reads()[1] == 0
    folder.file(TRAIN, 0).write_bytes(encode(np.zeros((SIZE[1], SIZE[0], 3), np.uint8), "JPEG"))
    changed, number = reads()
    assert number == 13
    assert changed.fingerprint() != first.fingerprint()
    folder.row(TRAIN, "object_ann", 0)["bbox"] = [0, 0, 100, 100]
    folder.write()
    assert reads()[1] == 13
    for kept in cache.iterdir():
        kept.write_bytes(kept.read_bytes()[:-200])
    assert reads()[1] == 13, "a file that is not whole is made anew"
    assert reads()[1] == 0
    assert not list(cache.glob(".*")), "nothing half written is left"


def test_a_root_that_cannot_be_written_to_is_enough(folder):
    spec = folder.write()
    before = {path: path.stat().st_mtime_ns for path in folder.root.rglob("*")}
    quietly(spec)
    assert {path: path.stat().st_mtime_ns for path in folder.root.rglob("*")} == before


def test_a_cache_that_cannot_be_written_to_is_said_and_does_no_harm(folder, cache):
    cache.write_text("a file where the folder should be")
    dataset, said = quietly(folder.write())
    assert len(dataset.train) == 36
    assert len(said) == 2
    assert said[1].startswith(f"nuimages:{folder.root}: not kept in {cache} for the next time (")


def test_the_cache_is_in_the_users_folder(folder, tmp_path, monkeypatch):
    monkeypatch.delenv("MPT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    quietly(folder.write())
    assert len(list((tmp_path / "xdg" / "mpt").glob("nuimages-*.npz"))) == 1


def most_images_gone(folder):
    shutil.rmtree(folder.root / "samples" / "CAM_FRONT")


def all_broken(folder):
    for i in range(9):
        folder.file(TRAIN, i).write_bytes(b"broken")


def other_tables(folder):
    for row in folder.tables[TRAIN]["sample_data"]:
        row["token"] = token(row["token"])


def all_small(folder):
    for row in folder.tables[TRAIN]["object_ann"]:
        row["bbox"] = [0, 0, 9, 9]


def one_class(folder):
    folder.tables[VAL]["object_ann"] = folder.tables[VAL]["object_ann"][::4]


SYSTEMATIC = {
    "most images gone": (most_images_gone, "5 of 9 images of .*v1.0-train are absent .first samples/CAM_FRONT/"),
    "all images broken": (all_broken, "9 of 9 images that were read are of no use .*should be whole JPEG"),
    "tables of another version": (other_tables, "36 of 36 boxes of .*v1.0-train name a token that its tables do not"),
    "no boxes": (lambda f: f.tables[VAL].update(object_ann=[]), "no boxes in .*object_ann.json, should have some"),
    "only small boxes": (all_small, "no usable box in .*boxes under 32 pixels 36"),
    "one class in test": (one_class, "1 of 8 classes have samples in train and test, should be at least 2"),
    "no category": (lambda f: f.tables[TRAIN].update(category=[]), "no category of .* is in a class of the groups"),
}


@pytest.mark.parametrize("case", SYSTEMATIC)
def test_systematic_damage_is_one_sentence(case, folder):
    change, message = SYSTEMATIC[case]
    change(folder)
    with pytest.raises(DataError, match=message) as raised:
        load(folder.write())
    assert_one_sentence(raised)


def truncated(root):
    path = root / TRAIN / "object_ann.json"
    path.write_text(path.read_text()[:-5000])


FILES = {
    "no root": (shutil.rmtree, "no folder .*nuimages, should have samples/ and v1.0-train/"),
    "no version": (lambda root: shutil.rmtree(root / TRAIN), "no folder .*v1.0-train, .* one of: v1.0-val"),
    "no validation": (lambda root: shutil.rmtree(root / VAL), "no folder .*v1.0-val, .* one of: v1.0-train"),
    "no table": (lambda root: os.remove(root / VAL / "log.json"), "no table .*v1.0-val/log.json, should be there with"),
    "no samples": (lambda root: shutil.rmtree(root / "samples"), "no folder .*samples, should have a folder of images"),
    "half a table": (truncated, "object_ann.json cannot be read .it ends early"),
    "no list": (lambda root: (root / TRAIN / "log.json").write_text("{}"), "log.json cannot be read .it is no list"),
    "no text": (lambda root: (root / TRAIN / "log.json").write_bytes(b"[\xff"), "log.json cannot be read"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_folder_that_is_not_whole_is_one_sentence(case, folder):
    change, message = FILES[case]
    spec = folder.write()
    change(folder.root)
    with pytest.raises(DataError, match=message) as raised:
        load(spec)
    assert_one_sentence(raised)


def test_one_log_cannot_be_split(tmp_path):
    folder = Folder(tmp_path / "mini", [("v1.0-mini", 1)])
    with pytest.raises(DataError, match="are of one log, should be several") as raised:
        load(folder.write())
    assert_one_sentence(raised)


@pytest.mark.parametrize("chunk", [1, 2, 7, 64, 1 << 20])
@pytest.mark.parametrize("indent", [None, 0, 2])
def test_a_list_is_read_piece_by_piece_as_json_reads_it_whole(chunk, indent, tmp_path, monkeypatch):
    monkeypatch.setattr(jsonlist, "CHUNK", chunk)
    rows = [{"a": [1, {"b": "]},[{é\\"}], "c": None}, [], {}, {"long": "x" * 300}, "text"] * 3
    path = tmp_path / "table.json"
    path.write_text(json.dumps(rows, indent=indent), encoding="utf-8")
    assert list(json_list(path)) == rows
    path.write_text("\ufeff [ ] ", encoding="utf-8")
    assert list(json_list(path)) == []
    for wrong in ("", "  ", "[{}", '[{"a": 1} {"b": 2}]', "[{]", '{"a": []}'):
        path.write_text(wrong)
        with pytest.raises(ValueError, match=r"it |between"):
            list(json_list(path))
