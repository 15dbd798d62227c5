"""Two views: what the readout of several models decides, against definitions written out sample by sample."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpt.core import ClassStatistics, CrossStatistics, NearestClassMean, StatisticsError
from mpt.core.two_views import (
    EarlierView,
    JoinedViews,
    join_views,
    joint_covariance,
    joint_ridge,
    kept_views,
    own_distance,
    unit_weights,
)

C, D, RARE = 5, 6, 2


class World:
    """Classes under a model that knows them all, under one that has forgotten some directions, and a third."""

    def __init__(self, seed=0, per_class=40):
        rng = np.random.default_rng(seed)
        self.labels = np.repeat(np.arange(C), per_class)
        centres = 2 * rng.standard_normal((C, D))
        centres[RARE] = centres[1] + 3 * np.eye(D)[-1]
        self.z = centres[self.labels] + rng.standard_normal((C * per_class, D)) + 3
        self.w = self.z @ rng.standard_normal((D, D)) + 0.5 * rng.standard_normal(self.z.shape)
        forget = np.diag([1.0] * (D - 1) + [0.05]) @ rng.standard_normal((D, D))
        self.h = self.z @ forget + 0.3 * rng.standard_normal(self.z.shape)
        self.left = self.labels != RARE

    def statistics(self, features):
        return ClassStatistics.from_features(features, self.labels, C, watched=[RARE])

    def cross(self, earlier, current):
        weights = unit_weights(C, [RARE])
        return CrossStatistics.from_features(earlier, current, self.labels, C, weights=weights)

    def view(self, features=None, **options):
        return EarlierView.of(self.statistics(self.z if features is None else features), RARE, 15, **options)

    @property
    def current(self):
        stats = self.statistics(self.h)
        return NearestClassMean(stats.means, stats.covariance())

    def joined(self, **options):
        whole = joint_covariance(self.statistics(self.h), [self.cross(self.z, self.h)])
        return join_views(self.current, [self.view()], whole, departed=RARE, **{"outward": False, **options})

    @property
    def both(self):
        return np.concatenate([self.h, self.z], axis=1)


WORLD = World()


def pooled(features, labels):
    """The within-class covariance of the classes that are not rare, sample by sample."""
    rest = labels != RARE
    own = np.stack([features[labels == c].mean(axis=0) for c in labels[rest]])
    centred = features[rest] - own
    return centred.T @ centred / (rest.sum() - len(np.unique(labels[rest])))


def squares(features, means, covariance):
    inverse = np.linalg.inv(covariance)
    gaps = features[:, None] - means
    return np.einsum("ncd,de,nce->nc", gaps, inverse, gaps)


def ridged(covariance, ridge):
    return covariance + ridge * np.trace(covariance) / len(covariance) * np.eye(len(covariance))


def means_of(features, labels):
    return np.stack([features[labels == c].mean(axis=0) for c in range(C)])


def test_the_joint_covariance_is_that_of_the_samples_side_by_side():
    made = joint_covariance(WORLD.statistics(WORLD.h), [WORLD.cross(WORLD.z, WORLD.h)])
    np.testing.assert_allclose(made, pooled(WORLD.both, WORLD.labels), atol=1e-10)


def test_with_two_earlier_views_it_has_what_is_between_them():
    crosses = [WORLD.cross(WORLD.z, WORLD.h), WORLD.cross(WORLD.w, WORLD.h)]
    made = joint_covariance(WORLD.statistics(WORLD.h), crosses, {(0, 1): WORLD.cross(WORLD.z, WORLD.w)})
    three = np.concatenate([WORLD.h, WORLD.z, WORLD.w], axis=1)
    np.testing.assert_allclose(made, pooled(three, WORLD.labels), atol=1e-10)
    with pytest.raises(StatisticsError, match="between: no cross moments of the earlier views 0 and 1"):
        joint_covariance(WORLD.statistics(WORLD.h), crosses)


@given(ridge=st.floats(0.0, 1.0), seed=st.integers(0, 20))
@settings(max_examples=20, deadline=None)
def test_the_mean_own_distance_is_known_from_sums(ridge, seed):
    world = World(seed, per_class=12)
    stats = world.statistics(world.h)
    rest = world.labels != RARE
    all_squares = squares(world.h[rest], stats.means, ridged(stats.covariance(), ridge))
    own = all_squares[np.arange(rest.sum()), world.labels[rest]]
    told = own_distance(stats.covariance(), ridge)
    assert told == pytest.approx(own.sum() / (rest.sum() - (C - 1)))


def test_without_a_ridge_the_mean_own_distance_is_the_dimension():
    assert own_distance(np.diag([1.0, 4.0, 9.0]), 0.0) == pytest.approx(3)
    assert own_distance(np.zeros((3, 3))) == 3


@pytest.mark.parametrize("dead", [0, D])
def test_without_a_ridge_a_direction_without_variance_is_a_sentence(dead):
    whole = np.array(joint_covariance(WORLD.statistics(WORLD.h), [WORLD.cross(WORLD.z, WORLD.h)]))
    whole[dead], whole[:, dead] = 0.0, 0.0
    current = NearestClassMean(WORLD.current.prototypes, cov_ridge=0.0)
    with pytest.raises(StatisticsError, match="covariance: not positive definite"):
        join_views(current, [WORLD.view()], whole, departed=RARE, joining="sum", ridge=0.0)


def test_the_joint_readout_is_the_nearest_under_the_joint_covariance():
    units = np.repeat([np.sqrt(np.trace(pooled(f, WORLD.labels)) / D) for f in (WORLD.h, WORLD.z)], D)
    scaled = WORLD.both / units
    whole = pooled(scaled, WORLD.labels) + 0.01 * np.eye(2 * D)
    expected = squares(scaled, means_of(scaled, WORLD.labels), whole).argmin(axis=1)
    np.testing.assert_array_equal(WORLD.joined().predict(WORLD.both), expected)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
def test_the_sum_is_of_distances_over_their_mean(share):
    parts = []
    for features in (WORLD.h, WORLD.z):
        covariance = pooled(features, WORLD.labels)
        s = np.trace(np.linalg.inv(ridged(covariance, 0.1)) @ covariance)
        parts.append(squares(features, means_of(features, WORLD.labels), ridged(covariance, 0.1)) / s)
    expected = ((1 - share) * parts[0] + share * parts[1]).argmin(axis=1)
    made = WORLD.joined(joining="sum", share=share, ridge=0.1)
    assert np.mean(made.predict(WORLD.both) == expected) > 0.995


def test_a_second_view_that_is_the_first_changes_no_sum():
    whole = joint_covariance(
        WORLD.statistics(WORLD.h), [WORLD.cross(WORLD.z, WORLD.h)] * 2, {(0, 1): WORLD.cross(WORLD.z, WORLD.z)}
    )
    options = {"departed": RARE, "joining": "sum", "ridge": 0.1, "outward": False}
    twice = join_views(WORLD.current, [WORLD.view()] * 2, whole, **options)
    once = WORLD.joined(joining="sum", ridge=0.1)
    three = np.concatenate([WORLD.both, WORLD.z], axis=1)
    np.testing.assert_array_equal(twice.predict(three), once.predict(WORLD.both))


def test_what_the_current_model_forgot_the_earlier_one_still_tells():
    alone, both = WORLD.current.predict(WORLD.h), WORLD.joined().predict(WORLD.both)
    right = [np.mean((p == RARE)[WORLD.labels == RARE]) + np.mean((p != RARE)[WORLD.left]) for p in (alone, both)]
    assert right[1] > right[0] + 0.1


def test_a_class_that_the_earlier_view_does_not_know_gets_what_the_current_one_gives_it():
    means = WORLD.statistics(WORLD.z).means
    means[4] = np.nan
    view = EarlierView(15, (RARE,), means)
    whole = joint_covariance(WORLD.statistics(WORLD.h), [WORLD.cross(WORLD.z, WORLD.h)])
    made = join_views(WORLD.current, [view], whole, departed=RARE, outward=False)
    assert made.known.tolist() == [True, True, True, True, False]
    alone, both = WORLD.current.predict(WORLD.h), made.predict(WORLD.both)
    np.testing.assert_array_equal(both == 4, alone == 4)
    assert (alone == 4).any()
    assert np.any(both != alone)


def test_a_cascade_lies_between_one_view_and_both():
    made = WORLD.joined()
    everywhere, asked = made.cascade(WORLD.both, np.inf)
    np.testing.assert_array_equal(everywhere, made.predict(WORLD.both))
    assert asked.all()
    nowhere, asked = made.cascade(WORLD.both, -1.0)
    np.testing.assert_array_equal(nowhere, WORLD.current.predict(WORLD.h))
    assert not asked.any()
    some, asked = made.cascade(WORLD.both, 0.5)
    assert 0 < asked.mean() < 1
    np.testing.assert_array_equal(some, np.where(asked, everywhere, nowhere))
    np.testing.assert_array_equal(asked, made.asks(WORLD.h, 0.5))


def test_hesitation_is_the_gap_of_squared_distances():
    d = WORLD.current.distances(WORLD.h) ** 2
    gap = np.abs(d[:, RARE] - np.delete(d, RARE, axis=1).min(axis=1))
    scale = own_distance(WORLD.statistics(WORLD.h).covariance())
    np.testing.assert_allclose(WORLD.joined().hesitation(WORLD.h), gap / scale, rtol=1e-6, atol=1e-8)


def test_the_layers_decide_the_same():
    made = WORLD.joined(outward=True)
    (weight, bias), (wide, wide_bias) = made.layers()
    np.testing.assert_array_equal(np.argmax(WORLD.both @ wide.T + wide_bias, axis=1), made.predict(WORLD.both))
    scores = WORLD.h @ weight.T + bias
    gaps = np.abs(scores[:, RARE] - np.delete(scores, RARE, axis=1).max(axis=1))
    np.testing.assert_array_equal(gaps <= made.gap_limit(0.5), made.asks(WORLD.h, 0.5))


def test_outwards_moves_the_departed_class_alone():
    plain, out = WORLD.joined(), WORLD.joined(outward=True)
    moved = np.any(plain.joined.prototypes != out.joined.prototypes, axis=1)
    assert not np.delete(moved, RARE).any()
    np.testing.assert_array_equal(out.current.prototypes, WORLD.current.outwards(RARE).prototypes)


def test_a_view_of_a_later_departure_knows_where_an_earlier_class_was_tracked_to():
    stats = WORLD.statistics(WORLD.z)
    view = EarlierView.of(stats, 1, 30, tracked={RARE: np.full(D, 7.0)})
    np.testing.assert_array_equal(view.prototypes[RARE], 7.0)
    np.testing.assert_array_equal(view.prototypes[1], stats.means[1])
    assert pickle.loads(pickle.dumps(view)) == view


def test_at_most_two_views_are_kept_and_none_without_a_departed_class():
    means = WORLD.statistics(WORLD.z).means
    views = [EarlierView(r, (c,), means) for r, c in ((10, 0), (20, 1), (30, 2))]
    assert [v.round for v in kept_views(views, {0, 1, 2})] == [20, 30]
    assert [v.round for v in kept_views(views, {0, 2})] == [10, 30]
    assert kept_views(views, {3}) == ()


def test_it_is_a_value():
    made = WORLD.joined()
    assert pickle.loads(pickle.dumps(made)) == made
    assert "2 views" in repr(made)
    assert isinstance(made, JoinedViews)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"joining": "mean"}, "joining: 'mean', should be 'joint' or 'sum'"),
        ({"share": 1.5}, "share: 1.5, should be from 0 to 1"),
        ({"departed": 9}, "departed"),
        ({"ridge": -1}, "ridge"),
    ],
)
def test_nonsense_is_refused_with_a_sentence(options, sentence):
    whole = joint_covariance(WORLD.statistics(WORLD.h), [WORLD.cross(WORLD.z, WORLD.h)])
    with pytest.raises(StatisticsError, match=sentence):
        join_views(WORLD.current, [WORLD.view()], whole, **{"departed": RARE, **options})


def test_views_that_do_not_fit_are_refused():
    stats, cross = WORLD.statistics(WORLD.h), WORLD.cross(WORLD.z, WORLD.h)
    whole = joint_covariance(stats, [cross])
    with pytest.raises(StatisticsError, match="earlier: 3 views, should be 1 to 2"):
        join_views(WORLD.current, [WORLD.view()] * 3, whole, departed=RARE)
    with pytest.raises(StatisticsError, match="covariance"):
        join_views(WORLD.current, [WORLD.view()] * 2, whole, departed=RARE)
    with pytest.raises(StatisticsError, match="earlier: prototypes of shapes"):
        join_views(WORLD.current, [EarlierView(1, (0,), np.zeros((C, 3)))], whole, departed=RARE)
    weighted = CrossStatistics.from_features(WORLD.z, WORLD.h, WORLD.labels, C, weights=[1, 2, 0, 1, 1])
    with pytest.raises(StatisticsError, match="classes count differently, should be made with unit_weights"):
        joint_covariance(stats, [weighted])
    with pytest.raises(StatisticsError, match="features"):
        WORLD.joined().predict(WORLD.h)
    means = stats.means
    means[RARE] = np.nan
    with pytest.raises(StatisticsError, match="should be measured at its departure"):
        EarlierView(15, (RARE,), means)


def test_few_samples_have_a_larger_ridge():
    many, few = (World(per_class=n) for n in (400, 5))
    crosses = [w.cross(w.z, w.h) for w in (many, few)]
    assert joint_ridge(crosses[:1]) == 0.01
    assert joint_ridge(crosses[1:]) == pytest.approx(0.1 * 2 * D / ((C - 1) * 4))
    assert joint_ridge([crosses[1]] * 2) == pytest.approx(0.1 * 3 * D / ((C - 1) * 4))
    assert joint_ridge(crosses[1:], least=0.5) == 0.5


def test_blocks_of_different_samples_are_read_by_the_nearest_covariance():
    """S_h of 12 samples, the rest of 6 of them: directions of less than no variance count as if they had none."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((12, 2 * D)) * np.repeat([1.0, 100.0], D)
    whole, part = rows.T @ rows / 12, rows[:6].T @ rows[:6] / 6
    mixed = whole.copy()
    mixed[D:], mixed[:, D:] = part[D:], part[:, D:]
    means = rng.standard_normal((C, 2 * D)) * np.repeat([1.0, 100.0], D)
    current = NearestClassMean(means[:, :D], mixed[:D, :D])
    view = EarlierView(0, (RARE,), means[:, D:])
    units = np.repeat([np.sqrt(np.trace(mixed[:D, :D]) / D), np.sqrt(np.trace(mixed[D:, D:]) / D)], D)
    values, vectors = np.linalg.eigh(mixed / np.outer(units, units))
    for ridge in (-0.5 * values[0], -1.0001 * values[0], -2 * values[0], -9 * values[0]):
        made = join_views(current, [view], mixed, departed=RARE, ridge=ridge, outward=False)
        np.testing.assert_allclose(made.joined.covariance, (vectors * np.maximum(values, 0)) @ vectors.T, atol=1e-9)
    kept = join_views(current, [view], mixed, departed=RARE, ridge=-11 * values[0], outward=False)
    np.testing.assert_allclose(kept.joined.covariance, mixed / np.outer(units, units), atol=1e-12)


def test_a_direction_of_negative_variance_never_counts_for_more_than_one_of_none():
    """What a liar could aim at: an eigenvalue next to -lambda, along which distances would have no bound."""
    covariance = np.eye(2 * D)
    covariance[0, D] = covariance[D, 0] = 1.00999
    means = np.random.default_rng(0).standard_normal((C, 2 * D))
    current, view = NearestClassMean(means[:, :D], np.eye(D)), EarlierView(0, (RARE,), means[:, D:])
    weight, _ = join_views(current, [view], covariance, departed=RARE, ridge=0.01, outward=False).joined.to_linear()
    along = np.zeros(2 * D)
    along[[0, D]] = 0.5**0.5, -(0.5**0.5)
    assert np.abs((weight - weight[0]) @ along).max() <= 1.01 * np.abs((means - means[0]) @ along).max() / 0.01


def test_a_view_without_a_class_knows_nothing_of_it():
    view = EarlierView(3, (RARE, 4), np.arange(C * D, dtype=float).reshape(C, D))
    made = view.without([RARE])
    assert (made.round, made.departed, np.flatnonzero(~made.known).tolist()) == (3, (4,), [RARE])
    assert view.known.all()
