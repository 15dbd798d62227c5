"""Main cells and the cells that MPT-X's rows come from, as the exhibits read them together."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.experiments.cells import CellStore
from mpt.experiments.claims import Claim, ClaimVerdict, judged
from mpt.experiments.exhibits import made
from mpt.experiments.plans import QUICK, CellSpec, Grid
from mpt.experiments.results import Results
from mpt.experiments.sets import parse_sources
from mpt.runs.tables import COLUMNS, FORMAT, Tables

DATA = ("nuimages=road?train=12&test=6:truck",)
F1 = {"main": 0.25, "beyond": 0.75}


def finish(path, *cells):
    """Results of a folder in which these cells are finished; every F1 says of which study it is."""
    results = Results(Grid(QUICK, parse_sources(DATA, stand_ins=False), 1), CellStore(path))
    for wanted in cells:
        cell = results.grid.cell(wanted)
        folder = results.store.folder(cell)
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(cell.config.to_toml())
        known = {"format": FORMAT, "classes": ["car", "truck"], "rare": 1, "device": f"a {wanted.study} machine"}
        (folder / "manifest.json").write_text(json.dumps({**known, "finished": True}))
        what = {"seed": 0, "round": cell.config.rounds, "readout": "mahalanobis", "f1": F1[wanted.study]}
        what |= dict.fromkeys(("class", "label", "predicted"), "truck")
        rows = {
            name: tuple(
                {c: what.get(c, m if c == "method" else column.kind(1)) for c, column in columns.items()}
                for m in ("", *cell.config.methods)[name != "diagnostics" :]
            )
            for name, columns in COLUMNS.items()
        }
        Tables(**rows).write(folder)
    return results


def row(table, label):
    (found,) = [r for r in table.rows if r.label == label]
    return [e.ours for e in found.entries]


def test_a_main_cell_has_mpt_xs_rows_from_the_cell_of_its_own(tmp_path):
    wanted = CellSpec()
    results = finish(tmp_path, wanted, wanted.further)
    main, own = (results.store.tables(results.grid.cell(w)) for w in (wanted, wanted.further))
    outcome = results.of(wanted)
    for name in COLUMNS:
        before, after = getattr(main, name), getattr(outcome.tables, name)
        assert after[: len(before)] == before
        assert after[len(before) :] == tuple(r for r in getattr(own, name) if r["method"] == "mpt-x")
        assert len(after) == len(before) + 1
    assert (outcome.last("mpt"), outcome.last("mpt-x")) == ({0: F1["main"]}, {0: F1["beyond"]})
    assert results.of(wanted.further).last("mpt") == {0: F1["beyond"]}
    table = made("table2", results)
    assert row(table, "MPT-X")[0].mean == F1["beyond"]
    assert row(table, "MPT")[0].mean == row(table, "oracle-train")[0].mean == F1["main"]
    assert "computed on a beyond machine and a main machine" in " ".join(table.notes)
    assert {e.mean for e in row(made("beyond", results).table, "stand-in road (truck) 2% cnn3")[:6]} == {F1["beyond"]}


def test_without_that_cell_mpt_x_is_missing_and_nothing_else(tmp_path):
    results = finish(tmp_path, CellSpec(), CellSpec(remaining=0.1))
    assert results.of(CellSpec()).tables == results.store.tables(results.grid.cell(CellSpec()))
    for name in ("table2", "table3", "fig4", "fig5"):
        thing = made(name, results)
        table = getattr(thing, "table", thing)
        assert set(row(table, "MPT-X")) == {None}
        assert row(table, "MPT")[0] is not None
        assert "stand-in road truck 10% cnn3, beyond: not computed yet" in " ".join(table.notes) or name == "fig4"
    assert set(row(made("beyond", results).table, "stand-in road (truck) 2% cnn3")) == {None}


def test_a_cell_with_fewer_seeds_than_asked_for_is_shown_with_those_and_said(tmp_path):
    first = finish(tmp_path, CellSpec())
    more = Results(replace(first.grid, seeds=3), first.store)
    assert not more.store.finished(more.grid.cell(CellSpec()))
    assert more.of(CellSpec()).last("mpt") == {0: F1["main"]}
    table = made("table2", more)
    assert row(table, "MPT")[0].mean == F1["main"]
    assert "stand-in road truck 2% cnn3: 1 of 3 seeds so far; " in " ".join(table.notes)


def test_of_missing_cells_those_that_were_begun_come_first(tmp_path):
    first = finish(tmp_path, CellSpec(remaining=0.1))
    more = Results(replace(first.grid, seeds=3), first.store)
    assert more.missing([CellSpec(), CellSpec(remaining=0.1)]) == [
        "stand-in road truck 10% cnn3: 1 of 3 seeds so far",
        "stand-in road truck 2% cnn3: not computed yet",
    ]


def test_mpt_xs_rows_are_of_the_seeds_that_the_main_cell_has(tmp_path):
    first = finish(tmp_path, CellSpec(), CellSpec().further)
    folder = first.store.folder(first.grid.cell(CellSpec().further))
    own = first.store.tables(first.grid.cell(CellSpec().further))
    more = own + replace(own, **{n: tuple({**r, "seed": 1} for r in getattr(own, n)) for n in COLUMNS})
    more.write(folder)
    again = Results(replace(first.grid, seeds=2), first.store)
    (folder / "config.toml").write_text(again.grid.cell(CellSpec().further).config.to_toml())
    assert set(again.of(CellSpec().further).last("mpt-x")) == {0, 1}
    assert set(again.of(CellSpec()).last("mpt-x")) == {0}
    assert again.of(CellSpec()).seeds == 1
    assert "Scale quick, 1 to 2 seeds" in " ".join(made("table2", again).notes)


def test_a_claim_that_rests_on_fewer_seeds_agrees_so_far(tmp_path, monkeypatch):
    first = finish(tmp_path, CellSpec())
    judge = lambda results: ClaimVerdict("agrees" if results.of(CellSpec()) else "not run", "1")  # noqa: E731
    monkeypatch.setattr("mpt.experiments.claims.CLAIMS", (Claim("It holds", 1, "table2", judge),))
    assert row(judged(first), "It holds")[1:] == ["agrees", "1"]
    more = Results(replace(first.grid, seeds=3), first.store)
    assert row(judged(more), "It holds")[1:] == ["agrees so far", "1; some with fewer than 3 seeds"]
    unrun = lambda results: ClaimVerdict("not run", "" if results.of(CellSpec()) else "?")  # noqa: E731
    monkeypatch.setattr("mpt.experiments.claims.CLAIMS", (Claim("It holds", 1, "table2", unrun),))
    assert row(judged(more), "It holds")[1:] == ["not run", ""]


def test_a_cell_that_is_being_extended_keeps_the_seeds_it_had(tmp_path):
    results = finish(tmp_path, CellSpec())
    cell = results.grid.cell(CellSpec())
    folder = results.store.folder(cell)
    known = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**known, "finished": False}))
    (folder / "config.toml").write_text(replace(cell.config, seeds=3).to_toml())
    assert (results.store.finished(cell), results.store.seeds(cell)) == (False, 1)
    assert results.of(CellSpec()).last("mpt") == {0: F1["main"]}
    (folder / "metrics.csv").unlink()
    assert results.store.seeds(cell) == 0


def test_its_cell_alone_makes_no_main_cell(tmp_path):
    results = finish(tmp_path, CellSpec().further)
    assert results.of(CellSpec()) is None
    assert set(row(made("table2", results), "MPT-X")) == {None}


def test_overheads_are_over_the_same_fractions_for_all_methods(tmp_path):
    cells = [CellSpec(remaining=f) for f in QUICK.remaining]
    some = made("fig5", finish(tmp_path / "some", *cells, cells[0].further))
    assert set(row(some.table, "MPT-X")) == {None}
    both = made("fig5", finish(tmp_path / "all", *cells, *(w.further for w in cells)))
    assert row(both.table, "MPT-X")[-1].mean == F1["beyond"]
    points = [[p.about.partition(":")[0] for p in figure.panels[0].drawing.points] for figure in (some, both)]
    assert set(points[1]) - set(points[0]) == {"MPT-X"}
