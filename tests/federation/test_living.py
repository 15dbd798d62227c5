"""A living federation: who trains, who is asked, what is held out, and what the rows are read from."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra sim is not installed")

import torch

from mpt.base.errors import MptError
from mpt.data import load
from mpt.federation.features import Features
from mpt.federation.living import CONCENTRATED, Living, row_of, spread
from mpt.federation.plan import Plan
from mpt.scenario import PlanError, absent_pairs, concentrated, parking_lot, present_when

RARE, HOLDER, ROUNDS = 9, 0, 7
LEFT, BACK = 3, 6
"""The holder's last round, and the first with it again."""


@pytest.fixture(scope="module")
def digits():
    return load("digits", per_class=20)


def living(digits, presence=None, methods=("mpt",), *, shares=None, asked=1.0, seed=0, **server):
    presence = presence or parking_lot(5, ROUNDS, {HOLDER: LEFT}, {HOLDER: BACK})
    shares = concentrated(len(presence.vehicles), 10, {RARE: HOLDER}, 0.1) if shares is None else shares
    plan = Plan(rounds=max(presence.rounds, 2), depart_at=1, rare=0, seed=seed, methods=methods, epochs=1, eval_every=1)
    return Living(digits, plan, presence, shares, torch.device("cpu"), {"grace": 0, **server}, asked)


def played(one):
    """Its rounds, and by round what was trained on: by job, the labels of each vehicle."""
    jobs, work = {}, one._ground.work

    def watched(given):
        for job in given:
            seen = {v: sorted(set(samples.labels.tolist())) for v, samples in job.vehicles.items()}
            jobs.setdefault(job.round, []).append(seen)
        return work(given)

    one._ground.work = watched
    return list(one.rounds()), jobs


def silent_in(presence, *where):
    """The same presence, where some (round, vehicle) do not answer."""
    silent = presence.silent.copy()
    for number, vehicle in where:
        silent[number - 1, vehicle] = True
    return replace(presence, silent=silent)


def saying_goodbye(presence, *where):
    goodbye = presence.goodbye.copy()
    for number, vehicle in where:
        goodbye[number - 1, vehicle] = True
    return replace(presence, goodbye=goodbye)


def same(one, other):
    """Whether two rounds are the same, by the rows that both have."""
    assert one.confusions.keys() & other.confusions.keys()
    for name in one.confusions.keys() & other.confusions.keys():
        np.testing.assert_array_equal(one.confusions[name], other.confusions[name])
        assert one.deposited.get(name) == other.deposited.get(name)
        assert one.bytes_up.get(name) == other.bytes_up.get(name)
    assert one.decisions == other.decisions
    assert (one.here, one.trained, one.answered, one.held_out) == (
        other.here, other.trained, other.answered, other.held_out
    )  # fmt: skip


OTHERS = ("oracle-train", "mpt:trained", "fedavg", "live", "fedavg:live")
METHODS = ("mpt", "mpt-x", "mpt-duo", "frozen", "remaining-mean", *OTHERS)


@pytest.fixture(scope="module")
def story(digits):
    """The holder leaves without a word after round 3 and is back in round 6; played once."""
    one = living(digits, methods=METHODS)
    return one, *played(one)


@pytest.mark.slow(minutes=0.1)
def test_rows_agree_before_any_departure(story):
    """And so do the trainings: there is one model to train."""
    _, rounds, jobs = story
    for one in rounds[:LEFT]:
        assert len(jobs[one.round]) == 1
        for name in ("mpt-x", "mpt-duo", "frozen", "remaining-mean", "oracle-train", "mpt:trained"):
            np.testing.assert_array_equal(one.confusions[name], one.confusions["mpt"])
        np.testing.assert_array_equal(one.confusions["fedavg"], one.confusions["fedavg:live"])
    away = rounds[LEFT]
    assert not np.array_equal(away.confusions["mpt"], away.confusions["frozen"])
    assert len(jobs[LEFT + 1]) == 2
    assert all(confusion.sum() == rounds[0].confusions["mpt"].sum() for confusion in away.confusions.values())


@pytest.mark.slow(minutes=0.1)
def test_held_out_classes_are_not_trained_on_until_the_holder_is_back(story):
    """The server learns of the departure in round 4, so round 5 is the first that holds the class out."""
    _, rounds, jobs = story
    assert [one.held_out for one in rounds] == [(), (), (), (RARE,), (RARE,), (), ()]
    trained = {number: [RARE in labels for labels in seen[0].values()] for number, seen in jobs.items()}
    assert not any(trained[LEFT + 2] + trained[BACK])
    assert all(sum(trained[number]) > 1 for number in (1, 2, 3, 4, BACK + 1))
    assert [len(seen) for seen in jobs.values()] == [1, 1, 1, 2, 3, 3, 3]
    continued = jobs[LEFT + 2][1]
    assert HOLDER not in continued
    assert any(RARE in labels for labels in continued.values())


