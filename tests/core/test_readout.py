import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

import mpt

from .worlds import make_world, spd


@given(
    seed=st.integers(0, 2**32 - 1),
    d=st.integers(1, 10),
    num_classes=st.integers(1, 7),
    missing=st.integers(0, 3),
    offset=st.sampled_from([0.0, 1e3]),
    euclidean=st.booleans(),
)
def test_the_linear_layer_decides_as_predict_does(seed, d, num_classes, missing, offset, euclidean):
    rng = np.random.default_rng(seed)
    prototypes = offset + 2 * rng.standard_normal((num_classes, d))
    prototypes[rng.permutation(num_classes)[: min(missing, num_classes - 1)]] = np.nan
    readout = mpt.NearestClassMean(prototypes, None if euclidean else spd(rng, d, 100.0))
    features = offset + 3 * rng.standard_normal((200, d))
    ranked = np.sort(readout.distances(features), axis=1)
    clear = (num_classes == 1) | (ranked[:, min(1, num_classes - 1)] - ranked[:, 0] > 1e-9)
    weight, bias = readout.to_linear()
    assert weight.shape == (num_classes, d)
    assert bias.shape == (num_classes,)
    predicted = readout.predict(features)
    np.testing.assert_array_equal((features @ weight.T + bias).argmax(axis=1)[clear], predicted[clear])
    np.testing.assert_array_equal(readout.distances(features).argmin(axis=1)[clear], predicted[clear])
    assert np.isfinite(prototypes[predicted]).all()


def test_distances_are_mahalanobis_under_the_regularized_covariance():
    rng = np.random.default_rng(0)
    prototypes, covariance, features = rng.standard_normal((4, 6)), spd(rng, 6), rng.standard_normal((9, 6))
    regular = covariance + 0.3 * np.trace(covariance) / 6 * np.eye(6)
    expected = cdist(features, prototypes, "mahalanobis", VI=np.linalg.inv(regular))
    readout = mpt.NearestClassMean(prototypes, covariance, cov_ridge=0.3)
    np.testing.assert_allclose(readout.distances(features), expected, rtol=1e-10)
    np.testing.assert_array_equal(readout.predict(features), expected.argmin(axis=1))
    assert readout.distances(prototypes).diagonal().tolist() == [0] * 4


@pytest.mark.parametrize("covariance", [None, np.zeros((6, 6))])
def test_without_a_covariance_distances_are_euclidean(covariance):
    rng = np.random.default_rng(0)
    prototypes, features = rng.standard_normal((4, 6)), rng.standard_normal((9, 6))
    readout = mpt.NearestClassMean(prototypes, covariance)
    np.testing.assert_allclose(readout.distances(features), cdist(features, prototypes))
    assert "Euclidean" in repr(readout)


def test_a_class_without_a_prototype_is_infinitely_far():
    readout = mpt.NearestClassMean([[np.nan, np.nan], [100.0, 0.0], [0.0, 100.0]])
    assert readout.distances([[0.0, 0.0]]).tolist() == [[np.inf, 100.0, 100.0]]
    assert readout.predict([[0.0, 0.0], [0.0, 1.0]]).tolist() == [1, 2]
    weight, bias = readout.to_linear()
    assert weight[0].tolist() == [0, 0]
    assert bias[0] == -np.inf


def test_it_recognises_a_departed_class_by_its_reconstruction():
    world = make_world(per_class=200)
    deposit = mpt.deposit(world.stats(), 2)
    now = world.without_rare().stats()
    prototypes = now.means
    assert np.isnan(prototypes[2]).all()
    prototypes[2] = mpt.reconstruct(deposit, now).prototype
    readout = mpt.NearestClassMean(prototypes, now.covariance())
    rare = world.features[world.labels == 2]
    assert (readout.predict(rare) == 2).mean() > 0.9
    assert (readout.predict(world.features) == world.labels).mean() > 0.9


