"""The exhibit `beyond`: its cells, and its figures against those computed from the same numbers by NumPy and SciPy."""

import csv
import io
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.experiments.beyond import COLUMNS, beyond, beyond_wanted, within
from mpt.experiments.cells import CellStore
from mpt.experiments.exhibits import EXHIBITS, command, made
from mpt.experiments.figures import looks
from mpt.experiments.plans import LIKE_FOR_LIKE, METHODS_OF, PAPER, QUICK, CellSpec, Grid
from mpt.experiments.results import CellOutcome, Results
from mpt.experiments.sets import parse_sources
from mpt.experiments.table import number
from mpt.experiments.tables import table2_wanted
from mpt.runs.config import ConfigError
from mpt.runs.tables import Tables

DATA = ("nuimages=road?train=12&test=6:truck,bus,car", "car1000-coarse=road?train=12&test=6&seed=1:van")
ROUNDS, SEEDS = (10, 20, 30, 40), 3


def results(scale=PAPER, data=DATA):
    return Results(Grid(scale, parse_sources(data, stand_ins=False), SEEDS), CellStore(Path("none")))


def test_the_cells_are_table_2s_the_further_classes_and_resnet_18():
    grid = results()
    wanted = beyond_wanted(grid)
    main = [w.further for w in table2_wanted(grid) if w.set != "car1000-fine"]  # it has no source
    assert wanted[:8] == main
    names = grid.grid.dataset("nuimages").classes
    further = wanted[8:16]
    assert [(names[w.rare], w.remaining) for w in further] == list(
        itertools.product(("bus", "car"), (0.01, 0.02, 0.05, 0.1))
    )
    assert {(w.set, w.study, w.backbone) for w in further} == {("nuimages", "beyond", "cnn3")}
    assert wanted[16:] == [CellSpec(s, backbone="resnet18", study="beyond") for s in ("nuimages", "car1000-coarse")]


def test_exhibits_with_a_row_for_mpt_x_want_its_cells_after_the_main_ones():
    grid = results()
    for name, main, further in (("table2", 12, 8), ("table3", 16, 16), ("fig4", 1, 1), ("fig5", 4, 4)):
        wanted = EXHIBITS[name].wanted(grid)
        assert [w.study for w in wanted] == ["main"] * main + ["beyond"] * further
        assert wanted[main:] == [w.further for w in wanted[:main] if w.set in grid.grid.sources]
    for name in ("fig2d", "fig6", "fig7", "departure"):
        assert "beyond" not in {w.study for w in EXHIBITS[name].wanted(grid)}


def test_mpt_x_is_read_out_in_its_own_cells_in_the_rounds_of_the_main_ones():
    grid = results()
    for wanted in EXHIBITS["table3"].wanted(grid)[16:]:
        main, mine = (grid.grid.cell(w).config for w in (replace(wanted, study="main"), wanted))
        assert "mpt-x" not in main.methods
        assert mine.methods == METHODS_OF["beyond"]
        changed = {name for name in vars(main) if getattr(main, name) != getattr(mine, name)}
        assert changed == {"methods"}
    shown = grid.grid.cell(CellSpec(study="beyond")).config
    assert (shown.eval_every, shown.slow_every) == (1, PAPER.slow_every)


def test_a_further_class_is_run_with_the_exhibits_methods_only():
    grid = results()
    one = next(w for w in beyond_wanted(grid) if w.rare is not None and w.remaining == 0.02)
    cell = grid.grid.cell(one)
    assert (cell.config.rare, cell.config.eval_every, cell.config.slow_every) == ("bus", PAPER.eval_every, None)
    assert cell.config.methods == (*COLUMNS, *LIKE_FOR_LIKE)
    assert COLUMNS == ("mpt-x", "mpt", "ldc:all", "remaining-mean", "frozen", "oracle-train")
    assert cell.label == "stand-in road bus 2% cnn3, beyond"
    assert grid.name(one) == "stand-in road (bus) 2% cnn3"


def test_other_exhibits_have_the_first_class_only():
    with_more, without = results(), results(data=[text.partition(",")[0] for text in DATA])
    for name, exhibit in EXHIBITS.items():
        if name != "beyond":
            keys = [[c.key for c in r.cells(exhibit.wanted(r))] for r in (with_more, without)]
            assert keys[0] == keys[1]
    source = with_more.grid.sources["nuimages"]
    assert "bus" not in source.short + source.label
    assert "--data 'nuimages=road?train=12&test=6:truck,bus,car'" in command("beyond", with_more)


def test_the_quick_scale_has_no_more_than_table_2():
    grid = results(QUICK)
    assert beyond_wanted(grid) == [w.further for w in table2_wanted(grid) if w.set != "car1000-fine"]
    assert "paper's scale only" in " ".join(made("beyond", grid).notes)


