"""A thinned copy of a recorded run: small, scored on what it has, and replayed like any run's folder."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import eigh

for package in ("pandas", "torch", "typer"):
    pytest.importorskip(package, reason="the extra sim is not installed")

from mpt.base.seeds import Series
from mpt.federation.plan import Plan
from mpt.report import write_report
from mpt.report.simulate import simulate
from mpt.runs.coded import Coding
from mpt.runs.compare import compare
from mpt.runs.config import ConfigError, make_config
from mpt.runs.errors import OtherRunError, RecordError, RunError
from mpt.runs.folder import key_of
from mpt.runs.reader import read_run
from mpt.runs.record import Record
from mpt.runs.replay import replay
from mpt.runs.tables import Tables
from mpt.runs.thin import thin
from mpt.runs.thinning import Amount, Selection, rounds_of
from mpt.version import ENGINE, __version__
from tests.runs.test_replay import EXAMPLE, call, small

METHODS = ("fedavg", "sdc", "mpt", "mpt-x", "oracle-train")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Two seeds of a run with held-out and continued training, read out in rounds 2, 4, ..., 10."""
    folder = tmp_path_factory.mktemp("recorded") / "run"
    config = small(*METHODS, seeds=2, rounds=10, dataset="road?train=40&test=20")
    simulate(config, out=folder)
    return config, folder


@pytest.fixture(scope="module")
def copy(recorded, tmp_path_factory):
    """With half of the samples of a class, rounded to a tenth of a deviation."""
    out = tmp_path_factory.mktemp("thinned") / "copy"
    made = thin(recorded[1], out, rounds=[4], step=0.1, train=20, test=10)
    return made, out


@given(st.sampled_from([0.05, 0.2, 0.5]), st.integers(0, 2**32 - 1))
def test_rounding_adds_the_same_share_of_the_covariance_in_every_direction(step, seed):
    """About step^2 / 12 of it, even where it is 2,500 times smaller; what is constant stays as it is."""
    rng = np.random.default_rng(seed)
    turned, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    mixed = rng.normal(size=(4000, 6)) * [1.0, 1.0, 0.3, 0.1, 0.05, 0.02] @ turned
    features = np.concatenate([mixed * 1e3, np.zeros((4000, 1)), np.full((4000, 1), 1.5)], axis=1)
    coding = Coding.of(features, step)
    found = coding.decode(coding.encode(features))
    shares = eigh(np.cov((found - features)[:, :6].T), np.cov(features[:, :6].T), eigvals_only=True)
    assert shares.max() < 1.5 * step**2 / 12
    np.testing.assert_array_equal(found[:, 6:], features[:, 6:])


def test_what_is_never_negative_stays_so_and_far_values_are_kept():
    rng = np.random.default_rng(0)
    features = np.maximum(rng.normal(0.0, 1.0, (500, 4)), 0.0)
    features[0, 0] = 400.0
    coding = Coding.of(features, 0.1)
    codes = coding.encode(features)
    assert codes.dtype == np.int16
    assert coding.decode(codes).min() == 0.0
    assert coding.decode(codes)[0, 0] == pytest.approx(400.0, rel=0.01)


def test_features_that_are_not_finite_have_no_codes():
    with pytest.raises(RecordError, match="a feature is not finite"):
        Coding.of(np.array([[1.0, np.inf]]), 0.1)


def test_the_copy_is_a_runs_folder_scored_on_what_it_has(recorded, copy):
    """Its rows are not the run's, which lie beside them, but near; and come again whenever they are replayed."""
    (made, out), (_, folder) = copy, recorded
    run, own = read_run(out), Tables.read(out / "original")
    assert sorted({r["round"] for r in run.tables.metrics}) == [2, 4, 10]
    assert {r["method"] for r in run.tables.metrics} == set(METHODS)
    whole = [r for r in Tables.read(folder).metrics if r["round"] in (2, 4, 10)]
    assert list(own.metrics) == whole
    assert [r["round"] for r in own.diagnostics if not r["method"]] == [2, 4, 10] * 2
    assert sum(r["count"] for r in run.tables.confusion) == sum(r["count"] for r in own.confusion) / 2
    last = made.about["f1_differs_by_up_to"]
    gaps = [abs(a["f1"] - b["f1"]) for a, b in zip(run.tables.metrics, whole, strict=True) if a["class"] == "truck"]
    assert max(gaps) == pytest.approx(last, abs=2e-6)
    assert 0 < last < 0.5
    found = replay(out, METHODS)
    assert found.rounds == (2, 4, 10)
    assert {series.method for series in found.again} == set(METHODS)
    assert all((again.rows, again.differ) == (6, 0) for again in found.again.values())


