"""What is kept is compared with what `load_local` gives at that moment."""

import fcntl
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from mpt.data import DataError, Dataset, Split, image_cache, load_local, load_local_cached, save_npz

from .samples import encode, make_dataset, smooth_image, write_folder, write_parquet

pytest.importorskip("PIL", reason="folder: needs Pillow")

SIZE = 12
HEADER = 8 + 32 + 32


@pytest.fixture
def roads(tmp_path):
    """Two classes, one more folder that is empty, two broken images, one of them with a name that is no text."""
    root = write_folder(tmp_path / "roads", classes=("car", "truck"))
    (root / "train" / "bus").mkdir()
    for name in (b"9.png", b"\xff.png"):
        (root / "train" / "car" / os.fsdecode(name)).write_bytes(b"no image")
    return root


@pytest.fixture
def path(tmp_path):
    (tmp_path / "keys").mkdir()
    return tmp_path / "keys" / "v1.samples"


def assert_same(one, other):
    assert (one.name, one.classes, one.notes) == (other.name, other.classes, other.notes)
    for field in ("images", "labels", "vehicles"):
        array, expected = getattr(one.train, field), getattr(other.train, field)
        assert (array is None) == (expected is None)
        if array is not None:
            assert array.dtype == expected.dtype
            assert np.array_equal(array, expected)
            assert not array.flags.writeable


def place(path):
    """Another one whenever the file was replaced."""
    return path.stat().st_ino, path.stat().st_mtime_ns


def assert_alone(path):
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def npz_spec(folder):
    dataset = make_dataset(per_class=3)
    train = Split(dataset.train.images, dataset.train.labels, np.array(["vehicle-10", "v2", "ä3"] * 3))
    full = Dataset("own", dataset.classes, train, dataset.test, notes=("left out: broken images 3",))
    return f"npz:{save_npz(full, folder / 'own.npz')}"


SPECS = {
    "roads": lambda t: f"folder:{t / 'roads'}",
    "folder": lambda t: f"folder:{write_folder(t / 'set', kind='JPEG', size=lambda c, i: (40, 30))}",
    "grey folder": lambda t: f"folder:{write_folder(t / 'set', grey=True)}",
    "parquet": lambda t: write_parquet(t / "cars"),
    "parquet with options": lambda t: write_parquet(t / "cars") + "?label=model",
    "npz": npz_spec,
}


@pytest.mark.parametrize("options", [{}, {"image_size": SIZE}, {"per_class": 1}], ids=str)
@pytest.mark.parametrize("kind", SPECS)
def test_it_gives_what_hold_gives_the_first_and_the_second_time(kind, options, tmp_path, roads, path):
    if kind.startswith("parquet"):
        pytest.importorskip("pyarrow")
    spec = SPECS[kind](tmp_path)
    expected, said, again = load_local(spec, **options), [], []
    assert_same(load_local_cached(spec, path=path, say=said.append, **options), expected)
    made = place(path)
    assert_same(load_local_cached(spec, path=path, say=again.append, **options), expected)
    assert place(path) == made
    assert said == again == [f"{spec}: {note}" for note in expected.notes]
    assert len(said) == (kind in ("roads", "npz"))