@pytest.mark.parametrize("twice", ["truck,bus,truck", "truck,bus,bus", "truck,2"])
def test_a_class_named_twice_is_refused(twice):
    with pytest.raises(ConfigError, match="of nuimages is there twice, should be named once"):
        beyond_wanted(results(data=[f"nuimages=road?train=12&test=6:{twice}"]))


class Made(Results):
    """Results whose outcomes are given."""

    def __init__(self, outcomes):
        grid = results().grid
        super().__init__(grid, CellStore(Path("none")))
        object.__setattr__(self, "outcomes", outcomes)

    def of(self, wanted):
        return self.outcomes.get(wanted)


def outcome(random, shift):
    """Numbers by method, seed and round; the departure is after round 10, and ldc:all is not read out in round 30."""
    methods = METHODS_OF["beyond"]
    shape = (len(methods), SEEDS, len(ROUNDS))
    f1, others, distance, expected = random.uniform(0.3, 0.7, (4, *shape))
    f1[0] = f1[1] + shift + 0.01 * random.standard_normal(shape[1:])
    metrics, diagnostics = [], []
    for (i, method), seed, (j, at) in itertools.product(enumerate(methods), range(SEEDS), enumerate(ROUNDS)):
        if (method, at) == ("ldc:all", 30):
            continue
        what = {"seed": seed, "round": at, "method": method, "readout": "mahalanobis", "class": "truck"}
        figures = f1[i, seed, j], others[i, seed, j], distance[i, seed, j], f1[i, seed, j] - 0.1, f1[i, seed, j] + 0.1
        columns = ("f1", "others_accuracy", "prototype_distance", "precision", "recall")
        metrics.append(what | dict(zip(columns, figures, strict=True)))
        if method in ("mpt-x", "mpt"):
            diagnostics.append(what | {"expected_error": expected[i, seed, j]})
    diagnostics[-1]["expected_error"] = None  # mpt, last seed, last round: nothing was stated
    tables = Tables(metrics=tuple(metrics), diagnostics=tuple(diagnostics))
    held = distance <= expected
    return CellOutcome(tables, "truck", 10, 40), f1[..., [1, 3]].mean(-1), others[..., [1, 3]].mean(-1), held[..., 1:]


@pytest.fixture(scope="module")
def exhibit():
    random = np.random.default_rng(5)
    cells = [w.further for w in (CellSpec(remaining=0.01), CellSpec(), CellSpec("car1000-coarse", backbone="resnet18"))]
    numbers = [outcome(random, shift) for shift in (0.1, -0.1, 0.05)]
    return beyond(Made(dict(zip(cells, (n[0] for n in numbers), strict=True)))), numbers


ROWS = ("stand-in road (truck) 1% cnn3", "stand-in road (truck) 2% cnn3", "stand-in road (van) 2% resnet18")


def test_the_tables_figures_are_those_of_the_cells(exhibit):
    figure, numbers = exhibit
    lines = list(csv.DictReader(io.StringIO(figure.table.csv())))
    for name, (_, f1, _, _) in zip(ROWS, numbers, strict=True):
        mine = [line for line in lines if line["row"] == name]
        assert [line["column"] for line in mine] == [
            "MPT-X", "MPT", "LDC, all samples", "remaining-mean", "Frozen prototype", "oracle-train",
            "/ oracle-train", "less MPT",
        ]  # fmt: skip
        gap = stats.ttest_1samp(f1[0] - f1[1], 0).confidence_interval(0.95)
        expected = [*f1[:6].mean(1), f1[0].mean() / f1[5].mean(), (gap.low + gap.high) / 2]
        np.testing.assert_allclose([float(line["ours"]) for line in mine], expected, atol=2e-6)
        deviations = [float(line["deviation"]) for line in mine if line["deviation"]]
        np.testing.assert_allclose(deviations, [*f1[:6].std(1, ddof=1), (gap.high - gap.low) / 2], atol=2e-6)


def test_cells_that_were_not_run_are_missing(exhibit):
    rows = {row.label: row for row in exhibit[0].table.rows}
    assert len(rows) == 18
    assert {name for name, row in rows.items() if row.entries[0].ours is not None} == set(ROWS)
    missing = [line for line in exhibit[0].table.markdown().splitlines() if "(bus) 2%" in line]
    assert missing == ["| stand-in road (bus) 2% cnn3 |" + " missing |" * 8]
    nothing = made("beyond", Made({}))
    assert nothing.panels[0].drawing is None
    assert "stand-in road truck 2% cnn3, beyond: not computed yet" in nothing.table.notes[-1]
    assert "; and 12 more. To compute them: " in nothing.table.notes[-1]


