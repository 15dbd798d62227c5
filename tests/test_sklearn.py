"""The readout as a scikit-learn classifier."""

import pickle

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import load_digits, load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import mpt
from mpt.sklearn import PrototypeClassifier


@parametrize_with_checks([PrototypeClassifier(), PrototypeClassifier(metric="euclidean")])
def test_it_is_a_classifier(estimator, check):
    check(estimator)


def iris(words=False):
    X, y = load_iris(return_X_y=True)
    return X, np.array(["setosa", "versicolor", "virginica"])[y] if words else y


def test_in_a_pipeline_it_scores_as_linear_discriminants_do():
    X, y = load_digits(return_X_y=True)
    ours = cross_val_score(make_pipeline(StandardScaler(), PrototypeClassifier()), X, y, cv=3)
    theirs = cross_val_score(make_pipeline(StandardScaler(), LinearDiscriminantAnalysis()), X, y, cv=3)
    assert ours.mean() > theirs.mean() - 0.02 > 0.85


def test_with_classes_of_one_size_and_no_ridge_it_is_linear_discriminants():
    X, y = iris()
    ours = PrototypeClassifier(cov_ridge=0.0).fit(X, y)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", priors=[1 / 3] * 3).fit(X, y)
    assert np.array_equal(ours.predict(X), theirs.predict(X))
    scale = (len(X) - 3) / len(X)  # theirs divides the scatter by N, ours by N - K
    np.testing.assert_allclose(
        softmax(ours.decision_function(X), axis=1), softmax(theirs.decision_function(X) * scale, axis=1), atol=1e-9
    )
    np.testing.assert_allclose(ours.predict_proba(X), softmax(ours.decision_function(X), axis=1))


def test_batches_add_up_in_any_order_and_classes_may_come_later():
    X, y = iris(words=True)
    whole = PrototypeClassifier().fit(X, y)
    parts = PrototypeClassifier()
    for chosen in (y == "versicolor", y == "virginica", y == "setosa"):
        parts.partial_fit(X[chosen], y[chosen])
    assert parts.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    np.testing.assert_allclose(parts.prototypes_, whole.prototypes_)
    np.testing.assert_allclose(parts.distances(X), whole.distances(X), rtol=1e-6)
    again = parts.fit(X[y != "setosa"], y[y != "setosa"])
    assert again.classes_.tolist() == ["versicolor", "virginica"], "fit forgets what was before"


def test_a_class_that_is_yet_to_come_is_never_said():
    X, y = iris(words=True)
    ours = PrototypeClassifier().partial_fit(X, y, classes=["setosa", "versicolor", "virginica", "alba"])
    assert "alba" not in ours.predict(X)
    assert (ours.predict_proba(X)[:, 0] == 0).all()


def test_what_is_too_far_is_rejected():
    X, y = iris()
    ours = PrototypeClassifier(reject=5.0).fit(X, y)
    assert ours.predict([X[0], X[0] + 100]).tolist() == [0, -1]
    words = PrototypeClassifier(reject=5.0).fit(*iris(words=True))
    assert words.predict([X[0], X[0] + 100]).tolist() == ["setosa", ""]
    assert words.set_params(rejected="none").predict([X[0] + 100]).tolist() == ["none"]


@pytest.mark.parametrize(
    ("names", "kind", "rejected", "said"),
    [
        ([3, 5, 200], np.uint8, None, (np.int64, -1)),
        ([3, 5, 200], np.uint8, 255, (np.uint8, 255)),
        ([3, 5, 2**63 - 1], np.uint64, None, (np.int64, -1)),
        ([3, 5, 2**63], np.uint64, 7, (np.uint64, 7)),
        ([3, 5, 9], np.int8, 1000, (np.int64, 1000)),
        ([3, 5, 9], np.int8, np.int64(-7), (np.int8, -7)),
        ([-1, 1, 2], np.int64, 0, (np.int64, 0)),
        ([3, 5, 9], np.float32, None, (np.float32, -1.0)),
        ([3, 5, 9], np.float32, 0.1, (np.float64, 0.1)),
        (["a", "b", "c"], np.str_, "too far", ("<U7", "too far")),
        (["a", "b", "c"], object, None, (object, "")),
        (["a", "b", "c"], object, "too far", (object, "too far")),
    ],
)
def test_what_is_said_of_the_rejected_is_of_the_labels_kind(names, kind, rejected, said):
    X, y = iris()
    names = np.array(names, dtype=kind)
    ours = PrototypeClassifier(reject=5.0, rejected=rejected).fit(X, names[y])
    found = ours.predict([X[0], X[0] + 100])
    assert (found.dtype, found.tolist()) == (said[0], [names[0], said[1]])
    assert type(found.tolist()[1]) is type(said[1])
    assert ours.predict(X[:50]).tolist() == names[y][:50].tolist()


