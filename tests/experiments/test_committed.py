"""The cells that are committed under docs/ are those that this engine and these methods would compute."""

import json
import tarfile
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="mpt.experiments needs torch, which is not installed")

from mpt.experiments import sets
from mpt.experiments.cells import Cell, CellStore
from mpt.experiments.plans import PAPER, Grid
from mpt.experiments.results import Results
from mpt.experiments.sets import parse_sources
from mpt.experiments.tables import table2_wanted
from mpt.runs.config import ConfigError, make_config
from mpt.runs.reader import read_tables

RESULTS = Path(__file__).parents[2] / "results/paper"


@pytest.mark.parametrize("name", ["cells.tar.gz", "regimes.tar.xz"])
def test_committed_cells_have_the_names_that_a_sweep_looks_for(name):
    read = {"manifest.json", "config.toml"}
    with tarfile.open(RESULTS / name) as archive:  # from its beginning to its end: going back would unpack it anew
        texts = {m.name: archive.extractfile(m).read().decode() if Path(m.name).name in read else "" for m in archive}
    keys = [path.partition("/")[0] for path in texts if path.endswith("/manifest.json")]
    assert keys
    for key in keys:
        known = json.loads(texts[f"{key}/manifest.json"])
        config = make_config(tomllib.loads(texts[f"{key}/config.toml"]))
        assert Cell(config, known["dataset_fingerprint"], known["rare"]).key == key, (
            f"{key}: made with other settings, methods or another engine; compute it again or take it out"
        )
        assert known["finished"]
        assert f"{key}/metrics.csv" in texts


def test_committed_cells_can_be_read(tmp_path):
    with tarfile.open(RESULTS / "cells.tar.gz") as archive:
        key = archive.getnames()[0].partition("/")[0]
        archive.extractall(tmp_path, [m for m in archive if m.name.startswith(f"{key}/")], filter="data")
    tables = read_tables(tmp_path / key)
    assert any(record["drift"] is not None for record in tables.diagnostics)


def test_committed_cells_are_shown_without_images(tmp_path, monkeypatch):
    """As `paper_scale.py DATA OUT table2 --show` does: what is needed of the samples stands in the cells."""
    monkeypatch.syspath_prepend(RESULTS.parents[1] / "benchmarks")
    paper_scale = import_module("paper_scale")
    monkeypatch.setattr(sets, "TOLD", {})
    monkeypatch.setattr(paper_scale, "TOLD", sets.TOLD)
    with tarfile.open(RESULTS / "cells.tar.gz") as archive:
        some = [m for m in archive if m.name.endswith(("manifest.json", "config.toml"))]
        archive.extractall(tmp_path / "cells", some, filter="data")
    sources = parse_sources(paper_scale.told_sources(Path("DATA"), tmp_path / "cells"), stand_ins=False)
    assert sources["nuimages"].spec == "parquet:DATA/cifar10"
    results = Results(Grid(PAPER, sources, 3), CellStore(tmp_path / "cells"))
    assert results.missing(table2_wanted(results)) == []
    with pytest.raises(ConfigError, match="no class 'lorry' in cifar10, should be one of airplane"):
        results.grid.dataset("nuimages").class_index("lorry")
