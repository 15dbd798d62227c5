"""Two views in whole federations: rows, what they send, resuming, and the replay of a record."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.core import NearestClassMean
from mpt.core.two_views import JoinedViews
from mpt.data import load
from mpt.federation.engine import Federation
from mpt.federation.living import row_of
from mpt.federation.lockstep import rounds
from mpt.federation.stored import side_by_side
from mpt.methods import Asks, MethodError, find_method
from mpt.methods.registry import find_on_fleet, on_fleets
from mpt.scenario import PlanError

from .test_engine import PLAN, without_seconds

ROWS = ("mpt-x", "mpt-duo", "oracle-train:duo", "live:duo", "stop-at-departure")
PLAN_DUO = replace(PLAN, methods=ROWS, rounds=5)


@pytest.fixture(scope="module")
def dataset():
    return load("road?train=24&test=12", image_size=28)


@pytest.fixture(scope="module")
def ran(dataset):
    """The rows, the states between rounds, and what the server sees in each round."""
    seen, states, made = {}, {}, []
    federation = Federation(dataset, PLAN_DUO, torch.device("cpu"), record=lambda n, views: seen.update({n: views}))
    for state, rows in rounds(federation, federation.start()):
        states[state.round] = state
        made += rows
    return made, states, seen


@pytest.fixture(scope="module")
def whole(ran):
    return ran[0]


def rows_of(rows, method):
    return {row.round: row for row in rows if row.method == method}


@pytest.mark.parametrize("method", ["mpt-duo", "oracle-train:duo", "live:duo"])
def test_there_is_one_row_in_every_round_and_two_views_after_the_departure(whole, method):
    rows = rows_of(whole, method)
    assert set(rows) == {1, 2, 3, 4, 5}
    assert {row.readout for row in rows.values()} == {"own"}
    assert isinstance(rows[PLAN.depart_at].applied, NearestClassMean)
    assert isinstance(rows[5].applied, JoinedViews)
    assert rows[5].applied.departed == (PLAN.rare,)
    assert rows[5].applied.known.all()


def test_the_current_view_alone_is_mpt_x(whole):
    duo, tracked = rows_of(whole, "mpt-duo")[5], rows_of(whole, "mpt-x")[5]
    np.testing.assert_allclose(duo.applied.current.prototypes, tracked.applied.prototypes, atol=1e-9)
    assert duo.notes == tracked.notes


def test_it_sends_one_matrix_more_than_mpt_x_and_a_static_part_once(whole):
    duo, tracked = rows_of(whole, "mpt-duo"), rows_of(whole, "mpt-x")
    more = {n: duo[n].cost.bytes_up - tracked[n].cost.bytes_up for n in duo}
    assert more[PLAN.depart_at] == 0
    assert more[3] > more[4] == more[5] > 0
    assert duo[5].cost.messages == tracked[5].cost.messages + 1


def test_a_run_that_is_resumed_from_what_was_kept_gives_the_same_rows(dataset, ran):
    rows, states, _ = ran
    resumed = replace(states[4], method_states=pickle.loads(pickle.dumps(states[4].method_states)))
    again = Federation(dataset, PLAN_DUO, torch.device("cpu"))
    new = [row for _, some in rounds(again, resumed) for row in some]
    assert list(map(without_seconds, new)) == [without_seconds(row) for row in rows if row.round > 4]


def test_the_scores_are_of_the_test_samples_under_both_models(dataset, ran):
    rows, _, seen = ran
    view, row = seen[5]["held-out"], rows_of(rows, "mpt-duo")[5]
    both = np.concatenate([view.features.test, view.before.test], axis=1)
    predicted = row.applied.predict(both)
    assert np.mean(predicted[dataset.test.labels == PLAN.rare] == PLAN.rare) == row.scores.recall[PLAN.rare]
    per_class = [np.mean(predicted[dataset.test.labels == c] == c) for c in range(dataset.num_classes)]
    assert np.mean(per_class) == pytest.approx(row.scores.balanced_accuracy)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("mpt-duo(joining='mean')", "joining: 'mean', should be joint or sum"),
        ("mpt-duo(share=2)", "share: 2, should be a number from 0 to 1"),
        ("mpt-duo(joint_ridge=-1)", "joint_ridge: -1"),
        ("mpt-duo(knows='all')", "knows: 'all', should be mpt-x or train"),
    ],
)
def test_nonsense_is_refused(text, sentence):
    with pytest.raises(MethodError, match=sentence):
        find_method(text)


def test_a_fleet_runs_it_but_not_what_knows_the_departed_samples():
    assert {"mpt-duo", "oracle-train:duo", "live:duo"} & set(on_fleets()) == {"mpt-duo"}
    assert find_on_fleet("mpt-duo(joining='sum')").asks == Asks(cross=True, joint=True)
    for name in ("oracle-train:duo", "live:duo", "mpt-duo(training='fedlc')"):
        with pytest.raises(MethodError, match="knows what no server knows"):
            find_on_fleet(name)


@pytest.mark.parametrize("name", ["oracle-train:duo", "live:duo"])
def test_a_scenario_has_no_rows_to_compare_it_with(name):
    assert row_of("mpt-duo").kind == "tracked"
    with pytest.raises(PlanError, match="is there to compare mpt-duo with"):
        row_of(name)


def test_a_readout_of_two_views_needs_both(whole):
    readout = rows_of(whole, "mpt-duo")[5].applied
    with pytest.raises(MethodError, match="takes features of 2 models, should be of the 1 here"):
        side_by_side(readout, np.zeros((2, 4)), ())