def test_labels_of_pandas_are_rejected_with_an_empty_word():
    pandas = pytest.importorskip("pandas")
    X, y = iris(words=True)
    for column in (pandas.Series(y), pandas.Series(y, dtype="category"), pandas.Series(y, dtype=object)):
        ours = PrototypeClassifier(reject=5.0).fit(X, column)
        assert ours.predict([X[0], X[0] + 100]).tolist() == ["setosa", ""]


def test_numbers_that_are_rejected_as_nan():
    X, y = iris()
    assert np.isnan(PrototypeClassifier(reject=5.0, rejected=np.nan).fit(X, y * 1.0).predict([X[0] + 100])).all()


@pytest.mark.parametrize(
    ("labels", "rejected", "why"),
    [
        ([-1, 1, 2], None, "rejected: -1 is one of the labels, should be none of them"),
        ([-1.0, 1.0, 2.0], None, "rejected: -1 is one of the labels"),
        ([0, 1, 2], 2, "rejected: 2 is one of the labels"),
        (["", "a", "b"], None, "rejected: '' is one of the labels"),
        (["a", "b", "c"], -1, "rejected: -1, should be a word, as labels are"),
        ([0, 1, 2], "none", "rejected: 'none', should be an integer, as labels are"),
        ([0, 1, 2], 0.5, "rejected: 0.5, should be an integer, as labels are"),
        ([0, 1, 2], True, "rejected: True, should be an integer, as labels are"),
        ([0.0, 1.0, 2.0], "none", "rejected: 'none', should be a number, as labels are"),
        ([True, False, True], None, "reject: labels are truth values, which leave none to reject with"),
        (np.array([0, 1, 2**63], np.uint64), None, "rejected: -1, no type holds it beside labels of uint64"),
    ],
)
def test_what_cannot_be_said_of_the_rejected_is_refused(labels, rejected, why):
    X, y = iris()
    named = np.asarray(labels)[y]
    with pytest.raises(mpt.MptError, match=why):
        PrototypeClassifier(reject=5.0, rejected=rejected).fit(X, named)
    ours = PrototypeClassifier(rejected=rejected).fit(X, named)  # without `reject` nothing is rejected
    assert ours.predict(X).dtype == named.dtype
    with pytest.raises(mpt.MptError, match=why):
        ours.set_params(reject=5.0).predict(X)
    if len(set(labels)) == 3:
        sums = mpt.ClassStatistics.from_features(X, y, 3)
        with pytest.raises(mpt.MptError, match=why):
            PrototypeClassifier.from_statistics(sums, labels, reject=5.0, rejected=rejected)


def test_a_label_that_comes_later_may_not_be_what_the_rejected_are():
    X, y = iris()
    ours = PrototypeClassifier(reject=5.0).partial_fit(X, y)
    with pytest.raises(mpt.MptError, match="rejected: -1 is one of the labels"):
        ours.partial_fit(X, np.where(y == 0, -1, y))
    assert (ours.classes_.tolist(), ours.predict([X[0] + 100]).tolist()) == ([0, 1, 2], [-1])


@pytest.mark.parametrize(
    ("first", "then", "why"),
    [
        (["a", "b", "c"], [0, 1, 2], "y: labels are numbers, those of classes_ are words, should be all of one kind"),
        ([0, 1, 2], ["a", "b", "c"], "y: labels are words, those of classes_ are numbers"),
        ([0, 1, 2], [True, False, True], "y: labels are truth values, those of classes_ are numbers"),
        ([0, 1, 2**53 + 1], [0.0, 1.0, 2.0], "y: numbers that no type holds beside those of classes_"),
    ],
)
def test_batches_have_labels_of_one_kind(first, then, why):
    X, y = iris()
    ours = PrototypeClassifier().partial_fit(X, np.array(first)[y])
    with pytest.raises(mpt.StatisticsError, match=why):
        ours.partial_fit(X, np.array(then)[y])
    with pytest.raises(mpt.StatisticsError, match=r"should be (all )?of (one kind|the same type)"):
        ours.partial_fit(X, np.array(first)[y], classes=then)
    assert ours.classes_.tolist() == first
    assert ours.statistics_.counts.tolist() == [50] * 3