def test_the_copy_says_what_it_is_and_of_what(recorded, copy):
    (made, out), (config, folder) = copy, recorded
    manifest, source = (json.loads((path / "manifest.json").read_text()) for path in (out, folder))
    about = manifest["thinned"]
    assert about == made.about
    assert (about["mpt"], about["bench"]) == (__version__, ENGINE)
    assert (about["rounds"], about["step"], about["train"], about["test"]) == ([2, 4, 10], 0.1, 20, 10)
    assert about["from"]["key"] == key_of(config, source)
    assert about["from"]["bench"] == source["bench"] == ENGINE
    assert about["from"]["counts"] == source["counts"]
    assert manifest["counts"] == {"train": [20, 20, 40, *[20] * 5], "test": [10] * 8}
    assert made.size == sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    assert made.source == Record.of(folder).size > 5 * Record.of(out).size
    files = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    tables = {f"{name}.csv" for name in ("metrics", "diagnostics", "confusion")}
    names = ("samples", "000002", "000004", "000010")
    records = {f"record/{seed:04d}-{what}.npz" for seed in (0, 1) for what in names}
    assert files == {"config.toml", "manifest.json", *tables, *(f"original/{name}" for name in tables), *records}


def test_a_new_method_is_scored_compared_and_reported_on_the_copy(recorded, copy, tmp_path):
    out = tmp_path / "copy"
    shutil.copytree(copy[1], out)
    done = call("replay", out, "--methods", f"mpt,{EXAMPLE}")
    assert done.exit_code == 0, done.stderr
    assert "mpt: mpt: the run's own numbers again, in all 6 rows\n" in done.stderr
    (pair,) = compare(out, methods=["my-method"], against="mpt").pairs
    assert (pair.seeds, pair.rounds) == ((0, 1), (4, 10))
    assert {p.rows[0].method for p in compare(recorded[1], out).pairs} == set(METHODS)
    page = write_report(out).read_text()
    assert "This is a thinned copy of a run: rounds 2, 4 and 10, features rounded to 0.1 deviations" in page
    what = json.loads((out / "replay" / "methods.json").read_text())["my-method"]
    assert (what["mpt"], what["bench"]) == (__version__, ENGINE)


def test_all_samples_finely_rounded_give_nearly_the_runs_numbers(recorded, tmp_path):
    made = thin(recorded[1], tmp_path / "fine", rounds=[4, 6, 8], seeds=1)
    assert (made.about["step"], made.about["train"], made.about["test"]) == (0.05, 40, 20)
    assert made.config.seeds == 1
    before = {row.series: row for row in made.original.summaries}
    distances = {}
    for figures in (made.figures, made.original):
        for record in figures.by_series[Series("mpt", "mahalanobis")]:
            distances.setdefault(record["round"], []).append(record["prototype_distance"])
    assert list(distances) == [2, 4, 6, 8, 10]
    assert all(distances[n][0] == pytest.approx(distances[n][1], rel=0.02) for n in (4, 6, 8, 10))
    for row in made.figures.summaries:
        assert row.f1 == pytest.approx(before[row.series].f1, abs=0.06), row.series


def test_trainings_that_no_kept_method_reads_are_left_out(recorded, tmp_path):
    made = thin(recorded[1], tmp_path / "one", methods=["mpt", "oracle-train"], step=0.1)
    assert made.about["trainings"] == ["held-out"]
    samples = Record.of(tmp_path / "one").samples(0)
    assert list(Record.of(tmp_path / "one").round(0, 10, samples)) == ["held-out"]
    assert set(json.loads((tmp_path / "one" / "manifest.json").read_text())["trainings"]) == {"mpt", "oracle-train"}
    refused = call("replay", tmp_path / "one", "--methods", "fedavg")
    assert refused.exit_code == 2
    assert "fedavg reads the training 'continued'" in refused.stderr


