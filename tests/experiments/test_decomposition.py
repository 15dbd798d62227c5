"""The round after a departure taken apart, small: digits, 4 vehicles, a departure after the third round."""

import csv
import importlib
import io
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="mpt.experiments needs torch, which is not installed")

from mpt.data import load
from mpt.experiments.decomposition import VARIANTS, decompose, next_models, prepared
from mpt.federation.engine import Federation, run
from mpt.federation.lockstep import rounds
from mpt.federation.plan import Plan
from mpt.learning.averaging import batchnorm_prefixes
from mpt.learning.threads import with_threads
from mpt.scenario import PlanError

PLAN = Plan(rare=8, vehicles=4, remaining=0.2, depart_at=3, epochs=1, batch_size=32, lr=0.05, engine="plain")
BACKBONES = """
from torch import nn

def flat(in_channels, image_size, *norm):
    made = nn.Sequential(
        nn.Conv2d(in_channels, 8, 5, stride=4), *norm, nn.ReLU(), nn.Flatten(), nn.LazyLinear(16), nn.ReLU()
    )
    made.dim = 16
    return made

def normed(in_channels, image_size):
    return flat(in_channels, image_size, nn.BatchNorm2d(8))
"""


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """So that trainers that share threads out differently give the same bits."""
    with with_threads(1):
        yield


@pytest.fixture(scope="module")
def dataset():
    return load("digits", per_class=40)


@pytest.fixture(scope="module")
def backbones(tmp_path_factory):
    path = tmp_path_factory.mktemp("backbones") / "backbones.py"
    path.write_text(BACKBONES)
    return path


@pytest.fixture(scope="module")
def normed(backbones):
    """The plan, with BatchNorm."""
    return replace(PLAN, backbone=f"{backbones}:normed")


@pytest.fixture(scope="module")
def flat(backbones):
    """The plan, without."""
    return replace(PLAN, backbone=f"{backbones}:flat")


def departed(dataset, plan):
    """A federation, its state after the departure's round and after the next."""
    federation = Federation(dataset, prepared(plan), torch.device("cpu"))
    states = {state.round: state for state, _ in islice(rounds(federation, federation.start()), plan.depart_at + 1)}
    return federation, states[plan.depart_at], states[plan.depart_at + 1]


def differing(left, right):
    return {name for name in left if not torch.equal(left[name], right[name])}


def test_each_variant_changes_its_own_part_of_the_model_and_no_other(dataset, normed):
    federation, then, after = departed(dataset, normed)
    (made,) = next_models([federation], [then])
    assert list(made) == list(VARIANTS)
    own = {training: model.tensors for training, model in after.models.items()}
    assert not differing(made["all three"], own["held-out"])
    assert not differing(made["weight + batchnorm"], own["continued"])
    assert not differing(made["live"], own["live"])
    names = ("running_mean", "running_var", "num_batches_tracked")
    buffers = {f"{prefix}.{name}" for prefix in batchnorm_prefixes(federation.model) for name in names}
    assert len(buffers) == 3
    changed = {name: differing(made[name], made["live"]) for name in made}
    assert changed["batchnorm"] == buffers
    assert changed["weight"] == {name for name, _ in federation.model.named_parameters()}
    assert not differing(made["weight"], own["continued"]) - buffers
    assert not {n for n in differing(made["batchnorm"], own["continued"]) if n in buffers}
    assert changed["training"] >= changed["weight"]
    assert differing(made["training"], own["held-out"]) >= changed["weight"]


