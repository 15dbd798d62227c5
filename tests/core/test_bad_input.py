"""Every kind of bad input raises `StatisticsError` with a sentence about it, and leaves the objects as they were."""

import dataclasses

import numpy as np
import pytest

import mpt

from .worlds import make_world

WORLD = make_world()
STATS = WORLD.stats()
LITE = WORLD.stats(scatter=False, span=STATS.means[[0, 1, 3, 4, 5]])
DEPOSIT = mpt.deposit(STATS, 2)
READOUT = mpt.NearestClassMean(STATS.means, STATS.covariance())


def with_entry(array, where, value):
    changed = np.array(array)
    changed[where] = value
    return changed


def stats(features=WORLD.features, labels=WORLD.labels, num_classes=6, **options):
    return mpt.ClassStatistics.from_features(features, labels, num_classes, **options)


def rebuilt(thing, **changes):
    return dataclasses.replace(thing, **changes)


X, Y = WORLD.features, WORLD.labels


def cross(earlier=X, features=X, labels=Y, num_classes=6, **options):
    return mpt.CrossStatistics.from_features(earlier, features, labels, num_classes, **options)


CROSS = cross(weights=[1.0, 1.0, 0.0, 1.0, 1.0, 1.0])

CASES = {
    "features of one dimension": (lambda: stats(X[0]), r"features: shape is \(12,\)"),
    "features of three dimensions": (
        lambda: stats(X[None]),
        r"features: shape is \(1, 360, 12\), should be \(N, d\)",
    ),
    "features without columns": (lambda: stats(X[:, :0]), "the feature dimension is 0"),
    "features of text": (lambda: stats([["a"]], [0]), "features: dtype is <U1, should be real numbers"),
    "complex features": (lambda: stats(X + 1j), "features: dtype is complex128"),
    "ragged features": (lambda: stats([[1.0], [1.0, 2.0]], [0, 1]), "features: cannot be read as an array"),
    "no features": (lambda: stats(None, []), "features: dtype is object"),
    "NaN": (lambda: stats(with_entry(X, (7, 3), np.nan)), "features: nan at sample 7, column 3"),
    "infinity": (lambda: stats(with_entry(X, (8, 0), -np.inf)), "features: -inf at sample 8, column 0"),
    "too few labels": (lambda: stats(X, Y[:-1]), r"labels: shape is \(359,\), should be \(360,\)"),
    "labels in a column": (lambda: stats(X, Y[:, None]), r"labels: shape is \(360, 1\)"),
    "labels of reals": (lambda: stats(X, Y.astype(float)), "labels: dtype is float64, should be integers"),
    "labels of booleans": (lambda: stats(X, Y > 2), "labels: dtype is bool"),
    "a label too high": (
        lambda: stats(X, with_entry(Y, 5, 6)),
        r"sample 5 has class 6, but there are 6 classes \(0 to 5\)",
    ),
    "a negative label": (lambda: stats(X, with_entry(Y, 9, -1)), "sample 9 has class -1"),
    "no classes": (lambda: stats(num_classes=0), "num_classes: 0, should be at least 1"),
    "half a class": (lambda: stats(num_classes=5.5), "num_classes: 5.5, should be an integer"),
    "watching no such class": (lambda: stats(watched=[6]), "watched: class 6, but there are 6 classes"),
    "watching nobody knows what": (lambda: stats(watched=None), r"watched: None, should be a class index or several"),
    "far too many classes": (lambda: stats(num_classes=10**30), "should be at most 16777216"),
    "masked features": (lambda: stats(np.ma.masked_less(X, 0)), "features: has masked entries"),
    "a ragged origin": (lambda: rebuilt(STATS, origin=[[1.0], [1.0, 2.0]]), "origin: cannot be read as an array"),
    "an origin of text": (lambda: rebuilt(STATS, origin=""), "origin: dtype is <U"),
    "too many samples to sum": (lambda: rebuilt(STATS, counts=STATS.counts + 2**52), "more than can be summed exactly"),
    "a scatter of nothing": (lambda: rebuilt(STATS, watched=range(6)), "scatter: not zero, though only watched"),
    "watching a truth": (lambda: stats(watched=True), "watched: True, should be an integer"),
    "features too large to square": (lambda: stats(1e200 * X), "features: too large, their squares overflow float64"),
    "watching a name": (lambda: stats(watched=["truck"]), "watched: 'truck', should be an integer"),
    "a span of another dimension": (
        lambda: stats(span=np.ones((2, 5))),
        r"span: shape is \(2, 5\), should be \(any, 12\)",
    ),
    "a span with NaN": (lambda: stats(span=np.full((1, 12), np.nan)), "span: nan at"),
    "an origin of another dimension": (lambda: stats(origin=np.ones(5)), r"origin: shape is \(5,\), should be \(12,\)"),
    "an origin with infinity": (lambda: stats(origin=np.full(12, np.inf)), "origin: inf at"),
    "a negative count": (lambda: rebuilt(STATS, counts=with_entry(STATS.counts, 1, -4)), "class 1 has -4 samples"),
    "real counts": (lambda: rebuilt(STATS, counts=STATS.counts + 0.5), "counts: dtype is float64"),
    "counts of another length": (lambda: rebuilt(STATS, counts=STATS.counts[:4]), r"sums: shape is \(6, 12\)"),
    "no counts": (lambda: mpt.ClassStatistics([], np.zeros((0, 3)), []), "counts: empty"),
    "NaN in the sums": (lambda: rebuilt(STATS, sums=with_entry(STATS.sums, (2, 2), np.nan)), r"sums: nan at \[2, 2\]"),
    "negative squares": (lambda: rebuilt(STATS, squares=with_entry(STATS.squares, 3, -1)), "squares: -1.0 at class 3"),
    "sums without samples": (lambda: rebuilt(STATS, counts=with_entry(STATS.counts, 3, 0)), "not zero for class 3"),
    "a scatter of another size": (lambda: rebuilt(STATS, scatter=np.eye(5)), r"scatter: shape is \(5, 5\)"),
    "an asymmetric scatter": (lambda: rebuilt(STATS, scatter=np.triu(STATS.scatter)), "should be symmetric"),
    "a negative scatter": (lambda: rebuilt(STATS, scatter=-STATS.scatter), "on the diagonal, should not be negative"),
    "sums without columns": (lambda: mpt.ClassStatistics([1], np.zeros((1, 0)), [0.0]), "the feature dimension is 0"),
    "a class without samples departs": (
        lambda: mpt.deposit(WORLD.without_rare().stats(), 2),
        "before: class 2 has no samples at departure",
    ),
    "a departed class that is not watched": (
        lambda: mpt.deposit(stats(watched=[1]), 2),
        r"before: does not watch departed class 2 \(watched: \(1,\)\)",
    ),
    "staying vehicles that do not watch": (lambda: mpt.deposit(STATS, 2, staying=stats()), "staying: does not watch"),
    "staying vehicles of another shape": (
        lambda: mpt.deposit(STATS, 2, staying=make_world(d=5).stats()),
        "staying: 6 classes and dimension 5, but before has 6 and 12",
    ),
    "before and staying swapped": (
        lambda: mpt.deposit(WORLD.without_rare(9).stats(), 2, staying=STATS),
        "staying: 60 samples of departed class 2, more than before's 9",
    ),
    "no such class departs": (lambda: mpt.deposit(STATS, 6), "departed: class 6"),
    "a departed class by name": (lambda: mpt.deposit(STATS, "truck"), "departed: 'truck', should be an integer"),
    "no reference class": (lambda: mpt.deposit(stats(watched=range(6)), 2), "there is no reference class"),
    "a negative ridge": (lambda: mpt.deposit(STATS, 2, ridge=-0.1), "ridge: -0.1, should be finite and not negative"),
    "a ridge that is no number": (lambda: mpt.deposit(STATS, 2, ridge="much"), "ridge: 'much', should be a number"),
    "a ridge as text": (lambda: mpt.deposit(STATS, 2, ridge="0.1"), "ridge: '0.1', should be a number"),
    "a ridge beyond measure": (lambda: mpt.deposit(STATS, 2, ridge=10**400), "ridge: inf, should be finite"),
    "an infinite cov_ridge": (lambda: mpt.deposit(STATS, 2, cov_ridge=np.inf), "cov_ridge: inf"),
    "the sum of no reports": (lambda: mpt.deposit(sum([]), 2), r"before: int \(the sum of no reports\?\), should be"),
    "something else deposited": (lambda: mpt.deposit(X, 2), "before: ndarray, should be ClassStatistics"),
    "too few samples for a covariance": (
        lambda: make_world(per_class=1).stats().covariance(),
        "a covariance needs more samples than classes",
    ),
    "a deposit that refers to its own class": (
        lambda: rebuilt(DEPOSIT, departed=3),
        r"classes: \[0, 1, 3, 4, 5\], should differ from each other and from 3",
    ),
    "weights that are none": (lambda: rebuilt(DEPOSIT, weights=DEPOSIT.weights + 1), "weights: their sum is"),
    "a deposit of a negative covariance": (lambda: rebuilt(DEPOSIT, covariance=-np.eye(12)), "covariance: -1.0 on the"),
    "a departed class out of range": (lambda: rebuilt(DEPOSIT, departed=2**40), "departed: 1099511627776, should be"),
    "weights of another length": (lambda: rebuilt(DEPOSIT, weights=np.ones(3)), r"weights: shape is \(3,\)"),
    "an unknown variant": (
        lambda: mpt.reconstruct(DEPOSIT, STATS, variant="mpt-x"),
        "should be one of .*; MPT-X is 'cross'",
    ),
    "no variant": (lambda: mpt.reconstruct(DEPOSIT, STATS, variant=[]), "should be one of 'mpt', 'lite'"),
    "text reconstructed": (lambda: mpt.reconstruct("ab", STATS), "deposit: str, should be a Deposit or several"),
    "statistics that do not watch": (
        lambda: mpt.reconstruct(DEPOSIT, stats()),
        "stats: does not watch departed class 2",
    ),
    "statistics of another dimension": (
        lambda: mpt.reconstruct(DEPOSIT, make_world(d=5).stats()),
        "stats: dimension 5, but the deposit has 12",
    ),
    "statistics of fewer classes": (
        lambda: mpt.reconstruct(DEPOSIT, make_world(num_classes=4).stats()),
        "stats: 4 classes, but the deposit knows class 5",
    ),
    "nothing left to refer to": (
        lambda: mpt.reconstruct(DEPOSIT, stats(watched=range(6))),
        r"none of the reference classes \[0, 1, 3, 4, 5\] of departed class 2",
    ),
    "no scatter for mpt": (lambda: mpt.reconstruct(DEPOSIT, LITE), "the stats have no scatter; .*variant='lite'"),
    "no covariance for mpt": (lambda: mpt.reconstruct(mpt.deposit(LITE, 2), STATS), "the deposit has no covariance"),
    "no span for lite": (
        lambda: mpt.reconstruct(DEPOSIT, WORLD.stats(scatter=False), variant="lite"),
        "the squares of the stats are those of whole features",
    ),
    "something else reconstructed": (lambda: mpt.reconstruct(7, STATS), "deposit: int, should be a Deposit or several"),
    "several, one of them something else": (lambda: mpt.reconstruct([DEPOSIT, 7], STATS), "deposit: int, should be"),
    "from something else": (lambda: mpt.reconstruct(DEPOSIT, X), "stats: ndarray, should be ClassStatistics"),
    "a singular covariance without ridge": (
        lambda: mpt.reconstruct(mpt.deposit(make_world(per_class=2).stats(), 2, cov_ridge=0), STATS),
        "deposit covariance: not positive definite; use a larger cov_ridge",
    ),
    "fewer samples under the earlier model": (
        lambda: cross(X[:-1]),
        r"earlier: shape is \(359, 12\), should be \(360, 12\)",
    ),
    "NaN under the earlier model": (lambda: cross(with_entry(X, (7, 3), np.nan)), "earlier: nan at sample 7, column 3"),
    "infinity under the current one": (lambda: cross(X, with_entry(X, (7, 3), np.inf)), "features: inf at sample 7"),
    "weights for other classes": (lambda: cross(weights=np.ones(5)), r"weights: shape is \(5,\), should be \(6,\)"),
    "a negative weight": (
        lambda: cross(weights=[1, 1, -2, 1, 1, 1]),
        "weights: -2.0 at class 2, should not be negative",
    ),
    "an earlier origin elsewhere": (lambda: cross(earlier_origin=np.ones(3)), r"earlier_origin: shape is \(3,\)"),
    "products too large": (lambda: cross(1e200 * X, 1e200 * X), "features: too large, their products overflow float64"),
    "an asymmetric gram": (lambda: rebuilt(CROSS, gram=np.triu(CROSS.gram)), "gram: .*should be symmetric"),
    "a negative gram": (lambda: rebuilt(CROSS, gram=-CROSS.gram), "gram: .*should not be negative"),
    "half of the cross moments": (lambda: rebuilt(CROSS, cross=CROSS.cross[:6]), r"cross: shape is \(6, 12\)"),
    "cross moments of nothing": (
        lambda: rebuilt(CROSS, weights=np.zeros(6)),
        "though no class with a weight has samples",
    ),
    "earlier sums without samples": (
        lambda: rebuilt(CROSS, counts=with_entry(CROSS.counts, 3, 0)),
        "sums, earlier: not zero for class 3",
    ),
    "cross moments of another shape": (
        lambda: mpt.reconstruct(DEPOSIT, STATS, variant="cross", cross=cross(X[:, :5], X[:, :5])),
        r"cross: \(classes, dimension\) are \(6, 5\), but those of the statistics are \(6, 12\)",
    ),
    "cross moments without a scatter": (
        lambda: mpt.reconstruct(DEPOSIT, LITE, variant="cross", cross=CROSS),
        "scatter: None, a covariance needs statistics made with scatter=True",
    ),
    "class weights without a covariance": (
        lambda: mpt.class_weights(mpt.deposit(LITE, 2), 6),
        "deposit: has no covariance",
    ),
    "an anchor elsewhere": (lambda: rebuilt(DEPOSIT, anchor=np.ones(3)), r"anchor: shape is \(3,\), should be \(12,\)"),
    "something else to share": (lambda: mpt.deposit(STATS, 2, cross=X), "cross: ndarray, should be CrossStatistics"),
    "prototypes of one dimension": (lambda: mpt.NearestClassMean(np.ones(3)), r"prototypes: shape is \(3,\)"),
    "no prototype": (lambda: mpt.NearestClassMean(np.full((2, 2), np.nan)), "prototypes: no class has one"),
    "half a prototype": (lambda: mpt.NearestClassMean([[0.0, np.nan]]), r"prototypes: nan at \[0, 1\]"),
    "an infinite prototype": (lambda: mpt.NearestClassMean([[0.0, np.inf]]), r"prototypes: inf at \[0, 1\]"),
    "a covariance of another size": (lambda: mpt.NearestClassMean(STATS.means, np.eye(3)), r"should be \(12, 12\)"),
    "an indefinite covariance": (
        lambda: mpt.NearestClassMean(np.eye(2), np.diag([3.0, -1.0])),
        "not positive definite",
    ),
    "a negative covariance": (lambda: mpt.NearestClassMean(np.eye(2), -np.eye(2)), "not positive definite"),
    "nothing to merge": (lambda: mpt.ClassStatistics.merge([]), "merge: no reports, should be at least one"),
    "bytes to merge": (lambda: mpt.ClassStatistics.merge([STATS, b"x"]), "merge: bytes, should be ClassStatistics"),
    "bytes first": (
        lambda: mpt.ClassStatistics.merge([b"x"]),
        "merge: bytes, should be ClassStatistics, which from_bytes",
    ),
    "other reports to merge": (
        lambda: mpt.CrossStatistics.merge([STATS]),
        "ClassStatistics, should be CrossStatistics",
    ),
    "weights of no deposit": (lambda: mpt.class_weights(None, 3), "deposit: NoneType, should be a Deposit"),
    "a scatter of other samples": (
        lambda: mpt.ClassStatistics([9, 9], [[9.0, 0], [0, 9.0]], [9.0, 9.0], np.eye(2)).covariance(),
        "scatter: less than what the sums account for",
    ),
    "a negative cov_ridge": (lambda: mpt.NearestClassMean(np.eye(2), cov_ridge=-1), "cov_ridge: -1.0"),
    "one feature to predict": (
        lambda: READOUT.predict(X[0]),
        r"should be \(N, 12\); one sample is features\[None, :\]",
    ),
    "features of another dimension": (lambda: READOUT.distances(X[:, :5]), r"should be \(any, 12\)"),
    "NaN to predict": (lambda: READOUT.predict(with_entry(X, (3, 1), np.nan)), "features: nan at sample 3, column 1"),
}


def snapshot():
    """Everything that the cases share, as bytes."""
    return (
        STATS.to_bytes(),
        LITE.to_bytes(),
        DEPOSIT.to_bytes(),
        CROSS.to_bytes(),
        READOUT.prototypes.tobytes(),
        X.tobytes(),
        Y.tobytes(),
    )


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_refused_with_a_sentence(case):
    call, message = CASES[case]
    before = snapshot()
    with pytest.raises(mpt.StatisticsError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)
    assert snapshot() == before


def test_statistics_error_is_a_value_error():
    assert issubclass(mpt.StatisticsError, ValueError)