def test_the_same_run_gives_the_same_record(recorded, copy, tmp_path):
    thin(recorded[1], tmp_path / "again", rounds=[4], step=0.1, train=20, test=10)
    for path in (copy[1] / "record").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / "record" / path.name).read_bytes()


def test_samples_are_drawn_by_class_and_vehicle_and_the_rare_ones_kept(recorded):
    """Of every class on every vehicle the same share; of the rare one all; of test samples the same share of each."""
    samples = Record.of(recorded[1]).samples(0)
    selection = Selection.of(samples, 2, Amount(0.1, 10, 5), 0)
    kept = selection.labels(samples, (2, 10))
    for vehicle, labels in samples.labels.items():
        here, there = (np.bincount(some, minlength=8) for some in (kept.labels[vehicle], labels))
        expected = -(-there // 4)
        expected[2] = there[2]
        np.testing.assert_array_equal(here, expected)
    np.testing.assert_array_equal(np.bincount(kept.test_labels), [5] * 8)
    whole = Record.of(recorded[1]).round(0, 10, samples)["held-out"]
    thinned = selection.features(whole)
    for vehicle, places in ((v, selection.vehicles[v]) for v in thinned.features):
        np.testing.assert_array_equal(thinned.features[vehicle], whole.features[vehicle][places])
    np.testing.assert_array_equal(thinned.test, whole.test[selection.test])
    np.testing.assert_array_equal(thinned.rare_mean, whole.rare_mean)


def test_by_default_two_rounds_lie_between_the_departure_and_the_last():
    plan = Plan.of(make_config({"methods": ["mpt"]}), 0, 0)
    assert rounds_of(plan, ()) == (15, 30, 55, 100)
    assert rounds_of(plan, (30, 60)) == (15, 30, 60, 100)
    with pytest.raises(ConfigError, match="rounds: 33 was not recorded, should be of 5, 10, 15"):
        rounds_of(plan, (33,))


@pytest.mark.slow
def test_less_is_kept_the_less_room_there_is(recorded, tmp_path):
    """Coarser steps first, fewer samples then; and what fits nowhere is refused, with nothing left behind."""
    sizes = {}
    for most in (2_000_000, 900_000, 500_000):
        made = thin(recorded[1], tmp_path / str(most), methods=["mpt", "fedavg"], most=most)
        assert made.size <= most
        sizes[most] = made.about["step"], made.about["train"], made.about["test"]
    assert sizes[2_000_000] == (0.05, 40, 20)
    assert sizes[900_000][0] > 0.05
    assert sizes[500_000][1] < 40
    with pytest.raises(ConfigError, match=r"thin: at least .* kB with 4 rounds of 2 seeds .* at most 60.0 kB; fewer"):
        thin(recorded[1], tmp_path / "none", most=60_000)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(map(str, sizes))


def test_a_copy_is_not_taken_for_the_run(recorded, copy, tmp_path):
    config, _ = recorded
    out = tmp_path / "copy"
    shutil.copytree(copy[1], out)
    with pytest.raises(OtherRunError, match="holds a thinned copy, which cannot be gone on with"):
        simulate(config, out=out)
    simulate(small("frozen", rounds=3), out=out, overwrite=True)
    assert not (out / "original").exists()
    with pytest.raises(RecordError, match="holds a thinned copy, should be the run itself"):
        thin(copy[1], tmp_path / "twice")


def test_a_run_of_another_bench_is_not_gone_on_with(recorded, tmp_path):
    config, folder = recorded
    out = tmp_path / "run"
    shutil.copytree(folder, out)
    known = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps({k: v for k, v in known.items() if k != "bench"}))
    assert not simulate(config, out=out).computed, "runs from before there was a number are of bench 1"
    (out / "manifest.json").write_text(json.dumps({**known, "bench": ENGINE + 1}))
    with pytest.raises(OtherRunError, match=f"holds a run with bench {ENGINE + 1}, not {ENGINE}"):
        simulate(config, out=out)