@pytest.mark.slow(minutes=0.1)
def test_the_live_holders_never_leave(story):
    one, _, jobs = story
    assert one.always.there.all()
    assert not one.presence.there.all()
    for number in range(LEFT + 1, BACK):
        assert [HOLDER in seen for seen in jobs[number]].count(True) == 1
        assert RARE in jobs[number][-1][HOLDER]


@pytest.mark.slow(minutes=0.1)
def test_the_server_decides_and_the_truth_is_the_same_for_all_rows(story):
    one, rounds, _ = story
    assert np.argwhere(one.pairs).tolist() == [[number - 1, RARE] for number in range(LEFT + 1, BACK)]
    for number in range(1, ROUNDS + 1):
        assert rounds[number - 1].tracked == ((RARE,) if LEFT < number < BACK else ())
    said = {one.round: [d.what for d in one.decisions if RARE in d.classes and d.what != "verdict"] for one in rounds}
    assert said == {1: ["watched"], 4: ["departed", "deposited", "held-out"], 6: ["recovered"]} | {
        number: [] for number in (2, 3, 5, 7)
    }


@pytest.mark.slow(minutes=0.1)
def test_reports_are_counted_in_bytes(story):
    one, rounds, _ = story
    tracked = {row.name for row in one.rows if row.kind == "tracked"}
    assert tracked == {"mpt", "mpt-x", "mpt-duo", "frozen", "remaining-mean", "mpt:trained"}
    for now in rounds:
        assert now.bytes_up.keys() == tracked
        assert now.state_bytes > 0
    assert rounds[2].bytes_up["mpt-x"] == rounds[2].bytes_up["mpt"] > rounds[3].bytes_up["mpt"]
    assert rounds[4].bytes_up["mpt-x"] > 2 * rounds[4].bytes_up["mpt"]
    assert rounds[4].bytes_up["mpt-duo"] > 1.4 * rounds[4].bytes_up["mpt-x"]


@pytest.mark.slow(minutes=0.1)
def test_the_same_seed_gives_the_same_rounds_whatever_other_rows_there_are(digits, story):
    _, rounds, _ = story
    for one, other in zip(rounds, living(digits, methods=("remaining-mean", "live")).rounds(), strict=True):
        same(one, other)
    other = next(living(digits, methods=("mpt",), seed=1).rounds())
    assert not np.array_equal(other.confusions["mpt"], rounds[0].confusions["mpt"])


@pytest.mark.slow(minutes=0.1)
def test_two_departures_are_read_with_two_earlier_models(digits):
    """Each with the test samples' features under its own departure-time model."""
    presence = parking_lot(6, 7, {0: 2, 1: 4})
    shares = concentrated(6, 10, {RARE: 0, 3: 1}, 0.2)
    one, views = living(digits, presence, ("mpt-x", "mpt-duo"), shares=shares), []
    confusions = Features.confusions

    def counted(self, readouts, before=()):
        views.extend(len(before) for readout in readouts if hasattr(readout, "views"))
        return confusions(self, readouts, before)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Features, "confusions", counted)
        rounds = list(one.rounds())
    assert rounds[-1].tracked == tuple(sorted((RARE, 3)))
    assert views == [1, 1, 2, 2]
    assert not np.array_equal(rounds[-1].confusions["mpt-duo"], rounds[-1].confusions["mpt-x"])


def test_the_silent_neither_train_nor_report(digits):
    presence = silent_in(parking_lot(4, 3, {}), (2, 1), (3, 1), (3, 2))
    life = living(digits, presence, grace=5)
    rounds, jobs = played(life)
    assert rounds[-1].bytes_up == {"mpt": sum(map(len, life._answers.values()))}
    assert len(life._answers) == 2
    assert [one.here for one in rounds] == [(0, 1, 2, 3)] * 3
    assert [one.trained for one in rounds] == [one.answered for one in rounds] == [(0, 1, 2, 3), (0, 2, 3), (0, 3)]
    assert [sorted(seen[0]) for seen in jobs.values()] == [[0, 1, 2, 3], [0, 2, 3], [0, 3]]
    assert [one.states["suspected"] for one in rounds] == [0, 1, 2]
    assert (rounds[1].present == rounds[0].present).all()


def test_a_goodbye_comes_even_where_the_answer_does_not(digits):
    """It is a message of its own (`with_failures`): the holder is departed at once, by its answer of round 2."""
    leaves = saying_goodbye(parking_lot(3, 4, {HOLDER: 3}), (3, HOLDER))
    for presence, made_in in ((leaves, 3), (silent_in(leaves, (3, HOLDER)), 2)):
        one = living(digits, presence, grace=5)
        rounds = list(one.rounds())
        assert [now.held_out for now in rounds] == [(), (), (RARE,), (RARE,)]
        assert one.leader.state.tracked[RARE].round == made_in