def test_integers_and_real_numbers_are_of_one_kind():
    X, y = iris()
    ours = PrototypeClassifier().partial_fit(X, y).partial_fit(X, y * 1.0)
    assert ours.classes_.tolist() == [0, 1, 2]
    assert ours.statistics_.counts.tolist() == [100] * 3


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        (["a", 1, "b"], "y: labels are numbers and words, should be all of one kind"),
        ([True, 2, 3], "y: labels are numbers and truth values"),
        (np.array(["a", 1, "b"], dtype=object), "Unknown label type: y has objects of type int, should be all words"),
        (np.array(["a", None, "b"], dtype=object), "Unknown label type: y has objects of type NoneType"),
        (np.array(["2020", "2021", "2022"], "datetime64[Y]"), "y has dtype datetime64"),
    ],
)
def test_labels_that_are_none(labels, why):
    X, y = iris()
    named = [labels[c] for c in y] if isinstance(labels, list) else labels[y]
    with pytest.raises(mpt.StatisticsError, match=why):
        PrototypeClassifier().fit(X, named)


def test_from_sums_that_vehicles_sent_with_a_class_carried_over():
    X, y = iris()
    reports = [mpt.ClassStatistics.from_features(X[part::3], y[part::3], 3) for part in range(3)]
    whole = PrototypeClassifier.from_statistics(sum(reports), ["setosa", "versicolor", "virginica"])
    assert whole.predict(X).tolist() == PrototypeClassifier().fit(*iris(words=True)).predict(X).tolist()
    left = mpt.ClassStatistics.from_features(X[y != 2], y[y != 2], 3)
    gone = PrototypeClassifier.from_statistics(left)
    kept = PrototypeClassifier.from_statistics(left, carried={2: X[y == 2].mean(axis=0)})
    assert 2 not in gone.predict(X)
    assert np.mean(kept.predict(X) == y) > 0.95
    assert np.array_equal(kept.partial_fit(X[:1], y[:1]).prototypes_[2], X[y == 2].mean(axis=0)), "it stays"
    assert np.array_equal(pickle.loads(pickle.dumps(kept)).predict(X), kept.predict(X))


def test_classes_of_sums_are_named_in_any_order():
    X, y = iris()
    names = ["versicolor", "setosa", "virginica"]  # of the classes 0, 1 and 2
    stats = mpt.ClassStatistics.from_features(X, y, 3, watched=[2])
    ours = PrototypeClassifier.from_statistics(stats, names, carried={"setosa": X[y == 1].mean(axis=0) + 0.1})
    assert ours.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert ours.statistics_.watched == (2,)
    assert PrototypeClassifier.from_statistics(stats, names[::-1]).statistics_.watched == (1,)
    means = {"versicolor": X[y == 0].mean(axis=0), "setosa": X[y == 1].mean(axis=0) + 0.1}
    for label, mean in means.items():
        np.testing.assert_allclose(ours.prototypes_[ours.classes_.tolist().index(label)], mean)
    plain = PrototypeClassifier.from_statistics(stats)
    whole = PrototypeClassifier.from_statistics(stats, names)
    assert whole.predict(X).tolist() == [names[c] for c in plain.predict(X)]
    named = np.array(names)[y]
    assert whole.partial_fit(X, named).statistics_.counts.tolist() == [100, 100, 100]


def test_sums_may_come_one_by_one():
    X, y = iris()
    reports = [mpt.ClassStatistics.from_features(X[part::3], y[part::3], 3) for part in range(3)]
    whole = PrototypeClassifier.from_statistics(sum(reports))
    for several in (reports, tuple(reports), iter(reports)):
        assert np.array_equal(PrototypeClassifier.from_statistics(several).prototypes_, whole.prototypes_)


