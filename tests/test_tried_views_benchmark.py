"""`benchmarks/tried_views.py`: that what is tried does what it says, and that the command runs, on digits."""

import importlib.util
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")
covariance = pytest.importorskip("sklearn.covariance", reason="it brings the digits")
pytest.importorskip("PIL", reason="the extra data is not installed")

from mpt.core import ClassStatistics, NearestClassMean
from mpt.data import load
from mpt.federation.engine import Federation
from mpt.federation.jobs import train_plain
from mpt.federation.plan import Plan
from mpt.learning import LearningError, cross_entropy
from mpt.methods.simple import Frozen

HERE = Path(__file__).parents[1] / "benchmarks"
FILE = str(HERE / "tried_rules.py")
RARE = 8


@pytest.fixture(scope="module")
def bench():
    sys.path.insert(0, str(HERE))
    spec = importlib.util.spec_from_file_location("tried_views_benchmark", HERE / "tried_views.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(HERE))
        del sys.modules[spec.name]


@pytest.fixture(scope="module")
def rules(bench):
    return sys.modules[bench.TriedFederation.__module__]


@pytest.fixture(scope="module")
def digits():
    return load("digits", per_class=40)


def federation(made, digits, *trainings):
    """With a row for each training; the departure is after the first round."""
    plan = Plan(rare=RARE, rounds=3, depart_at=1, eval_every=1, epochs=1, batch_size=8, seed=0)
    rows = [Frozen(f"frozen {t}", t) for t in trainings]
    return made(digits, plan, torch.device("cpu"), methods=rows)


def models(federation, rounds):
    """Each round's, by training."""
    state, found = federation.start(), []
    for _ in range(rounds):
        state, _ = federation.advance(state)
        found.append({t: model.tensors for t, model in state.models.items()})
    return found


def test_a_pull_of_one_keeps_the_model_and_half_a_pull_goes_half_way(rules, digits):
    whole, half = f"{FILE}:tried(pull=1.0)", f"{FILE}:tried(pull=0.5)"
    departure, after = models(federation(rules.TriedFederation, digits, "held-out", whole, half), rounds=2)
    moved = False
    for name, then in departure["held-out"].items():
        if not then.is_floating_point():
            continue
        torch.testing.assert_close(departure[half][name], then, rtol=0, atol=0)
        torch.testing.assert_close(after[whole][name], then, rtol=0, atol=0)
        torch.testing.assert_close(after[half][name], (then + after["held-out"][name]) / 2)
        moved |= not torch.equal(after["held-out"][name], then)
    assert moved


def test_an_engine_that_knows_nothing_of_it_refuses(digits):
    with pytest.raises(LearningError, match="tried_views"):
        models(federation(Federation, digits, f"{FILE}:tried(pull=0.5)"), rounds=1)


def soft_job(rules, digits):
    """The job after the departure, and its federation and the state before it."""
    made = federation(rules.TriedFederation, digits, f"{FILE}:tried(soft=0.3)")
    state, _ = made.advance(made.start())
    (job,) = made.jobs(state).values()
    return made, job, next(iter(state.models.values()))


def test_soft_labels_are_the_departures_readout_and_the_loss_is_as_by_hand(rules, digits):
    made, job, departure = soft_job(rules, digits)
    features = {v: made.embed(departure, s.images)[0].numpy() for v, s in made.vehicles.items()}
    pooled = np.concatenate([features[v] for v in made.vehicles])
    labels = np.concatenate([made.labels[v] for v in made.vehicles])
    stats = ClassStatistics.from_features(pooled, labels, 10, watched=RARE)
    readout = NearestClassMean(stats.means, stats.covariance(), cov_ridge=made.plan.cov_ridge)
    vehicle = next(v for v in job.vehicles if v != made.partition.owner)
    mine = features[vehicle][made.labels[vehicle] != RARE]
    likely = np.exp(-(readout.distances(mine) ** 2) / 2)
    likely /= likely.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(job.loss.targets[vehicle].numpy(), likely, rtol=1e-6, atol=1e-9)
    assert likely[:, RARE].max() > 0

    logits = torch.randn(len(mine), 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logs = (logits - logits.logsumexp(dim=1, keepdim=True)).numpy()
    hard = job.vehicles[vehicle].labels
    by_hand = -logs[np.arange(len(mine)), hard.numpy()].mean() - 0.3 * (likely * logs).sum(axis=1).mean()
    assert float(job.loss.value(logits, hard, torch.from_numpy(likely))) == pytest.approx(by_hand)


def test_soft_labels_meet_the_images_that_they_are_of(rules, digits):
    made, job, _ = soft_job(rules, digits)
    same = {v: torch.nn.functional.one_hot(s.labels, 10).double() for v, s in job.vehicles.items()}
    softly = rules.train_softly(made.model, replace(job, loss=rules.SoftLabels(1.0, same)))
    (twice,) = train_plain(made.model, [replace(job, loss=lambda *batch: 2 * cross_entropy(*batch))])
    (once,) = train_plain(made.model, [replace(job, loss=cross_entropy)])
    torch.testing.assert_close(softly["head.weight"], twice["head.weight"], rtol=1e-3, atol=1e-5)
    assert float((softly["head.weight"] - once["head.weight"]).abs().max()) > 1e-3


def test_what_is_set_aside_is_never_trained_on(rules, digits):
    labels = np.array([0] * 10 + [1] * 25 + [2] * 9)
    mask = rules.set_aside(labels, 0.1)
    assert np.flatnonzero(mask).tolist() == [9, 19, 29]
    made = federation(rules.TriedFederation, digits, f"{FILE}:tried(aside=0.25)", "held-out")
    whole, aside = made.jobs(made.start()).values()
    for vehicle, samples in whole.vehicles.items():
        kept = ~rules.set_aside(samples.labels.numpy(), 0.25)
        assert torch.equal(aside.vehicles[vehicle].images, samples.images[torch.from_numpy(kept)])
    assert sum(len(s.labels) for s in aside.vehicles.values()) < sum(len(s.labels) for s in whole.vehicles.values())


def test_oas_is_scikit_learns_as_a_ridge(rules):
    rows = np.random.default_rng(0).normal(size=(400, 60)) * np.linspace(0.2, 2, 60)
    shrunk, rho = covariance.oas(rows, assume_centered=True)
    sample = rows.T @ rows / len(rows)
    ridge = rules.oas_ridge(sample, len(rows))
    assert ridge == pytest.approx(rho / (1 - rho), rel=0.05)
    mine = sample + ridge * np.trace(sample) / 60 * np.eye(60)
    np.testing.assert_allclose(mine / np.trace(mine), shrunk / np.trace(shrunk), atol=1e-4)


def test_tukey_reads_roots_of_the_same_models_features(rules, digits):
    tukey = f"{FILE}:tried(tukey=True)"
    seen = {}
    made = federation(rules.TriedFederation, digits, "held-out", tukey)
    made.record = seen.setdefault
    state, _ = made.advance(made.start())
    made.advance(state)
    for number in (1, 2):
        plain, roots = seen[number]["held-out"], seen[number][tukey]
        np.testing.assert_allclose(roots.features.test, np.sqrt(plain.features.test))
        np.testing.assert_allclose(roots.before.vehicle(0), np.sqrt(plain.before.vehicle(0)))


@pytest.mark.slow
def test_the_command_writes_all_rows_and_a_table(bench, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bench.Cell, "load", lambda self, folder: load("digits", per_class=100))
    args = SimpleNamespace(results=tmp_path / "out.csv", cells=["digits:8"], data=None, seeds=1, first_seed=0)
    vars(args).update(rounds=2, depart_at=1, eval_every=1, epochs=1, seconds=1e9, trainings=None)
    bench.run_cells(args)
    lines = bench.lines_in(args.results)
    assert {(one[6], one[7]) for one in lines} == {(t, row) for t, row, _ in bench.methods().values()}
    assert len(lines) == len(bench.methods())
    told = {one[7]: float(one[11]) for one in lines if one[11]}
    assert set(told) == {"mpt-x:oas", "mpt-x:told", "mpt-x:inward"}
    assert 0 <= told["mpt-x:told"] <= 1
    printed = capsys.readouterr().out
    assert "| pull .1 | mpt-duo |" in printed
    bench.run_cells(args)
    assert "seed 0:" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_record_is_read_out_of_roots_too(bench, tmp_path):
    ship = HERE.parent / "results" / "record-ship"
    if not ship.exists():
        pytest.skip("results/record-ship is not there")
    lines = bench.replay_run(Path(shutil.copytree(ship, tmp_path / "ship")))
    balanced = {(one[6], one[7]): float(one[9]) for one in lines if one[5] == "100"}
    assert balanced["tukey", "mpt-x"] > balanced["held-out", "mpt-x"] + 0.003
    assert balanced["held-out", "mpt-x:gamma 0"] != balanced["held-out", "mpt-x:gamma 1"]
