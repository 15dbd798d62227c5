import numpy as np
import pytest

from mpt.data import load

sklearn_datasets = pytest.importorskip("sklearn.datasets", reason="digits needs scikit-learn")


def test_it_is_all_of_scikit_learns_digits_stratified():
    dataset, bunch = load("digits"), sklearn_datasets.load_digits()
    assert dataset.classes == tuple("0123456789")
    assert dataset.image_shape == (32, 32, 1)
    totals = np.bincount(bunch.target)
    assert np.array_equal(dataset.train.counts(10) + dataset.test.counts(10), totals)
    assert np.array_equal(dataset.test.counts(10), totals // 5)


def test_the_pixels_are_the_digits_enlarged():
    dataset, bunch = load("digits", image_size=8), sklearn_datasets.load_digits()
    fives = np.rint(bunch.images[bunch.target == 5] * 255 / 16).astype(np.uint8)[..., None]
    test = np.arange(len(fives)) % 5 == 4
    assert np.array_equal(dataset.test.images[dataset.test.labels == 5], fives[test])
    assert np.array_equal(dataset.train.images[dataset.train.labels == 5], fives[~test])


def test_the_split_is_the_same_under_every_seed_and_size():
    assert load("digits").fingerprint() == load("digits", seed=5).fingerprint()
    assert np.array_equal(load("digits").train.labels, load("digits", image_size=28).train.labels)
    assert load("digits", image_size=28).image_shape == (28, 28, 1)
