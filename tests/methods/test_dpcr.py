"""DPCR on bytes, beside what the samples themselves give."""

import numpy as np
import pytest

from mpt.methods import MethodError, find_method
from mpt.methods.dpcr import ridge_classifier, row_space, shift_map

from .fleet import CLASSES, RARE, D, Fleet

EXACT = "ridge=1e-9"


@pytest.fixture(scope="module")
def fleet():
    """A fleet whose features drift by a linear map."""
    made = Fleet()
    made.map = np.eye(D) + 0.5 * np.random.default_rng(1).standard_normal((D, D))
    made.after = made.before @ made.map
    return made


def ridge_solution(features, labels, gamma):
    """Weights (C, d) of unit length, of one-hot targets by ridge regression on the samples, solved as least squares."""
    size = gamma * np.sum(features**2) / D
    rows = np.concatenate([features, np.sqrt(size) * np.eye(D)])
    targets = np.concatenate([np.eye(CLASSES)[labels], np.zeros((D, CLASSES))])
    found = np.linalg.lstsq(rows, targets, rcond=None)[0].T
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def test_a_linear_drift_is_undone(fleet):
    truth = fleet.after[fleet.labels == RARE].mean(axis=0)
    found, now = fleet.run(find_method(f"dpcr:ncm({EXACT})"))
    np.testing.assert_allclose(found, truth, rtol=1e-3, atol=1e-3)
    assert now.cost.messages == 1
    shrunk = fleet.run(find_method("dpcr:ncm(ridge=0.5)"))[0]
    assert np.linalg.norm(shrunk - truth) > 0.05 * np.linalg.norm(truth)


def test_the_classifier_is_the_ridge_solution_on_transported_samples(fleet):
    """The remaining samples of the class are among those of the departure, and count once."""
    rare, staying = fleet.labels == RARE, fleet.owner != 3
    features = np.concatenate([fleet.after[staying & ~rare], fleet.before[rare] @ fleet.map])
    labels = np.concatenate([fleet.labels[staying & ~rare], fleet.labels[rare]])
    outcome, now = fleet.run(find_method(f"dpcr({EXACT}, gamma=0.02)"))
    np.testing.assert_allclose(outcome.weight, ridge_solution(features, labels, 0.02), atol=2e-3)
    np.testing.assert_array_equal(outcome.bias, 0)
    assert now.cost.messages == 2
    assert np.mean(outcome.predict(fleet.after)[rare] == RARE) > 0.9


def test_until_the_departure_it_is_the_ridge_solution_on_all_samples(fleet):
    method = find_method("dpcr(gamma=0.02)")
    now = fleet.now(departed=False)
    expected = ridge_solution(fleet.before, fleet.labels, 0.02)
    np.testing.assert_allclose(method.track(None, now)[1].weight, expected, atol=1e-4)
    state = method.depart(fleet.now(departed=False))
    np.testing.assert_allclose(method.track(state, fleet.now(departed=False))[1].weight, expected, atol=1e-4)
    np.testing.assert_allclose(state.gram, fleet.before[fleet.labels == RARE].T @ fleet.before[fleet.labels == RARE])
    assert (state.round, state.count) == (15, 60)


def test_a_class_that_nobody_has_is_never_predicted():
    totals = np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.5]])
    readout = ridge_classifier(np.eye(2), totals, 0.1)
    assert set(readout.predict(np.random.default_rng(0).standard_normal((200, 2))).tolist()) == {0, 2}


def test_the_projector_keeps_what_the_samples_span():
    samples = np.random.default_rng(0).standard_normal((3, 7))
    samples[:, 5] = 0
    gram = samples.T @ samples
    spanned = row_space(gram, 1e-9)
    np.testing.assert_allclose(samples @ spanned, samples, atol=1e-12)
    np.testing.assert_allclose(spanned @ spanned, spanned, atol=1e-12)
    assert np.trace(spanned) == pytest.approx(3)
    np.testing.assert_array_equal(row_space(gram, 0.0), np.diag([1, 1, 1, 1, 1, 0, 1.0]))
    many = np.random.default_rng(1).standard_normal((50, 7))
    np.testing.assert_allclose(row_space(many.T @ many, 1e-9), np.eye(7), atol=1e-12)


def test_without_samples_nothing_moves():
    np.testing.assert_array_equal(shift_map(np.zeros((3, 3)), np.zeros((3, 3)), 0.1), np.eye(3))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("dpcr(ridge=0)", "ridge: 0, should be a number above 0"),
        ("dpcr(gamma='much')", "gamma: 'much', should be a number above 0"),
        ("dpcr:ncm(tolerance=1)", "tolerance: 1, should be a number from 0 to below 1"),
    ],
)
def test_wrong_arguments_are_refused(spec, said):
    with pytest.raises(MethodError, match=said):
        find_method(spec)