def test_what_cannot_be_thinned_is_one_sentence(recorded, copy, tmp_path):
    folder, new = recorded[1], tmp_path / "new"
    simulate(small("mpt", rounds=3, record=False), out=tmp_path / "plain")
    for run, out, more, message in (
        (tmp_path / "plain", new, (), f"thin: {tmp_path / 'plain'} holds a run without a record"),
        (tmp_path / "nowhere", new, (), f"{tmp_path / 'nowhere'}: there is no such folder"),
        (folder, copy[1], (), f"out: {copy[1]} is there and not empty"),
        (folder, new, ("--rounds", "3"), "rounds: 3 was not recorded, should be of 2, 4, 6, 8, 10"),
        (folder, new, ("--rounds", "two"), "rounds: 'two', should be whole numbers with commas between"),
        (folder, new, ("--methods", "mtp"), "methods: 'mtp' is none of the run's, did you mean mpt?"),
        (folder, new, ("--seeds", "3"), "seeds: 3, should be at most 2"),
        (folder, new, ("--step", "2"), "step: 2, should be from 0.01 to 1"),
        (folder, new, ("--train", "0"), "train: 0, should be at least 1"),
        (folder, new, ("--most", "many"), "most: 'many', should be a size such as 5MB or 800kB"),
        (folder, new, ("--most", "9kB"), "thin: at least "),
    ):
        done = call("thin", run, out, *more)
        assert done.exit_code == 2, message
        assert done.stderr.startswith(f"mpt: {message}"), done.stderr
        assert done.stderr.count("\n") == 1
        assert not new.exists()
    done = call("thin", folder, new, "--most", "0.9 MB", "--methods", "mpt")
    assert done.exit_code == 0, done.stderr
    assert "mpt: kept: rounds 2, 4, 6, 10, held-out, steps of 0.05, 40 training and 20 test samples" in done.stderr
    assert any(line.split()[:2] == ["mpt", "mahalanobis"] for line in done.stdout.splitlines())
    assert done.stdout.splitlines()[-1].startswith(f"{new}: ")


def test_a_record_of_a_later_version_is_refused(copy, tmp_path):
    out = tmp_path / "copy"
    shutil.copytree(copy[1], out)
    path = Path(out / "record" / "0000-samples.npz")
    with np.load(path) as found:
        arrays = {**found, "version": np.array(3)}
    np.savez(path, **arrays)
    with pytest.raises(RecordError, match="has version 3, should be 1 or 2"):
        replay(out, ["mpt"])


@pytest.mark.parametrize("arrays", [{"labels": np.arange(3)}, {"version": np.array(2)}])
def test_a_record_that_lacks_something_is_one_sentence(copy, tmp_path, arrays):
    out = tmp_path / "copy"
    shutil.copytree(copy[1], out)
    np.savez(out / "record" / "0000-samples.npz", **arrays)
    with pytest.raises(RecordError, match=r"0000-samples\.npz cannot be read \(KeyError"):
        replay(out, ["mpt"])


def test_a_run_whose_own_method_has_changed_is_not_thinned(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(Path(EXAMPLE.partition(":")[0]).read_text())
    simulate(small("oracle-train", f"{mine}:MyMethod", rounds=4, dataset="road?train=12&test=6"), out=tmp_path / "run")
    mine.write_text(mine.read_text() + "\n# another\n")
    with pytest.raises(RunError, match=r"mine\.py:MyMethod has changed since the run"):
        thin(tmp_path / "run", tmp_path / "copy")


def test_seeds_that_do_not_begin_with_0_are_thinned_and_replayed(tmp_path):
    config = small("mpt", "oracle-train", rounds=4, seeds=2, first_seed=3, dataset="road?train=12&test=6")
    simulate(config, out=tmp_path / "run")
    thin(tmp_path / "run", tmp_path / "copy", step=0.05)
    assert sorted(path.name[:4] for path in (tmp_path / "copy" / "record").glob("*-samples.npz")) == ["0003", "0004"]
    assert replay(tmp_path / "copy", ["mpt"]).again
    assert {row["seed"] for row in read_run(tmp_path / "copy").tables.metrics} == {3, 4}
