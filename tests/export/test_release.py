"""The manifest's shape: what is written is read, and what is wrong with it is named."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.core.health import VERDICTS
from mpt.export import (
    ClassStanding,
    DeployableModel,
    ExportError,
    Metadata,
    Origin,
    Release,
    ReleaseManifest,
    read_release,
    write_model,
    write_release,
)
from mpt.export.manifest import LEVELS, check_required, manifest_path, parse
from mpt.learning import build

CLASSES = (
    ClassStanding("car", "measured"),
    ClassStanding("truck", "reconstructed", "good", 1.5),
    ClassStanding("bus", "missing"),
)
ORIGIN = Origin("run", "mpt-x", "mahalanobis", "a" * 64, "road", "f00", 0, "0.1.0", None, CLASSES)
MANIFEST = ReleaseManifest(
    "m.pt", "torchscript", "b" * 64, 12, None, 5, "cnn3", 3, 28, (3, 28, 28), "0.1.0", "good", ORIGIN
)


def test_what_is_written_is_read():
    assert parse(MANIFEST.to_json(), "here") == MANIFEST
    fleet = replace(ORIGIN, kind="fleet", dataset=None, dataset_fingerprint=None, seed=None, commit="c0ffee")
    assert parse(replace(MANIFEST, origin=fleet, required=None).to_json(), "here").origin == fleet


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (("mpt_release",), 2, "here: mpt_release is 2, this release of mpt reads 1"),
        (("mpt_release",), 0, "here: mpt_release is 0, this release of mpt reads 1"),
        (("input_shape",), [], r"here: input_shape is \[\], should be one to three numbers of at least 1"),
        (("input_shape",), [3, 0], r"here: input_shape is \[3, 0\], should be one to three"),
        (("input_shape",), [True], r"here: input_shape is \[True\], should be one to three"),
        (("sha256",), "B" * 64, "here: sha256 is 'BBBB.*should be a SHA-256 as 64 hexadecimal digits"),
        (("round",), -1, "here: round is -1, should be at least 0"),
        (("round",), True, "here: round is True, should be a whole number"),
        (("format",), "tflite", "here: format is 'tflite', should be onnx or torchscript"),
        (("required",), "lost", "here: required is 'lost', should be good or unconfirmed or degraded or null"),
        (("extra",), 1, "here: has 'extra', which no manifest has"),
        (("origin",), [], r"here: origin is \[\], should be an object"),
        (("origin", "kind"), None, "here: origin: kind is null, should be run or fleet"),
        (("origin", "seed"), "0", "here: origin: seed is '0', should be a whole number or null"),
        (("origin", "classes", 0), 5, r"here: origin: classes\[0\]: is 5, should be an object"),
        (("origin", "classes", 1, "verdict"), "fine", r"classes\[1\]: verdict is 'fine', should be good or degraded"),
        (("origin", "classes", 1, "expected_error"), -1.0, "expected_error is -1.0, should be a number of at least 0"),
        (("origin", "classes", 1, "expected_error"), float("nan"), "expected_error is nan, should be a number of at l"),
        pytest.param(
            ("origin", "classes", 1, "expected_error"), 10**400, "expected_error is 10*, should be", id="huge"
        ),
        (("origin", "classes", 1, "state"), "measured", "a class that is measured has the verdict good"),
    ],
)
def test_what_is_wrong_is_named(place, value, sentence):
    found = json.loads(MANIFEST.to_json())
    inner = found
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(ExportError, match=sentence):
        parse(json.dumps(found), "here")


def test_paths_may_be_texts(tmp_path, monkeypatch):
    model = DeployableModel(
        build("mlp", num_classes=3, in_channels=4, image_size=1, seed=0, input_shape=(4,)).eval(),
        np.zeros((3, 64)), np.zeros(3), Metadata(("car", "truck", "bus"), (), (), 1, "mlp", 4, 1, (4,), "0.1.0")
    )  # fmt: skip
    monkeypatch.chdir(tmp_path)
    write_model(model, "torchscript", "deep/alone.pt")
    made = write_release(Release(model, ORIGIN), "torchscript", "deep/m.pt")
    assert read_release("deep/m.pt") == read_release(tmp_path / "deep" / "m.pt") == made
    assert made.files("deep/m.pt") == made.files(Path("deep/m.pt"))
    assert sorted(path.name for path in Path("deep").iterdir()) == ["alone.pt", "m.pt", "m.pt.manifest.json"]
    for wrong in ("", "nothing.pt", "."):
        with pytest.raises(ExportError, match=r"manifest\.json: cannot be read"):
            read_release(wrong)


def test_every_key_is_needed():
    found = json.loads(MANIFEST.to_json())
    for part, where in ((found, "here"), (found["origin"], "origin"), (found["origin"]["classes"][0], "classes")):
        for key in list(part):
            value = part.pop(key)
            with pytest.raises(ExportError, match=f"{where}.*: has no {key}"):
                parse(json.dumps(found), "here")
            part[key] = value
    for text in ("", "[1]", "null", "[" * 100_000, "1" * 5000):
        with pytest.raises(ExportError, match=r"^here: is"):
            parse(text, "here")


def test_another_file_than_the_manifests_is_found(tmp_path):
    model = tmp_path / "m.pt"
    model.write_bytes(b"weights")
    with pytest.raises(ExportError, match=r"m\.pt\.manifest\.json: cannot be read"):
        read_release(model)
    right = replace(MANIFEST, sha256=hashlib.sha256(b"weights").hexdigest())
    manifest_path(model).write_text(right.to_json())
    assert read_release(model) == right
    two = replace(right, earlier_sha256=hashlib.sha256(b"before").hexdigest())
    manifest_path(model).write_text(two.to_json())
    with pytest.raises(ExportError, match=r"m\.earlier\.pt: cannot be read"):
        read_release(model)
    (tmp_path / "m.earlier.pt").write_bytes(b"before")
    assert [path.name for path in read_release(model).files(model)] == ["m.pt", "m.earlier.pt", "m.pt.manifest.json"]
    (tmp_path / "m.earlier.pt").write_bytes(b"after")
    with pytest.raises(ExportError, match=r"m\.earlier\.pt: is not the file that"):
        read_release(model)
    manifest_path(model).write_text(right.to_json())
    model.write_bytes(b"wEights")
    with pytest.raises(ExportError, match=r"is not the file that m\.pt\.manifest\.json was written for"):
        read_release(model)
    manifest_path(model).write_bytes(b"\xff\xfe")
    with pytest.raises(ExportError, match="is no text"):
        read_release(model)


def test_what_is_required_of_classes():
    made = {verdict: ClassStanding(f"{verdict} one", "reconstructed", verdict, 1.0) for verdict in VERDICTS}
    for level, enough in LEVELS.items():
        check_required([ClassStanding("car", "measured"), *(made[v] for v in enough)], level)
        for verdict in set(VERDICTS) - set(enough):
            with pytest.raises(ExportError, match=f"^require: {verdict} one is {verdict}; every class"):
                check_required([made["good"], made[verdict]], level)
        for state, sentence in (("kept", "earlier round"), ("missing", "never predicted"), ("departed", "no verdict")):
            with pytest.raises(ExportError, match=f"bus .*{sentence}.*nothing was written"):
                check_required([ClassStanding("bus", state)], level)
    with pytest.raises(
        ExportError, match=r"truck is lost; bus is disputed; every class .* should be unconfirmed or be"
    ):
        check_required(
            [ClassStanding("truck", "reconstructed", "lost"), ClassStanding("bus", "reconstructed", "disputed")],
            "unconfirmed",
        )
    check_required(list(made.values()), None)
