"""Features that are begun together, and readouts that are applied together, are those of each alone."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.core import NearestClassMean
from mpt.data import load
from mpt.federation.engine import Federation, run
from mpt.federation.features import Features
from mpt.federation.metrics import confusion_matrix
from mpt.federation.plan import Plan
from mpt.methods import MethodError
from mpt.methods.icarl import Cosine
from mpt.methods.simple import Linear
from tests.federation.test_engine import PLAN, Spy

TIMELESS = {"vehicle_seconds": 0.0, "server_seconds": 0.0}


@pytest.fixture(scope="module")
def dataset():
    return load("road?train=40&test=20", image_size=28)


@pytest.fixture(scope="module")
def federation(dataset):
    return Federation(dataset, PLAN, torch.device("cpu"))


def test_begun_together_as_each_alone(federation, monkeypatch):
    model = federation.start().models["held-out"]
    begun, alone = Features(federation, model), Features(federation, model)
    begun.begin([0, 2])
    with monkeypatch.context() as patched:
        patched.setattr(Federation, "embed", None)
        begun.begin([0, 2])
        found = [begun.test, begun.test_mean, begun.rare_mean, begun.vehicle(0), begun.vehicle(2)]
    expected = [alone.test, alone.test_mean, alone.rare_mean, alone.vehicle(0), alone.vehicle(2)]
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-7)
        assert not mine.flags.writeable
    np.testing.assert_array_equal(begun.vehicle(1), alone.vehicle(1))


def test_readouts_are_applied_together_as_each_alone(federation, dataset):
    features = Features(federation, federation.start().models["held-out"])
    rng, classes = np.random.default_rng(0), dataset.num_classes
    prototypes = rng.standard_normal((classes, features.test.shape[1]))
    missing = prototypes.copy()
    missing[2] = np.nan
    readouts = [NearestClassMean(prototypes), Cosine(missing), NearestClassMean(missing), Linear(*features.head)]
    together = features._linear_confusions(readouts)
    assert together.shape == (4, classes, classes)
    for readout, matrix in zip(readouts, together, strict=True):
        alone = confusion_matrix(readout.predict(features.test), dataset.test.labels, classes)
        np.testing.assert_array_equal(matrix, alone)
    short = Linear(features.head[0][1:], features.head[1][1:])
    with pytest.raises(MethodError, match=f"Linear.to_linear gave {classes - 1} rows, should be {classes}"):
        features._linear_confusions([readouts[0], short])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_on_a_gpu_rows_are_those_of_the_reference_loop(dataset):
    plan = Plan(
        rare=2,
        methods=("mpt", "mpt-x", "sdc", "icarl", "frozen", "fedavg", "oracle-train"),
        vehicles=4,
        remaining=0.1,
        rounds=4,
        depart_at=2,
        eval_every=1,
        epochs=1,
        precision="float32",
    )
    still = run(dataset, replace(plan, engine="plain"), trainer=Spy())
    there = run(dataset, plan, trainer=Spy(), device="cuda")
    for mine, theirs in zip(there, still, strict=True):
        assert (mine.method, mine.round, mine.readout) == (theirs.method, theirs.round, theirs.readout)
        assert abs(mine.scores.accuracy - theirs.scores.accuracy) < 0.03
        for ours, others in ((mine.cost, theirs.cost), (mine.readout_cost, theirs.readout_cost)):
            assert replace(ours, **TIMELESS) == replace(others, **TIMELESS)
