from pathlib import Path

import numpy as np
import pytest

from mpt.data import load
from mpt.data.contact_sheet import main, sheet

from .samples import make_dataset


def test_a_row_a_class_of_its_first_test_images():
    dataset = make_dataset(channels=1)
    page = sheet(dataset, columns=3, zoom=2)
    assert page.shape == (3 * 16 + 2 * 2, 3 * 16 + 2 * 2, 3)
    first = dataset.test.images[dataset.test.labels == 1][0].repeat(2, axis=0).repeat(2, axis=1)
    assert np.array_equal(page[18:34, 0:16], first.repeat(3, axis=2))
    assert np.all(page[:, 36:] == 255)
    moved = sheet(dataset, columns=3, zoom=2, first=1)
    assert np.array_equal(moved, np.concatenate([page[18:36], page[:18], page[36:]]))


def test_the_command_writes_a_png(tmp_path, capsys):
    image_module = pytest.importorskip("PIL.Image")
    out = tmp_path / "road.png"
    assert main(["road?train=1&test=2", str(out), "--columns", "2"]) == 0
    assert np.array_equal(np.asarray(image_module.open(out)), sheet(load("road?train=1&test=2"), columns=2))
    assert "rows from the top: car, van" in capsys.readouterr().out


def test_the_picture_in_the_docs_is_that_of_today():
    image_module = pytest.importorskip("PIL.Image")
    path = Path(__file__).parents[2] / "docs" / "_static" / "road.png"
    assert path.stat().st_size < 150_000
    shown = np.asarray(image_module.open(path).convert("RGB")).astype(int)
    assert np.abs(shown - sheet(load("road?train=1&test=12"), zoom=2)).mean() < 10


def test_what_is_wrong_is_one_sentence_and_exit_code_2(tmp_path, capsys):
    pytest.importorskip("PIL")
    assert main(["street", str(tmp_path / "x.png")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["road?train=1&test=1", str(tmp_path / "none" / "x.png")]) == 2
    assert "should be a PNG file in a folder that exists" in capsys.readouterr().err
