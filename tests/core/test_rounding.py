"""Features that rounding could spoil: constant, dead, dying, duplicated, huge, tiny, of one vehicle alone."""

import itertools
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mpt
from mpt.core.affine import affine_map, halves_suffice, map_ridge
from mpt.core.equations import outside, regularize, span_basis
from mpt.core.rounding import (
    positive_part,
    projection_rounding,
    regular_factor,
    rounding_level,
    span_tilt,
    steady,
    without_rounding,
)

C, D, PER_CLASS, RARE, VEHICLES = 6, 10, 24, 2, 4
labels = np.repeat(np.arange(C), PER_CLASS)
owners = np.arange(len(labels)) % VEHICLES
STAYING = range(1, VEHICLES)


def with_column(features, j, values):
    changed = features.copy()
    changed[:, j] = values
    return changed


KINDS = {
    "usual": lambda f: f,
    "constant": lambda f: with_column(f, 1, 0.7),
    "constant and huge": lambda f: with_column(f, 1, 0.7e6),
    "dead": lambda f: with_column(with_column(f, 1, 0.0), 2, 0.0),
    "all but one dead": lambda f: np.where(np.arange(D) == 3, f, 0.0),
    "duplicated": lambda f: np.hstack([f[:, : D // 2], f[:, : D // 2]]),
    "a million times larger": lambda f: with_column(f, 1, 1e6 * f[:, 1]),
    "a million times smaller": lambda f: with_column(f, 1, 1e-6 * f[:, 1]),
    "far from zero": lambda f: f + 1e4,
    "duplicated and far from zero": lambda f: np.hstack([f[:, : D // 2], f[:, : D // 2]]) + 1e4,
    "of one vehicle": lambda f: with_column(f, 1, f[:, 1] * (owners == 1)),
    "of the vehicle that leaves": lambda f: with_column(f, 1, f[:, 1] * (owners == 0)),
    "constant in each class": lambda f: with_column(f, 1, 0.1 * labels),
    "all constant": lambda f: np.full_like(f, 0.3),
}


def worlds(seed):
    """ReLU features before and after a drift."""
    rng = np.random.default_rng(seed)
    before = np.maximum(2 * rng.standard_normal((C, D))[labels] + rng.standard_normal((len(labels), D)), 0)
    return before, np.maximum(before @ (np.eye(D) + 0.3 * rng.standard_normal((D, D))), 0)


def sent(thing, wire):
    """Through the bytes of a message; float16 is what cross moments may be sent as."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if wire == "float64":
            return type(thing).from_bytes(thing.to_bytes())
        more = {"halves": wire == "float16"} if isinstance(thing, mpt.CrossStatistics) else {}
        return type(thing).from_bytes(thing.to_bytes("float32", **more))


def reports(features, wire, origin, **how):
    """A report a vehicle."""
    return [
        sent(
            mpt.ClassStatistics.from_features(
                features[owners == v], labels[owners == v], C, watched=[RARE], origin=origin, **how
            ),
            wire,
        )
        for v in range(VEHICLES)
    ]


def moments(before, now, weights, wire, origins):
    return mpt.CrossStatistics.merge(
        sent(
            mpt.CrossStatistics.from_features(
                before[owners == v], now[owners == v], labels[owners == v], C, weights=weights,
                earlier_origin=origins[0], origin=origins[1],
            ),
            wire,
        )
        for v in STAYING
    )  # fmt: skip


def tracked(before, now, variant, wire="float64", origins=(None, None), **settings):
    """Vehicle 0 leaves: its class's deposit, this round's statistics, and the reconstruction."""
    how = [{}, {}]
    if variant == "lite":
        spans = ([f[labels == c].mean(axis=0) for c in range(C) if c != RARE] for f in (before, now))
        how = [{"span": np.array(span), "scatter": False} for span in spans]
    first, later = (reports(f, wire, o, **h) for f, o, h in zip((before, now), origins, how, strict=True))
    deposit = mpt.deposit(sum(first), RARE, staying=sum(first[1:]), **settings)
    stats = sum(later[1:])
    if variant != "cross":
        return deposit, stats, mpt.reconstruct(deposit, stats, variant=variant)
    cross = moments(before, now, mpt.class_weights(deposit, C), wire, origins)
    return deposit, stats, mpt.reconstruct(deposit, stats, variant="cross", cross=cross)


def near(features, by):
    """An origin as a server has it: last round's mean, `by` standard deviations away."""
    return features.mean(axis=0) + by * features.std(axis=0)


@pytest.mark.parametrize("with_origin", [False, True], ids=["no origin", "origin"])
@pytest.mark.parametrize("wire", ["float64", "float32", "float16"])
@pytest.mark.parametrize("variant", ["mpt", "lite", "cross"])
def test_a_deposit_and_a_reconstruction_every_time(variant, wire, with_origin):
    for seed, (earlier, later) in enumerate(itertools.product(KINDS, KINDS)):
        before, now = (KINDS[kind](f) for kind, f in zip((earlier, later), worlds(seed), strict=True))
        origins = (near(before, 0.1), near(now, -0.2)) if with_origin else (None, None)
        deposit, stats, made = tracked(before, now, variant, wire, origins)
        assert np.isfinite(made.prototype).all(), (earlier, later)
        assert 0 <= made.alpha <= 1
        if stats.scatter is not None:
            readout = mpt.NearestClassMean(stats.means, stats.covariance())
            assert np.isfinite(readout.distances(now)[:, readout.predict(now)]).all()
            for covariance in (deposit.covariance, stats.covariance()):
                values = np.linalg.eigvalsh(covariance)
                assert values[0] >= -0.011 * values.mean(), (earlier, later)


FAR_OFF = {"mpt": 1e-4, "lite": 1e-4, "cross": 0.005}
"""In standard deviations of the features: what a message's precision may do to a prototype."""
DROWNED = 0.5
"""The same for MPT-lite beside a feature a million times larger: what is outside the span is then less than a float32
span is turned by, and the growth is 1."""


@pytest.mark.parametrize("wire", ["float32", "float16"])
@pytest.mark.parametrize("variant", FAR_OFF)
def test_a_message_s_precision_hardly_moves_the_prototype(variant, wire):
    for seed, (earlier, later) in enumerate(itertools.product(KINDS, KINDS)):
        before, now = (KINDS[kind](f) for kind, f in zip((earlier, later), worlds(seed), strict=True))
        origins = near(before, 0.1), near(now, -0.2)
        whole, sent_as = (tracked(before, now, variant, how, origins)[2].prototype for how in ("float64", wire))
        spread = np.where(np.ptp(now, axis=0) > 0, now.std(axis=0), 0.0)
        unit = np.maximum(spread, 0.3 * np.median(spread[spread > 0])) if spread.any() else 1.0
        most = DROWNED if variant == "lite" and "a million times larger" in (earlier, later) else FAR_OFF[variant]
        assert np.max(np.abs(whole - sent_as) / unit) <= most, (earlier, later)


def by_formula(deposit, stats, before, now):
    """Eq. (3) to (7) from the samples' covariances, zero where a feature is constant, with NumPy's decompositions."""
    others = [c for c in range(C) if c != RARE]
    stay = owners != 0
    pair = []
    for f in (before, now):
        there = np.where(stay[:, None], f, np.nan)
        rows = [there[labels == c] for c in others]
        rows = [r[~np.isnan(r[:, 0])] for r in rows]
        centred = np.concatenate([r - r.mean(axis=0) for r in rows])
        constant = np.ptp(np.concatenate(rows), axis=0) == 0
        covariance = centred.T @ centred / (len(centred) - len(rows))
        covariance[constant] = covariance[:, constant] = 0.0
        pair.append(covariance)

    def power(matrix, p):
        values, vectors = np.linalg.eigh(matrix)
        return (vectors * np.maximum(values, 0) ** p) @ vectors.T

    source, target = (regularize(s, deposit.cov_ridge) for s in pair)
    root, inverse = power(source, 0.5), power(source, -0.5)
    mapping = inverse @ power(root @ target @ root, 0.5) @ inverse
    prototypes = stats.means[deposit.classes]
    _, scale, right = np.linalg.svd(prototypes)
    basis = right[: int(np.sum(scale > 1e-9 * scale[0]))]
    off = np.eye(D) - basis.T @ basis
    predicted, measured = off @ mapping @ deposit.residual, off @ stats.means[RARE]
    samples = stats.counts[RARE]
    error = np.trace(off @ pair[1]) / D / samples
    signal = max(np.sum((measured - predicted) ** 2) / D - error, 1e-9 * error)
    alpha = signal / (signal + error)
    return deposit.weights @ prototypes + alpha * measured + (1 - alpha) * predicted


SPOILED = ["constant", "constant and huge", "dead", "of the vehicle that leaves"]


@pytest.mark.parametrize("with_origin", [False, True], ids=["no origin", "origin"])
@pytest.mark.parametrize(("earlier", "later"), list(itertools.product(SPOILED, [*SPOILED, "usual"])))
def test_in_float64_it_is_the_prototype_of_a_covariance_that_is_zero_there(earlier, later, with_origin):
    before, now = (KINDS[kind](f) for kind, f in zip((earlier, later), worlds(3), strict=True))
    origins = (near(before, 0.1), near(now, -0.2)) if with_origin else (None, None)
    deposit, stats, made = tracked(before, now, "mpt", origins=origins)
    expected = by_formula(deposit, stats, before, now)
    assert np.linalg.norm(made.prototype - expected) <= 1e-6 * np.linalg.norm(expected)
    constant = np.ptp(now[(owners != 0) & (labels != RARE)], axis=0) == 0
    assert not stats.covariance()[constant].any()
    assert not stats.covariance()[:, constant].any()
    assert (np.diag(stats.covariance())[~constant] > 0).all()


@pytest.mark.parametrize("variant", ["mpt", "lite", "cross"])
@pytest.mark.parametrize(("earlier", "later"), list(itertools.product(SPOILED[:3], [*SPOILED[:3], "usual"])))
def test_in_float64_it_is_the_prototype_of_origins_that_leave_no_rounding(earlier, later, variant):
    """About an origin that is the constant itself its sums and squares are zero exactly, without any rule."""
    before, now = (KINDS[kind](f) for kind, f in zip((earlier, later), worlds(8), strict=True))
    exact = [np.where(np.ptp(f, axis=0) == 0, f[0], near(f, 0.1)) for f in (before, now)]
    expected = tracked(before, now, variant, origins=exact)[2].prototype
    for origins in [(None, None), (near(before, 0.1), near(now, -0.2))]:
        made = tracked(before, now, variant, origins=origins)[2].prototype
        assert np.linalg.norm(made - expected) <= 1e-6 * np.linalg.norm(expected)
        others = now[0] != 0.7e6
        assert np.linalg.norm((made - expected)[others]) <= 1e-6 * np.linalg.norm(expected[others])


@pytest.mark.parametrize("with_origin", [False, True], ids=["no origin", "origin"])
def test_cross_moments_of_a_constant_feature_are_zero_however_large_it_is(with_origin):
    before, now = worlds(4)
    usual = [with_column(f, 1, 0.7) for f in (before, now)]
    large = [with_column(f, 1, 0.7e6) for f in (before, now)]
    made = {}
    for name, (z, h) in {"usual": usual, "large": large}.items():
        origins = (near(z, 0.1), near(h, 0.1)) if with_origin else (None, None)
        cross = moments(z, h, np.array([1.0, 1, 0, 1, 1, 1]), "float64", origins)
        within, within_cross = cross.within
        assert not within[1].any()
        assert not within[:, 1].any()
        assert not within_cross[1].any()
        made[name] = tracked(z, h, "cross", origins=origins)[2].prototype
    others = np.arange(D) != 1
    np.testing.assert_allclose(made["large"][others], made["usual"][others], rtol=1e-6, atol=1e-6)
    assert made["large"][1] == pytest.approx(0.7e6, rel=1e-9)


@pytest.mark.parametrize("vehicles", [1, 10, 1000, 10_000])
@pytest.mark.parametrize("wire", ["float64", "float32"])
def test_no_order_of_merging_makes_a_variance_of_a_constant(vehicles, wire):
    """Reports that are all alike: their rounding errors are too, and add up."""
    values = np.array([0.1, 0.7, 1 / 3, 1e6 / 3, -1e-6 / 7, np.pi, 12345.678, 1.0])
    features = np.vstack([np.tile(values, (6, 1)), [[*values[:-1], 2.0]]])
    labels = np.array([0, 0, 1, 1, 2, 2, 2])
    one = sent(mpt.ClassStatistics.from_features(features, labels, 3), wire)
    whole = mpt.ClassStatistics.merge(itertools.repeat(one, vehicles))
    assert np.flatnonzero(np.diag(whole.covariance())).tolist() == [7]
    assert np.count_nonzero(whole.covariance()) == 1
    pairs = list(itertools.repeat(one, vehicles))
    while len(pairs) > 1:
        pairs = [sum(pairs[i : i + 2]) for i in range(0, len(pairs), 2)]
    np.testing.assert_allclose(pairs[0].covariance(), whole.covariance(), rtol=1e-9)


@given(
    seed=st.integers(0, 2**32 - 1),
    spoiled=st.lists(
        st.tuples(st.integers(0, D - 1), st.sampled_from(["constant", "dead", "copy", "scale"])), max_size=8
    ),
    sizes=st.lists(st.floats(-8, 8), min_size=8, max_size=8),
    variant=st.sampled_from(["mpt", "lite", "cross"]),
    wire=st.sampled_from(["float64", "float32", "float16"]),
    offsets=st.none() | st.tuples(st.floats(-3, 3), st.floats(-3, 3)),
    ridge=st.sampled_from([0.1, 1e-2, 1e-4, 1e-6]),
)
@settings(max_examples=400)
def test_whatever_features_do_the_class_is_kept(seed, spoiled, sizes, variant, wire, offsets, ridge):
    """Any mix of spoiled features, each of any size, before and after, under any ridge."""
    before, now = worlds(seed)
    for i, (j, how) in enumerate(spoiled):
        target = (before, now)[i % 2]
        size = 10.0 ** sizes[i]
        column = {"constant": size, "dead": 0.0, "copy": target[:, j - 1], "scale": size * target[:, j]}[how]
        target[:, j] = column
    origins = (None, None) if offsets is None else (near(before, offsets[0]), near(now, offsets[1]))
    _, stats, made = tracked(before, now, variant, wire, origins, cov_ridge=ridge)
    assert np.isfinite(made.prototype).all()
    if stats.scatter is not None:
        assert np.isfinite(mpt.NearestClassMean(stats.means, stats.covariance(), cov_ridge=ridge).predict(now)).all()


def test_statistics_know_that_they_travelled_as_float32():
    stats = mpt.ClassStatistics.from_features(worlds(0)[0], labels, C, watched=[RARE])
    narrow = sent(stats, "float32")
    assert (stats.narrow, narrow.narrow) == (False, True)
    assert (stats + narrow).narrow
    assert mpt.ClassStatistics.merge([stats, narrow]).narrow
    assert not (stats + stats).narrow
    assert mpt.ClassStatistics.from_bytes(narrow.to_bytes()) == narrow
    assert len(narrow.to_bytes()) == len(stats.to_bytes())
    cross = mpt.CrossStatistics.from_features(*worlds(0), labels, C)
    assert not sent(cross, "float64").narrow
    assert sent(cross, "float32").narrow
    assert (cross + sent(cross, "float32")).narrow
    assert sent(sent(cross, "float32"), "float64").narrow


def test_numbers_that_float32_cannot_hold_travel_as_float64():
    before, now = worlds(0)
    origin = np.zeros(D)
    for size, kind in ((1e-20, "float64"), (1.0, "float32"), (1e20, "float64")):
        assert mpt.ClassStatistics.from_features(size * before, labels, C).wire_type == kind
        assert mpt.CrossStatistics.from_features(size * before, now, labels, C, origin=origin).wire_type == kind
    spoiled = with_column(with_column(before, 1, 1e-25), 2, 0.7e6)
    assert mpt.ClassStatistics.from_features(spoiled, labels, C).wire_type == "float32"


def test_one_huge_feature_does_not_drown_the_others_in_float16():
    before, now = worlds(5)
    huge = with_column(now, 1, 1e6 * now[:, 1])
    origins = near(before, 0.1), near(huge, 0.1)
    cross = mpt.CrossStatistics.from_features(before, huge, labels, C, earlier_origin=origins[0], origin=origins[1])
    np.testing.assert_allclose(sent(cross, "float16").cross, cross.cross, rtol=1e-6)
    dead = np.where(np.arange(D) < 3, before, 0.0)
    small = mpt.CrossStatistics.from_features(dead, dead, labels, C)
    assert len(small.to_bytes("float32", halves=True)) < len(small.to_bytes("float32"))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_features_of_any_precision_may_be_constant(dtype):
    before, now = (KINDS["constant"](f).astype(dtype) for f in worlds(6))
    deposit, stats, made = tracked(before, now, "mpt")
    assert not deposit.covariance[1].any()
    assert not stats.covariance()[:, 1].any()
    assert np.isfinite(made.prototype).all()


def test_directions_without_variance_take_part_with_the_ridge_alone():
    """A feature that is the sum of two others: along that direction float32 leaves rounding of either sign."""
    for seed in range(5):
        features = worlds(seed)[0] + 300.0
        features[:, 9] = features[:, 0] + features[:, 1]
        covariance = sum(reports(features, "float32", None)).covariance()
        apart = np.zeros(D)
        apart[[0, 1, 9]] = 1, 1, -1
        floor = 0.1 * np.trace(covariance) / D
        readout = mpt.NearestClassMean(np.zeros((1, D)), covariance)
        assert readout.distances(apart[None])[0, 0] == pytest.approx(np.sqrt(3 / floor), rel=1e-3)


def test_the_rule_by_itself():
    assert rounding_level(1000) == pytest.approx(1066 * 2.0**-52)
    assert rounding_level(1000, narrow=True) == pytest.approx(4 * 2.0**-24, rel=1e-3)
    moments = np.array([1.0, 1e12, 1e-12])
    within, beside = np.diag([1e-3, 1.0, -1e-30]), np.ones((3, 2))
    without_rounding(within, moments, 1e-9, ridge=0.1, beside=beside)
    assert np.diag(within).tolist() == [1e-3, 0.0, 0.0]
    assert beside.tolist() == [[1, 1], [0, 0], [0, 0]]
    spurious = np.array([[1.0, 1.0 + 1e-7], [1.0 + 1e-7, 1.0]])
    made, beside = spurious.copy(), np.array([[3.0], [1.0]])
    without_rounding(made, np.ones(2), 1e-6, ridge=0.0, beside=beside)
    assert np.linalg.eigvalsh(made)[0] >= -1e-15
    np.testing.assert_allclose(made, 1.0, atol=1e-6)
    np.testing.assert_allclose(beside, 2.0)
    made = spurious.copy()
    without_rounding(made, np.ones(2), 1e-6, ridge=1.0)
    np.testing.assert_array_equal(made, spurious)
    means = np.array([[1.0, 5.0, 0.0], [1.0 + 1e-10, 6.0, 0.0]])
    expected = [[1 + 5e-11, 5.0, 0.0], [1 + 5e-11, 6.0, 0.0]]
    np.testing.assert_allclose(steady(means, np.zeros(3), 1e-9), expected, rtol=1e-15)
    np.testing.assert_array_equal(steady(means, np.array([1.0, 0.0, 0.0]), 1e-9), means)
    assert span_tilt(np.diag([4.0, 2.0, 1e-9]), np.zeros(3), 1e-6) == pytest.approx(np.sqrt(3) * 4e-6 / 2)
    assert span_tilt(np.zeros((2, 3)), np.zeros(3), 1e-6) == 0
    assert projection_rounding(np.array([1e-30, 1.0]), np.array([100.0, 100.0])).tolist() == [0.0, 1.0]


def test_a_factor_for_what_rounding_left_and_none_for_what_is_no_covariance():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((3, 6))
    covariance = rows.T @ rows - 1e-7 * np.eye(6)
    factor = regular_factor(covariance, 1e-9, "S")
    expected = regularize(positive_part(covariance, "S"), 1e-9)
    np.testing.assert_allclose(factor @ factor.T, expected, atol=1e-9)
    with pytest.raises(mpt.StatisticsError, match="S: not positive definite; use a larger cov_ridge"):
        regular_factor(covariance, 0.0, "S")
    with pytest.raises(mpt.StatisticsError, match="S: not positive definite"):
        regular_factor(rows.T @ rows - np.eye(6), 0.1, "S")
    with pytest.raises(mpt.StatisticsError, match=r"S: not positive semi-definite, an eigenvalue is -0\.2 times"):
        positive_part(np.diag([1.0, 1.0, 1.0, -0.5]), "S")


@pytest.mark.parametrize("how", ["span", "scatter"])
def test_units_that_come_alive_after_the_departure_do_not_blow_lite_up(how):
    """Three units for five classes: all is in their span, and what projecting leaves is no spread."""
    before, now = (f * (np.arange(D) < n) for f, n in zip(worlds(9), (3, 9), strict=True))
    spans = [np.array([f[labels == c].mean(axis=0) for c in range(C) if c != RARE]) for f in (before, now)]
    made = []
    for f, span in zip((before, now), spans, strict=True):
        more = {"span": span, "scatter": False} if how == "span" else {}
        made.append(reports(f, "float64", near(f, 0.1), **more))
    deposit = mpt.deposit(sum(made[0]), RARE, staying=sum(made[0][1:]))
    assert deposit.spread == 0
    again = mpt.reconstruct(deposit, sum(made[1][1:]), variant="lite")
    assert np.linalg.norm(again.prototype) <= 2 * np.linalg.norm(now[labels == RARE].mean(axis=0))


@pytest.mark.parametrize("wire", ["float64", "float32"])
@pytest.mark.parametrize("variant", ["mpt", "cross"])
def test_weights_are_not_fitted_to_rounding(variant, wire):
    """At departure the reference classes have one constant unit alive, the departing class two more."""
    before = np.zeros((len(labels), D))
    before[:, 0] = 0.43
    before[labels == RARE, 1:3] = 3.0, 2.0
    now = with_column(before, 3, worlds(10)[1][:, 3])
    for off in (0.1, 0.2, 0.3):
        deposit, _, made = tracked(before, now, variant, wire, (before.mean(axis=0) + off, near(now, 0.1)))
        assert np.abs(deposit.weights).max() <= 1.001
        assert np.abs(made.prototype).max() <= 2 * now.max()


def test_there_is_no_map_where_the_reference_classes_are_all_the_same():
    """All that it could be fitted to is how a weighted mean of equal numbers is rounded."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        earlier, counted = np.tile(rng.uniform(0, 1, D), (3, 1)), rng.integers(2, 40, 3).astype(float)
        current = earlier + 1e-9 * rng.standard_normal((3, D))
        nothing = np.zeros((D, D))
        found = affine_map(earlier, current, counted, nothing, nothing, 0.01)
        np.testing.assert_array_equal(found.matrix, np.eye(D))


@pytest.mark.parametrize("wire", ["float64", "float32", "float16"])
def test_a_unit_of_the_departed_class_alone_is_not_mapped_by_rounding(wire):
    """Dead on the reference classes, a million times larger on the departed one: the map knows nothing of it."""
    before, now = worlds(11)
    for f in (before, now):
        f[:, 0] = np.where(labels == RARE, 1e6 * (2 + f[:, 0]), 0.0)
    _, _, made = tracked(before, now, "cross", wire, (near(before, 0.1), near(now, 0.1)))
    held = now[(labels == RARE) & (owners != 0)].mean(axis=0)
    assert np.abs(made.prototype[1:] - held[1:]).max() <= 2 * now[:, 1:].max()


@pytest.mark.parametrize(("wire", "off"), [("float32", 0.1), ("float16", 2.0)])
def test_a_map_of_very_many_samples_is_not_fitted_to_rounding(wire, off):
    """Two features that the reference classes have alike and the departed class apart, and hardly a ridge.

    The departed class is two away along a direction of which float16 says nothing: it is off by no more than that.
    """
    before, now = worlds(14)
    for f in (before, now):
        f[:, 1] = f[:, 0] + 2.0 * (labels == RARE)
    origins = near(before, 0.1), near(now, 0.1)
    stay, weights = owners != 0, np.array([1.0, 1, 0, 1, 1, 1])
    cross = mpt.CrossStatistics.from_features(
        before[stay], now[stay], labels[stay], C, weights=weights, earlier_origin=origins[0], origin=origins[1]
    )
    often = {name: 10_000 * getattr(cross, name) for name in ("counts", "earlier", "sums", "gram", "cross")}
    maps = []
    for how in ("float64", wire):
        many = sent(replace(cross, **often), how)
        others = np.flatnonzero(weights)
        ridge = map_ridge(weights[others], many.counts[others], D, halves=many.halves)
        found = affine_map(many.earlier_means_of(others), many.means[others], many.counts[others], *many.within, ridge)
        maps.append(found(before[labels == RARE].mean(axis=0)))
    assert np.max(np.abs(maps[1] - maps[0]) / now.std(axis=0)) <= off


def test_float16_asks_for_a_larger_ridge_and_says_so():
    before, now = worlds(12)
    weights = np.array([1.0, 1, 0, 1, 1, 1])
    cross = mpt.CrossStatistics.from_features(before, now, labels, C, weights=weights)
    halved = sent(cross, "float16")
    assert (cross.halves, sent(cross, "float32").halves, halved.halves) == (False, False, True)
    assert (cross + halved).halves
    assert mpt.CrossStatistics.merge([cross, halved]).halves
    assert sent(halved, "float64").halves
    counts = np.full(C, 10**7)
    assert halves_suffice(weights, cross.counts, D)
    assert not halves_suffice(weights, counts, D)
    assert map_ridge(weights, counts, D) < map_ridge(weights, counts, D, halves=True) == 2.0**-12
    assert map_ridge(weights, cross.counts, D) == map_ridge(weights, cross.counts, D, halves=True)


@pytest.mark.parametrize("variant", ["mpt", "cross"])
def test_a_sample_a_class_is_enough_for_a_deposit(variant):
    """No more samples than classes say nothing of a covariance; the prototypes are known all the same."""
    few, kinds = worlds(13)[0][::PER_CLASS], np.arange(C)
    stats = mpt.ClassStatistics.from_features(few, kinds, C, watched=[RARE])
    staying = mpt.ClassStatistics.from_features(few[kinds != RARE], kinds[kinds != RARE], C, watched=[RARE])
    deposit = mpt.deposit(stats, RARE, staying=staying)
    assert not deposit.covariance.any()
    cross = None
    if variant == "cross":
        stay = kinds != RARE
        cross = mpt.CrossStatistics.from_features(
            few[stay], few[stay], kinds[stay], C, weights=mpt.class_weights(deposit, C)
        )
    made = mpt.reconstruct(deposit, staying, variant=variant, cross=cross)
    known = few[deposit.classes]
    expected = few[RARE] if cross else deposit.weights @ known + outside(deposit.residual, span_basis(known))
    np.testing.assert_allclose(made.prototype, expected, atol=1e-9)