def test_the_departing_vehicle_still_counts_where_training_alone_changes(dataset, normed):
    """Beside the average written out: its own samples, the others' without the rare class."""
    federation, then, _ = departed(dataset, normed)
    (made,) = next_models([federation], [then])
    owner = federation.partition.owner
    jobs = federation.jobs(then)
    live = next(job for key, job in jobs.items() if owner in key.who)
    held_out = next(job for key, job in jobs.items() if key.held_out)
    alone = [replace(live, vehicles={owner: live.vehicles[owner]})]
    alone += [replace(held_out, vehicles={v: samples}) for v, samples in held_out.vehicles.items()]
    weights = [len(samples.labels) for job in alone for samples in job.vehicles.values()]
    weights = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    states = federation.train(federation.model, alone)
    for name, _ in federation.model.named_parameters():
        mean = sum(w * state[name].double() for w, state in zip(weights, states, strict=True))
        torch.testing.assert_close(made["training"][name].double(), mean, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("engine", ["plain", "fast"])
def test_figures_are_those_of_a_run(dataset, normed, engine):
    plans = [replace(normed, seed=seed, engine=engine) for seed in (3, 4)]
    found = decompose(dataset, plans)
    assert [one.seed for one in found] == [3, 4]
    for plan, one in zip(plans, found, strict=True):
        methods = ("frozen", "oracle-train")
        rows = run(dataset, replace(plan, methods=methods, rounds=plan.depart_at + 1, eval_every=1))
        *before, last = [row for row in rows if row.method == "frozen"]
        oracle = {row.round: row.f1 for row in rows if row.method == "oracle-train"}
        whole = one.after["all three"]
        assert (whole.step, whole.frozen, whole.oracle) == (last.drift, last.f1, oracle[4])
        assert (one.before.frozen, one.before.oracle) == (before[-1].f1, oracle[3])
        steps = [row.step for row in before if row.step is not None]
        assert len(steps) == 2
        assert one.before.step.references == pytest.approx(np.mean([s.references for s in steps]))
        assert one.before.step.rare == pytest.approx(np.mean([s.rare for s in steps]))
        assert one.layers == 1
        assert one.gap == 0
        live, *others = one.after.values()
        assert live.apart.references == pytest.approx(0, abs=1e-6)
        assert live.apart.rare == pytest.approx(0, abs=1e-6)
        assert all(o.apart.references > 1e-3 and o.apart.rare > 1e-3 for o in others)


def test_without_batchnorm_there_is_nothing_in_it(dataset, flat):
    federation, then, after = departed(dataset, flat)
    (made,) = next_models([federation], [then])
    assert not differing(made["batchnorm"], made["live"])
    assert not differing(made["weight"], made["weight + batchnorm"])
    assert not differing(made["all three"], after.models["held-out"].tensors)
    assert differing(made["weight"], made["live"])
    (one,) = decompose(dataset, [flat])
    assert one.layers == 0
    assert one.after["batchnorm"] == replace(one.after["live"], apart=one.after["batchnorm"].apart)
    assert one.after["batchnorm"].apart.references == pytest.approx(0, abs=1e-6)


def test_a_departure_after_the_first_round_has_no_steps_before(dataset, flat):
    (one,) = decompose(dataset, [replace(flat, depart_at=1)])
    assert np.isnan([one.before.step.references, one.before.step.rare]).all()
    assert one.after["all three"].step.rare > 0


def test_the_learning_rate_is_that_of_the_schedule_over_all_rounds(dataset, flat):
    """The live round is the engine's, though the rate of the whole run's 40 rounds falls by and by."""
    plan = replace(flat, schedule="cosine", rounds=40)
    federation, then, after = departed(dataset, plan)
    (made,) = next_models([federation], [then])
    assert not differing(made["live"], after.models["live"].tensors)
    assert {job.settings.lr for job in federation.jobs(then).values()} == {plan.training_in(plan.depart_at + 1).lr}
    with pytest.raises(PlanError, match="server: adam, should be average"):
        decompose(dataset, [replace(flat, server="adam")])


def test_who_takes_part_may_not_differ_as_well(dataset, flat):
    with pytest.raises(PlanError, match=r"participation: 0\.5, should be 1"):
        decompose(dataset, [replace(flat, participation=0.5)])


@pytest.fixture
def script(monkeypatch, tmp_path, dataset):
    """The benchmark as a command, on digits that are packed as its images are."""
    image = pytest.importorskip("PIL.Image", reason="the extra sim is not installed")
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    module, packed = importlib.import_module("drift_parts"), {"classes": np.array(dataset.classes)}
    for name, split in (("train", dataset.train), ("test", dataset.test)):
        files = []
        for pixels in split.images:
            image.fromarray(pixels[..., 0]).save(written := io.BytesIO(), "PNG")
            files.append(written.getvalue())
        packed |= {f"{name}_bytes": np.frombuffer(b"".join(files), np.uint8), f"{name}_labels": split.labels}
        packed[f"{name}_ends"] = np.cumsum([len(file) for file in files])
    np.savez(tmp_path / "digits.npz", **packed)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["drift_parts.py", str(tmp_path), str(tmp_path / "out.csv"), *words])
        module.main()
        return list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))

    return call, module


def test_the_benchmark_prints_a_table_a_regime_and_computes_nothing_twice(
    script, backbones, capsys, monkeypatch, tmp_path
):
    call, module = script
    settings = ("vehicles=4", "depart_at=2", "epochs=1", "device=cpu", "lr=0.05")
    words = ["--cells", "digits:8", "--seeds", "2", "--first-seed", "5"]
    for name in ("flat", "normed"):
        words += ["--set", name, f"backbone={backbones}:{name}", *settings]
    lines = call(*words)
    assert [line["variant"] for line in lines] == 4 * ["before", *VARIANTS]
    assert sorted({(line["regime"], line["seed"]) for line in lines}) == [
        ("flat", "5"), ("flat", "6"), ("normed", "5"), ("normed", "6")
    ]  # fmt: skip
    live = {(line["regime"], line["seed"]): float(line["step_rare"]) for line in lines if line["variant"] == "live"}
    for line in lines:
        ratio = float(line["step_rare"]) / live[line["regime"], line["seed"]]
        assert float(line["relative_rare"]) == pytest.approx(ratio, rel=1e-4)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert [line.split()[1] == "none" for line in printed.splitlines() if line.startswith("batchnorm")] == [True, False]
    monkeypatch.setattr(module, "decompose", None)
    assert call(*words) == lines
    for wrong, sentence in (
        (["--cells", "digits:8", "--set", "lr=-1"], "lr: -1, should be above 0"),
        (["--cells", "digits:8", "--set", "rounds=5"], "depart_at: 15, should be below 5, the number of rounds"),
        (["--cells", "nowhere:8"], "--cells: nowhere:8, should be a set that is in"),
    ):
        with pytest.raises(SystemExit):
            call(*wrong)
        assert sentence in capsys.readouterr().err
    (tmp_path / "out.csv").write_text("a,b\n")
    with pytest.raises(SystemExit):
        call(*words)
    assert "its columns are a,b, should be a file of this script" in capsys.readouterr().err
