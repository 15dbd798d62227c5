"""The cells that are committed under docs/ are those that this engine and these methods would compute."""

import json
import tarfile
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="mpt.experiments needs torch, which is not installed")

from mpt.experiments.cells import Cell
from mpt.runs.config import make_config
from mpt.runs.reader import read_tables

RESULTS = Path(__file__).parents[2] / "results/paper"


@pytest.mark.parametrize("name", ["cells.tar.gz", "regimes.tar.xz"])
def test_committed_cells_have_the_names_that_a_sweep_looks_for(name):
    with tarfile.open(RESULTS / name) as archive:
        names = archive.getnames()
        manifests = [name for name in names if name.endswith("/manifest.json")]
        assert manifests
        for manifest in manifests:
            key = manifest.partition("/")[0]
            known = json.loads(archive.extractfile(manifest).read())
            config = make_config(tomllib.loads(archive.extractfile(f"{key}/config.toml").read().decode()))
            assert Cell(config, known["dataset_fingerprint"], known["rare"]).key == key, (
                f"{key}: made with other settings, methods or another engine; compute it again or take it out"
            )
            assert known["finished"]
            assert f"{key}/metrics.csv" in names


def test_committed_cells_can_be_read(tmp_path):
    with tarfile.open(RESULTS / "cells.tar.gz") as archive:
        key = archive.getnames()[0].partition("/")[0]
        archive.extractall(tmp_path, [m for m in archive if m.name.startswith(f"{key}/")], filter="data")
    tables = read_tables(tmp_path / key)
    assert any(record["drift"] is not None for record in tables.diagnostics)