def test_sums_in_which_a_class_is_watched_go_on():
    X, y = iris()
    watching = mpt.ClassStatistics.from_features(X, y, 3, watched=[1])
    ours = PrototypeClassifier.from_statistics(watching).partial_fit(X, y)
    assert ours.statistics_.watched == (1,)
    assert ours.statistics_.counts.tolist() == [100, 100, 100]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (
            lambda s: PrototypeClassifier.from_statistics(s, ["a", "b"]),
            "classes: .* should be 3 different labels",
        ),
        (lambda s: PrototypeClassifier.from_statistics(s, ["b", "a", "b"]), "should be 3 different labels"),
        (lambda s: PrototypeClassifier.from_statistics(s, ["b", "a", 1]), "classes: labels are numbers and words"),
        (lambda s: PrototypeClassifier.from_statistics(s, [0.0, 1.0, np.nan]), "classes: has labels that are NaN"),
        (lambda s: PrototypeClassifier.from_statistics(s, carried={7: np.zeros(4)}), "carried: 7, should be one of"),
        (lambda s: PrototypeClassifier.from_statistics(s, carried={True: np.zeros(4)}), "carried: True, should be one"),
        (
            lambda s: PrototypeClassifier.from_statistics(s, carried={1: np.zeros(3)}),
            r"carried: 1: shape is \(3,\), sh",
        ),
        (lambda s: PrototypeClassifier.from_statistics(s, carried={1: [0, 0, np.nan, 0]}), r"carried: 1: nan at \[2\]"),
        (lambda s: PrototypeClassifier.from_statistics(s, carried={1: "abcd"}), "carried: 1: dtype is <U4"),
        (lambda s: PrototypeClassifier.from_statistics(s, carried=[np.zeros(4)]), "carried: list, should be proto"),
        (lambda s: PrototypeClassifier.from_statistics([]), "merge: no reports, should be at least one"),
        (lambda s: PrototypeClassifier.from_statistics([s, b"sums"]), "merge: bytes, should be ClassStatistics"),
        (lambda s: PrototypeClassifier.from_statistics(None), "statistics: NoneType, should be ClassStatistics or"),
    ],
)
def test_what_does_not_fit_is_refused(make, why):
    with pytest.raises(mpt.StatisticsError, match=why):
        make(mpt.ClassStatistics.from_features(*iris(), 3))


def test_lite_statistics_need_the_euclidean_metric():
    lite = mpt.ClassStatistics.from_features(*iris(), 3, scatter=False)
    with pytest.raises(mpt.StatisticsError, match='should have one, or metric "euclidean"'):
        PrototypeClassifier.from_statistics(lite)
    assert PrototypeClassifier.from_statistics(lite, metric="euclidean").predict(iris()[0]).shape == (150,)


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"metric": "cosine"}, "metric: 'cos"),
        ({"reject": 0.0}, "reject: 0.0, should be a distance above 0, or None"),
        ({"reject": "a"}, "reject: 'a', should be a distance"),
        ({"reject": np.nan}, "reject: nan, should be a distance"),
        ({"reject": True}, "reject: True, should be a distance"),
    ],
)
def test_wrong_parameters_are_said(parameters, why):
    with pytest.raises(ValueError, match=why):
        PrototypeClassifier(**parameters).fit(*iris())


def test_columns_of_pandas_own_types_keep_their_kind():
    pandas = pytest.importorskip("pandas")
    rows = np.random.default_rng(0).normal(size=(12, 3))
    said = pandas.Series([True, False] * 6, dtype="boolean")
    assert PrototypeClassifier().fit(rows, said).classes_.dtype == bool
    counted = PrototypeClassifier(reject=1e-9).fit(rows, pandas.Series([3, 5] * 6, dtype="Int64"))
    assert counted.classes_.dtype == counted.predict(rows).dtype == np.int64
    assert counted.predict(rows).tolist() == [-1] * 12
    with pytest.raises(ValueError, match="y: some labels are missing"):
        PrototypeClassifier().fit(rows, pandas.Series([3, None] * 6, dtype="Int64"))


def test_a_fit_that_is_refused_changes_nothing():
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(30, 4)), np.arange(30) % 3
    ours = PrototypeClassifier().fit(rows, labels)
    before = ours.predict(rows)
    for wrong_rows, wrong in ((rows, ["a", 1] * 15), (rows[:, :2], [np.nan] * 30), (rows[:5], labels)):
        with pytest.raises(ValueError, match=r"\w"):
            ours.fit(wrong_rows, wrong)
        np.testing.assert_array_equal(ours.predict(rows), before)
    assert ours.partial_fit(rows, labels).classes_.tolist() == [0, 1, 2]
    assert ours.statistics_.counts.sum() == 60


def test_a_batch_that_is_refused_changes_nothing():
    X, y = iris()
    ours = PrototypeClassifier(metric="euclidean").fit(X, y).set_params(metric="mahalanobis")
    with pytest.raises(mpt.StatisticsError, match='should have one, or metric "euclidean"'):
        ours.partial_fit(X, y)
    assert ours.set_params(metric="euclidean").partial_fit(X, y).statistics_.counts.tolist() == [100] * 3
    new = PrototypeClassifier()
    with pytest.raises(ValueError, match="continuous"):
        new.partial_fit(X, y * 1.5)
    assert not hasattr(new, "n_features_in_")