def test_the_notes_count_and_average_over_the_cells_that_were_run(exhibit):
    figure, numbers = exhibit
    notes = "\n".join(figure.notes)
    f1, others = np.array([n[1] for n in numbers]), np.array([n[2] for n in numbers])
    assert "above MPT in 2 of 3 cells that were run, of 18; of the 3 that have several seeds " in notes
    assert "seeds significantly above in 2 and below in 1 (interval" in notes
    called = [f"{name} .{1000 * (f1[1, i].mean() - 0.1):.0f} and " for i, name in ((0, "MPT-X"), (1, "MPT"))]
    (low,) = [note for note in figure.notes if note.startswith("Precision and recall in ")]
    assert low.startswith(f"Precision and recall in {ROWS[1]}, where it is below: {called[0]}")
    assert called[1] in low
    assert low.endswith(f".{1000 * (f1[1, 5].mean() + 0.1):.0f}.")
    ratios = f1[:, 0].mean(-1) / f1[:, 5].mean(-1)
    worst = f"{ratios.min():.3f}".removeprefix("0")
    assert f"{ratios.mean():.3f}".removeprefix("0") + " on average over cells" in notes
    assert f"{worst} at worst, in {ROWS[int(ratios.argmin())]}." in notes
    means = f1.mean(axis=-1)

    def over(one, other):
        found = means[:, one] / means[:, other]
        return "{} ({} at worst)".format(*(f"{v:.3f}".removeprefix("0") for v in (found.mean(), found.min())))

    assert f"mpt-x over mpt-x:in-place {over(0, 6)}, mpt:outward over mpt {over(7, 1)}, " in notes
    assert f"MPT-X over oracle-train: further out {over(0, 8)}, in place {over(6, 5)}; " in notes
    assert f"it is above MPT in {np.sum(means[:, 0] > means[:, 7])} of 3 cells." in notes
    gap = float((others[:, 0] - others[:, 5]).mean())
    sign = "\N{MINUS SIGN}" if gap < 0 else ""
    assert f"MPT-X less oracle-train: {sign}{f'{abs(gap):.4f}'.removeprefix('0')} on average" in notes
    by_cell = (others[:, 0] - others[:, 5]).mean(axis=-1)
    outward = float((others[:, 0] - others[:, 8]).mean())
    near = np.sum(np.abs(by_cell) <= 0.01)
    assert f"over cells, {number(by_cell.min(), 4)} at worst, within .01 in {near} of 3; " in notes
    assert f"; both further out {number(outward, 4)} on average." in notes
    held = np.array([n[3] for n in numbers])
    mine, plain = held[:, 0], np.delete(held[:, 1].reshape(3, -1), -1, axis=1)
    assert f"MPT-X's true distance to oracle-train's prototype was within the error that it expected in {mine.mean():.1%} of 27 " in notes  # fmt: skip  # noqa: E501
    assert f"expected in {plain.mean():.1%} of 24 " in notes
    assert [sum(within(n[0], "mpt-x")) for n in numbers] == mine.sum(axis=(1, 2)).tolist()


def test_the_figure_has_a_point_a_cell_and_method(exhibit):
    figure, numbers = exhibit
    drawing = figure.panels[0].drawing
    f1 = np.array([n[1] for n in numbers]).mean(-1)
    expected = {(COLUMNS[i], round(cell[5], 6), round(cell[i], 6)) for cell in f1 for i in range(5)}
    labels = {look.label: method for method, look in looks().items()}
    assert {(labels[p.look.label], round(p.x, 6), round(p.y, 6)) for p in drawing.points} == expected
    assert len(drawing.points) == 15
    assert 'class="departure"' in drawing.draw(600, 400)
    assert 'class="departure"' not in replace(drawing, diagonal=False).draw(600, 400)


def test_one_seed_has_no_interval_and_an_oracle_of_zero_no_ratio():
    metrics = [
        {
            "seed": 0,
            "round": 20,
            "method": m,
            "readout": "mahalanobis",
            "class": "truck",
            "f1": 0.5 * (m != "oracle-train"),
            "others_accuracy": 0.5,
            "precision": 0.5,
            "recall": 0.5,
            "prototype_distance": None,
        }
        for m in METHODS_OF["beyond"]
    ]
    figure = beyond(Made({CellSpec(study="beyond"): CellOutcome(Tables(metrics=tuple(metrics)), "truck", 10, 20)}))
    line = next(line for line in figure.table.markdown().splitlines() if "(truck) 2% cnn3" in line)
    assert line.endswith("| .000 | \N{EN DASH} | .000 |")
    assert "of the 0 that have several seeds" in " ".join(figure.notes)
    assert {(p.x, p.y) for p in figure.panels[0].drawing.points} == {(0.0, 0.5)}