def test_pairs_are_of_concentrated_classes_alone(digits):
    """Class 5 is on two vehicles that leave together: it is away with its holder, and hangs on no one vehicle."""
    shares = concentrated(5, 10, {RARE: HOLDER, 8: 1}, 0.1)
    shares[:, 5] = [0.45, 0.45, 0.04, 0.03, 0.03]
    presence = parking_lot(5, 6, {0: 2, 1: 3}, {0: 5})
    one = living(digits, presence, shares=shares)
    held = one.counts.max(axis=0) / one.counts.sum(axis=0)
    assert (held >= CONCENTRATED).nonzero()[0].tolist() == [8, RARE]
    everything = absent_pairs(presence, one.counts, 0.25)
    assert np.flatnonzero(everything[:, 5]).tolist() == [3]
    expected = everything & np.isin(np.arange(10), (8, RARE))
    np.testing.assert_array_equal(one.pairs, expected)
    assert np.argwhere(one.pairs).tolist() == [[2, RARE], [3, 8], [3, RARE], [4, 8], [5, 8]]


def test_a_round_with_nobody_leaves_everything_as_it_was(digits):
    there = np.ones((5, 4), dtype=bool)
    there[[2, 3]] = False
    one = living(digits, present_when(4, there), methods=("mpt", "mpt-x", "frozen", "oracle-train", "fedavg"))
    rounds, jobs = played(one)
    assert sorted(jobs) == [1, 2, 5]
    for now in rounds[2:4]:
        assert (now.here, now.trained, now.answered) == ((), (), ())
        assert not now.present.any()
        assert set(now.bytes_up.values()) == {0}
        for name in ("mpt", "mpt-x", "frozen", "fedavg"):
            np.testing.assert_array_equal(now.confusions[name], rounds[1].confusions[name])
    assert rounds[4].answered == (0, 1, 2, 3)
    assert rounds[4].held_out == ()


def test_nobody_is_there_in_the_first_round(digits):
    there = np.ones((3, 4), dtype=bool)
    there[0] = False
    rounds = list(living(digits, present_when(4, there), methods=("mpt", "oracle-train", "live", "fedavg")).rounds())
    assert rounds[0].confusions.keys() == {"fedavg"}
    assert rounds[1].confusions.keys() == {"mpt", "oracle-train", "live", "fedavg"}


def test_half_of_the_vehicles_are_asked(digits):
    """All train, half report, and who was not asked is not absent."""
    presence = parking_lot(6, 6, {HOLDER: LEFT})
    one = living(digits, presence, methods=("mpt", "mpt-x"), asked=0.5)
    rounds = list(one.rounds())
    assert all(one.trained == one.here for one in rounds)
    assert all(len(one.answered) <= 3 for one in rounds)
    assert {v for now in rounds for v in now.answered} >= {1, 2, 3, 4, 5}
    assert all(now.states["suspected"] == now.states["departed"] == 0 for now in rounds[:LEFT])
    assert {d.vehicle for now in rounds for d in now.decisions if d.what == "departed"} == {"v1"}
    assert one.trackers["mpt-x"].roster == one.leader.roster


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("stop-at-departure", "stops training at the departure"),
        ("oracle", "knows the test samples, should be oracle-train"),
        ("mtp", "did you mean mpt"),
    ],
)
def test_methods_that_a_scenario_cannot_play_are_named(name, words):
    with pytest.raises(MptError, match=words) as told:
        row_of(name)
    assert name in str(told.value)


def test_every_other_method_is_a_row():
    assert row_of("mpt-x") == ("mpt-x", "held-out", "tracked")
    assert row_of("oracle-train") == ("oracle-train", "held-out", "oracle")
    assert row_of("live") == ("live", "live", "live")
    assert row_of("fedavg") == ("fedavg", "continued", "head")
    assert row_of("fedavg:live") == ("fedavg:live", "live", "head")


def test_shares_must_fit(digits):
    with pytest.raises(PlanError, match=r"shares: \(3, 10\), should be 4 vehicles by 10 classes"):
        living(digits, parking_lot(4, 3, {}), shares=concentrated(3, 10, {RARE: 0}))


def test_samples_are_spread_by_shares():
    """Every sample is on one vehicle, and of each class a vehicle has its share to within one sample."""
    rng = np.random.default_rng(3)
    labels, shares = rng.integers(0, 4, 500), rng.dirichlet(np.ones(5), 4).T
    held = spread(labels, shares, np.random.default_rng(0))
    assert sorted(np.concatenate(list(held.values())).tolist()) == list(range(500))
    counts = np.array([np.bincount(labels[held[v]], minlength=4) for v in range(5)])
    assert np.abs(counts - shares * np.bincount(labels, minlength=4)).max() <= 1


def test_a_vehicle_without_samples_takes_no_part(digits):
    """It is there, and neither trains nor has anything to report."""
    shares = np.zeros((3, 10))
    shares[:2] = 0.5
    rounds = list(living(digits, parking_lot(3, 2, {}), shares=shares).rounds())
    assert [one.trained for one in rounds] == [(0, 1), (0, 1)]
    assert all(one.here == (0, 1, 2) for one in rounds)