def test_features_of_any_real_dtype_and_none_at_all():
    readout = mpt.NearestClassMean(np.eye(3))
    assert readout.predict(np.eye(3, dtype=np.float32)).tolist() == [0, 1, 2]
    assert readout.predict([[5, 0, 0]]).dtype == np.int64
    assert readout.predict(np.zeros((0, 3))).shape == (0,)
    assert readout.distances(np.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("euclidean", [False, True])
def test_other_prototypes_under_the_same_distance(monkeypatch, euclidean):
    rng = np.random.default_rng(1)
    first, second, features = rng.standard_normal((4, 6)), rng.standard_normal((3, 6)), rng.standard_normal((9, 6))
    second[1] = np.nan
    covariance = None if euclidean else spd(rng, 6)
    readout, anew = (mpt.NearestClassMean(p, covariance, cov_ridge=0.3) for p in (first, second))
    readout.predict(features)
    with monkeypatch.context() as patched:
        patched.setattr("mpt.core.readout.regular_factor", None)
        other = readout.with_prototypes(second)
        np.testing.assert_array_equal(other.distances(features), anew.distances(features))
        np.testing.assert_array_equal(other.predict(features), anew.predict(features))
    assert other == anew
    assert copy.deepcopy(other) == anew
    assert not other.prototypes.flags.writeable
    for wrong, message in ((second[:, :5], r"shape is \(3, 5\), should be \(any, 6\)"), (second[1:2], "no class has")):
        with pytest.raises(mpt.StatisticsError, match=message):
            readout.with_prototypes(wrong)


@pytest.mark.parametrize("seed", range(20))
def test_rows_that_sum_to_one_have_a_singular_covariance_whatever_rounding_says(seed):
    covariance = np.cov(np.random.default_rng(seed).dirichlet(np.ones(3), 60).T)
    with pytest.raises(mpt.StatisticsError, match="covariance: not positive definite"):
        mpt.NearestClassMean(np.eye(3), covariance, cov_ridge=0)
    mpt.NearestClassMean(np.eye(3), np.diag([1.0, 1e-18, 1e18]), cov_ridge=0)


def spread(seed, euclidean):
    """Six prototypes, the first near the middle, the second far out, the third missing; and the distance's inverse."""
    rng = np.random.default_rng(seed)
    prototypes, covariance = 50 + 3 * rng.standard_normal((6, 5)), spd(rng, 5)
    prototypes[0] = prototypes[3:].mean(axis=0) + 0.2 * rng.standard_normal(5)
    prototypes[1] += 40
    prototypes[2] = np.nan
    regular = covariance + 0.1 * np.trace(covariance) / 5 * np.eye(5)
    inverse = np.eye(5) if euclidean else np.linalg.inv(regular)
    return mpt.NearestClassMean(prototypes, None if euclidean else covariance), inverse


@pytest.mark.parametrize("euclidean", [False, True])
@pytest.mark.parametrize("power", [0.0, 0.4, 1.0])
def test_departed_classes_are_read_out_further_out(euclidean, power):
    readout, inverse = spread(3, euclidean)
    before, moved = readout.prototypes, readout.outwards([0, 1, 2], power).prototypes
    middle = before[3:].mean(axis=0)
    lengths = cdist(before, middle[None], "mahalanobis", VI=inverse)[:, 0]
    typical = np.sqrt(np.mean(lengths[3:] ** 2))
    assert lengths[0] < typical < lengths[1]
    expected = middle + (typical / lengths[0]) ** power * (before[0] - middle)
    np.testing.assert_allclose(moved[0], expected, rtol=1e-12)
    np.testing.assert_array_equal(moved[1:], before[1:])
    if power == 1:
        assert cdist(moved[:1], middle[None], "mahalanobis", VI=inverse).item() == pytest.approx(typical)
    np.testing.assert_array_equal(readout.outwards(0, power).prototypes[1:], before[1:])


def test_nothing_moves_outwards_without_two_trained_classes():
    readout, _ = spread(3, False)
    for departed in ((), 2, (0, 1, 3, 4), range(6)):
        assert readout.outwards(departed) is readout
    middle = mpt.NearestClassMean([[0.0, 0.0], [1.0, 1.0], [-1.0, -1.0]])
    np.testing.assert_array_equal(middle.outwards(0).prototypes, middle.prototypes)
    for near, middle in ((1e-300, 0.0), (3e-12, 1e4)):
        next_to_it = mpt.NearestClassMean(middle + np.array([[near, 0.0], [1.0, 1.0], [-1.0, -1.0]]))
        np.testing.assert_array_equal(next_to_it.outwards(0, 1.0).prototypes, next_to_it.prototypes)
    for wrong, power, message in ((6, 0.4, "departed: class 6, but there are 6"), (0, 1.5, "power: 1.5, should be from 0 to 1")):  # fmt: skip  # noqa: E501
        with pytest.raises(mpt.StatisticsError, match=message):
            readout.outwards(wrong, power)
    with pytest.raises(mpt.StatisticsError, match="power: -1"):
        readout.outwards(0, -1.0)


def test_where_samples_are_known_by_heart_outwards_is_the_better_readout():
    """Trained classes' prototypes are further out than their test samples, the departed class's is where they are."""
    rng = np.random.default_rng(0)
    directions = 8 * np.eye(8)
    labels = np.repeat(np.arange(8), 500)
    tested = 0.5 * directions[labels] + rng.standard_normal((len(labels), 8))
    prototypes = directions.copy()
    prototypes[0] *= 0.5
    readout = mpt.NearestClassMean(prototypes)

    def f1(predicted):
        return 2 * np.sum((predicted == 0) & (labels == 0)) / (np.sum(predicted == 0) + np.sum(labels == 0))

    plain, outwards = (f1(one.predict(tested)) for one in (readout, readout.outwards(0)))
    assert outwards > plain + 0.1