def test_its_size_is_that_of_the_samples_and_it_is_for_its_owner_alone(roads, path):
    (path.parent / f".{path.name}.partial").write_bytes(b"left by a process that was killed" * 1000)
    before = os.umask(0)
    try:
        held = load_local_cached(f"folder:{roads}", path=path, image_size=SIZE)
    finally:
        os.umask(before)
    assert_alone(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert 0 < path.stat().st_size - len(held.train) * (SIZE * SIZE * 3 + 8) < 1000


def wait_for_a_tick(folder):
    """Until the file system's clock gives another time than to all that was written so far."""
    probe = folder / "probe"
    probe.touch()
    first = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns == first:
        os.utime(probe)


def disguised(root):
    """Another image with the size and the time of change that the file had."""
    file = root / "train" / "car" / "0.png"
    then, data = file.stat(), encode(smooth_image(3, 4))
    file.write_bytes(data.ljust(then.st_size, b"\0")[: then.st_size])
    os.utime(file, ns=(then.st_atime_ns, then.st_mtime_ns))


CHANGES = {
    "a new image": lambda r: (r / "train" / "car" / "new.png").write_bytes(encode(smooth_image(0, 5))),
    "an image less": lambda r: (r / "train" / "car" / "0.png").unlink(),
    "another image": lambda r: (r / "train" / "car" / "0.png").write_bytes(encode(smooth_image(3, 3, (31, 31)))),
    "another image of the same size and time": disguised,
    "an image touched": lambda r: os.utime(r / "train" / "car" / "0.png", ns=(0, 0)),
    "an image with other permissions": lambda r: (r / "train" / "car" / "0.png").chmod(0o640),
    "an image mended": lambda r: (r / "train" / "car" / "9.png").write_bytes(encode(smooth_image(0, 1))),
    "images in a hidden folder": lambda r: (r / "test" / "car").rename(r / "train" / "car" / ".deep"),
    "a class renamed": lambda r: (r / "train" / "truck").rename(r / "train" / "lorry"),
    "an empty class folder": lambda r: (r / "train" / "ape").mkdir(),
    "an empty class folder less": lambda r: (r / "train" / "bus").rmdir(),
    "a class folder elsewhere": lambda r: (r / "train" / "van").symlink_to(r / "test" / "car"),
    "a folder with an image's name": lambda r: (r / "train" / "car" / "x.png").symlink_to(r / "test" / "car"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_set_of_files_is_loaded_anew(change, roads, path):
    spec = f"folder:{roads}"
    load_local_cached(spec, path=path)
    made = [place(path)]
    wait_for_a_tick(roads)
    CHANGES[change](roads)
    for _ in range(2):
        assert_same(load_local_cached(spec, path=path), load_local(spec))
        made.append(place(path))
    assert made[0] != made[1] == made[2]


def test_a_file_is_stamped_by_its_size_and_times_and_a_folder_by_being_there(roads):
    image = roads / "train" / "car" / "0.png"
    found = os.stat(image)
    assert image_cache._stamp(image) == (found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    assert image_cache._stamp(roads) == (0,)
    assert image_cache._stamp(roads / "none") == ()


def test_what_load_local_does_not_read_does_not_count(roads, path):
    spec = f"folder:{roads}"
    load_local_cached(spec, path=path)
    made = place(path)
    shutil.rmtree(roads / "test")
    (roads / "train" / "notes.txt").write_text("no class")
    (roads / "train" / "car" / "notes.txt").write_text("no image")
    (roads / "train" / "car" / ".hidden.png").write_bytes(b"no image")
    (roads / "train" / ".cache").mkdir()
    (roads / "train" / ".cache" / "0.png").write_bytes(b"no image")
    assert_same(load_local_cached(spec, path=path), load_local(spec))
    assert place(path) == made


def test_another_parquet_file_is_loaded_anew(tmp_path, path):
    pytest.importorskip("pyarrow")
    spec, made = write_parquet(tmp_path / "cars"), set()
    for which in ("none", "train", "test"):
        if which != "none":
            os.utime(tmp_path / f"cars-{which}.parquet", ns=(0, 0))
        assert_same(load_local_cached(spec, path=path), load_local(spec))
        made.add(path.read_bytes()[8:40])
    assert len(made) == 3


def test_other_options_specs_and_releases_are_loaded_anew(roads, path, monkeypatch):
    import PIL

    spec, made = f"folder:{roads}", set()
    several = ({}, {"image_size": SIZE}, {"image_size": SIZE, "per_class": 2}, {"per_class": SIZE})
    for other, options in [(spec, options) for options in several] + [(f"{spec}/.", {"per_class": SIZE})]:
        assert_same(load_local_cached(other, path=path, **options), load_local(other, **options))
        made.add(path.read_bytes()[8:40])
    for module, name in ((image_cache, "VERSION"), (image_cache, "__version__"), (PIL, "__version__")):
        monkeypatch.setattr(module, name, "9.9")
        load_local_cached(other, path=path, **options)
        made.add(path.read_bytes()[8:40])
    assert len(made) == 5 + 3
    assert_alone(path)


def test_the_folder_behind_a_link_names_the_set(roads, path):
    link = roads.with_name("link")
    for name in ("roads", "streets"):
        link.symlink_to(roads.with_name(name))
        assert load_local_cached(f"folder:{link}", path=path).name == name
        link.unlink()
        if roads.exists():
            roads.rename(roads.with_name("streets"))


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_a_damaged_or_foreign_file_is_made_anew(tmp_path, path):
    spec = f"npz:{save_npz(make_dataset(per_class=1), tmp_path / 'x.npz')}"
    expected = load_local_cached(spec, path=path)
    whole = path.read_bytes()
    cuts = [whole[:length] for length in range(0, len(whole), 7)]
    flips = [flipped(whole, at) for at in (3, 20, 50, HEADER, HEADER + 20, len(whole) - 1)]
    foreign = [b"not at all samples", bytes(len(whole)), (tmp_path / "x.npz").read_bytes()]
    for damaged in (*cuts, *flips, *foreign, whole[:-1], whole + b"\0"):
        path.write_bytes(damaged)
        assert_same(load_local_cached(spec, path=path), expected)
        assert path.read_bytes() == whole
    path.unlink()
    os.mkfifo(path)
    assert_same(load_local_cached(spec, path=path), expected)
    assert path.read_bytes() == whole


def rewritten(path, change):
    """The kept file with another description and other arrays, and a checksum that is right."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data, HEADER)
    start = HEADER + 8 + length
    description, arrays = change(json.loads(data[HEADER + 8 : start]), data[start:])
    text = description if isinstance(description, bytes) else json.dumps(description).encode()
    body = struct.pack("<Q", len(text)) + text + arrays
    path.write_bytes(data[:40] + hashlib.sha256(body).digest() + body)


def test_the_second_time_the_samples_are_those_of_the_file(roads, path):
    expected = load_local_cached(f"folder:{roads}", path=path).train.images
    rewritten(path, lambda description, arrays: (description, flipped(arrays, len(arrays) - 1)))
    images = load_local_cached(f"folder:{roads}", path=path).train.images
    assert np.flatnonzero(images != expected).tolist() == [expected.size - 1]


def described(**changes):
    return lambda description, arrays: (description | changes, arrays)


FORGERIES = {
    "very many images": described(images=[10**12, SIZE, SIZE, 3]),
    "very large images": described(images=[6, 10**9, 10**9, 3]),
    "more than can be counted": described(images=[10**40, SIZE, SIZE, 3]),
    "fewer images": described(images=[5, SIZE, SIZE, 3]),
    "a negative number": described(images=[-1, SIZE, SIZE, 3]),
    "very long names of vehicles": described(vehicles=10**9),
    "names of vehicles": described(vehicles=1),
    "another type": described(vehicles="1,<i8"),
    "too few classes": described(classes=["car"]),
    "no classes": lambda description, arrays: ({"name": "x"}, arrays),
    "very deep lists": lambda description, arrays: (b"[" * 100_000, arrays),
    "negative labels": lambda description, arrays: (description, b"\xff" * 8 + arrays[8:]),
    "no arrays": lambda description, arrays: (description, b""),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_file_takes_no_memory_and_is_made_anew(forgery, roads, path):
    spec = f"folder:{roads}"
    expected = load_local_cached(spec, path=path, image_size=SIZE)
    whole = path.read_bytes()
    rewritten(path, FORGERIES[forgery])
    assert path.read_bytes() != whole
    tracemalloc.start()
    try:
        held = load_local_cached(spec, path=path, image_size=SIZE)
        assert tracemalloc.get_traced_memory()[1] < 3e6
    finally:
        tracemalloc.stop()
    assert_same(held, expected)
    assert path.read_bytes() == whole


def assert_not_kept(spec, path, reason):
    """The samples are there all the same, and it is said once, as a note and aloud."""
    expected, said = load_local(spec), []
    held = load_local_cached(spec, path=path, say=said.append)
    assert np.array_equal(held.train.images, expected.train.images)
    assert held.notes == (*expected.notes, f"not kept in {path.parent} for the next time ({reason})")
    assert said == [f"{spec}: {note}" for note in held.notes]


def test_a_place_that_cannot_be_written_to_is_said(roads, path):
    assert_not_kept(f"folder:{roads}", path.parent / "none" / "x", "No such file or directory")
    path.mkdir()
    assert_not_kept(f"folder:{roads}", path, "Is a directory")
    assert_alone(path)


def test_a_folder_that_is_read_only_is_said(roads, path):
    path.parent.chmod(0o500)
    try:
        if os.access(path.parent, os.W_OK):
            pytest.skip("root writes everywhere")
        assert_not_kept(f"folder:{roads}", path, "Permission denied")
    finally:
        path.parent.chmod(0o700)


def started(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finished(process):
    try:
        printed, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, printed
    return printed


def test_a_full_disk_is_said_and_leaves_what_was_there(roads, path):
    """The operating system's limit on a file's size stands for the disk's."""
    load_local_cached(f"folder:{roads}", path=path)
    whole = path.read_bytes()
    code = """
import resource, sys
from pathlib import Path
from mpt.data import load_local_cached
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
held = load_local_cached(sys.argv[1], path=Path(sys.argv[2]), image_size=64, say=lambda _: None)
print(held.train.images.shape, held.notes[-1])
"""
    printed = finished(started(code, f"folder:{roads}", path))
    assert printed == f"(6, 64, 64, 3) not kept in {path.parent} for the next time (File too large)\n"
    assert path.read_bytes() == whole
    assert_alone(path)


def test_processes_at_once_do_not_hurt_each_other(roads, path):
    """Each wants another size again and again, so that the file is replaced all the time."""
    code = """
import sys
from pathlib import Path
import numpy as np
from mpt.data import load_local, load_local_cached
spec, path, start = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
expected = {size: load_local(spec, image_size=size, say=lambda _: None) for size in (8, 12, 16)}
for i in range(40):
    size = (8, 12, 16)[(start + i // 2) % 3]
    held = load_local_cached(spec, path=path, image_size=size, say=lambda _: None)
    assert np.array_equal(held.train.images, expected[size].train.images)
    assert held.notes == expected[size].notes, held.notes
"""
    spec = f"folder:{roads}"
    for process in [started(code, spec, path, start) for start in range(3)]:
        finished(process)
    assert_alone(path)
    made = place(path)
    (size,) = (size for size in (8, 12, 16) if image_cache.known_by(spec, size) == path.read_bytes()[8:40])
    assert_same(load_local_cached(spec, path=path, image_size=size), load_local(spec, image_size=size))
    assert place(path) == made


def test_what_another_process_writes_just_now_is_left_to_it(roads, path):
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(b"half")
        file.flush()
        assert_same(load_local_cached(f"folder:{roads}", path=path), load_local(f"folder:{roads}"))
        assert partial.read_bytes() == b"half"
    assert not path.exists()


def test_what_another_process_has_put_in_place_just_now_is_not_written_over(roads, path, monkeypatch):
    """It does so between this one's opening and locking the file beside, which is the kept one then."""
    partial, lock = path.with_name(f".{path.name}.partial"), fcntl.flock

    def late(file, how):
        partial.write_bytes(b"theirs")
        os.replace(partial, path)
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    assert_same(load_local_cached(f"folder:{roads}", path=path), load_local(f"folder:{roads}"))
    assert path.read_bytes() == b"theirs"
    assert_alone(path)


def test_a_set_that_is_no_files_is_not_kept(path):
    spec = "road?train=2&test=1"
    assert_same(load_local_cached(spec, path=path), load_local(spec))
    assert not path.exists()


WRONG = ("folder:{0}/none", "npz:{0}/none", "folder:", "npz:a\0b", "folder:x?y=1", "folder:x?y", "street")


@pytest.mark.parametrize(
    ("spec", "options"),
    [*((spec, {}) for spec in WRONG), ("folder:{0}/roads", {"image_size": 4}), ("folder:{0}/roads", {"per_class": 0})],
)
def test_what_is_wrong_is_said_as_hold_says_it(spec, options, tmp_path, roads, path):
    spec = spec.format(tmp_path)
    with pytest.raises(DataError) as expected:
        load_local(spec, **options)
    load_local_cached(f"folder:{roads}", path=path)
    with pytest.raises(DataError) as raised:
        load_local_cached(spec, path=path, **options)
    assert str(raised.value) == str(expected.value)
