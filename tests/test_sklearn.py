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
        (lambda s: PrototypeClassifier.from_statistics(s, ["b", "a", "c"]), "sorted"),
        (lambda s: PrototypeClassifier.from_statistics(s, carried={7: np.zeros(4)}), "carried: 7 with shape"),
        (lambda s: PrototypeClassifier.from_statistics(s, carried={1: np.zeros(3)}), r"carried: 1 with shape \(3,\)"),
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


@pytest.mark.parametrize(("parameters", "why"), [({"metric": "cosine"}, "metric: 'cos"), ({"reject": 0.0}, "reject")])
def test_wrong_parameters_are_said(parameters, why):
    with pytest.raises(ValueError, match=why):
        PrototypeClassifier(**parameters).fit(*iris())
