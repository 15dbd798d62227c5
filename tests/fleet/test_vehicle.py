"""What a vehicle tells of its samples, and which loss it minimises."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.fleet import FleetError
from mpt.fleet.exchange import Ask
from mpt.fleet.local_data import shared
from mpt.fleet.vehicle import Vehicle, arrays
from mpt.protocol.question import Question
from mpt.protocol.request import StatisticsRequest
from tests.fleet.served import TRAINING, TRUCK, VEHICLES, fresh

pytestmark = pytest.mark.usefixtures("one_thread")


def test_classes_of_few_samples_are_left_out_of_reports_and_trained_on_all_the_same(dataset):
    model = fresh(dataset)
    held = shared(dataset, 0, VEHICLES, rare="truck", remaining=0.1, seed=0)
    counts = np.bincount(held.labels.numpy())
    few = counts[TRUCK]
    assert 0 < few < np.delete(counts, TRUCK).min()
    request = StatisticsRequest(1, dataset.num_classes, watched=(TRUCK,))
    ask = Ask("report", 1, arrays(model.state_dict()), request=Question(request).to_bytes())
    open_, close = (
        Vehicle("0", model, held, TRAINING, min_samples=least).answer(ask).answer for least in (few, few + 1)
    )
    told, kept = request.read(open_), request.read(close)
    assert told.counts[TRUCK] == few
    assert kept.counts[TRUCK] == 0
    assert not kept.sums[TRUCK].any()
    others = np.delete(np.arange(dataset.num_classes), TRUCK)
    np.testing.assert_array_equal(kept.sums[others], told.sums[others])
    np.testing.assert_array_equal(kept.scatter, told.scatter)
    vehicle = Vehicle("0", model, held, TRAINING, min_samples=few + 1)
    assert vehicle.answer(replace(ask, kind="train")).samples == len(held.labels)


def test_a_loss_is_installed_or_named_by_the_vehicles_own_configuration(dataset, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def none(logits, labels, counts):\n    return 0 * logits.sum()\n")
    spec, model = f"{path}:none", fresh(dataset)
    held = shared(dataset, 0, VEHICLES, rare="truck", remaining=0.1, seed=0)
    ask = Ask("train", 1, arrays(model.state_dict()))

    def moved(asked, **own):
        update = Vehicle("0", model, held, replace(TRAINING, weight_decay=0), **own).answer(replace(ask, loss=asked))
        return np.abs(update.model["head.weight"] - ask.model["head.weight"]).max()

    assert moved("cross-entropy") > 1e-4
    assert moved("fedlc(tau=0.3)") > 1e-4
    assert moved(spec, loss=spec) == 0
    with pytest.raises(FleetError, match="neither installed on this vehicle nor named by its own configuration"):
        moved(spec)
    path.write_text("raise SystemExit('imported')\n")
    with pytest.raises(FleetError, match="neither installed on this vehicle"):
        moved(spec)
