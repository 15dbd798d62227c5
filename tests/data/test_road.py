import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from mpt.data import load
from mpt.data.resize import resize
from mpt.data.road import CLASSES, draw

HASH = """
import hashlib
from mpt.data.road import CLASSES, draw
print(hashlib.sha256(b"".join(draw(c, range(24)).tobytes() for c in range(len(CLASSES)))).hexdigest()[:16])
"""
EXPECTED = "ef4f94deea6e93d8"


def run_hash(**environment):
    done = subprocess.run(
        [sys.executable, "-c", HASH], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    return done.stdout.strip()


def test_the_images_are_these_bit_by_bit():
    """Exact, not to a tolerance: the drawing uses only operations that IEEE 754 fixes to the last bit."""
    images = b"".join(draw(c, range(24)).tobytes() for c in range(len(CLASSES)))
    assert hashlib.sha256(images).hexdigest()[:16] == EXPECTED


def test_a_processor_without_vector_units_draws_the_same():
    umath = pytest.importorskip("numpy._core._multiarray_umath")
    optional = [name for name in umath.__cpu_dispatch__ if umath.__cpu_features__[name]]
    if not optional:
        pytest.skip("this processor has no optional features that NumPy could leave out")
    assert run_hash(NPY_DISABLE_CPU_FEATURES=" ".join(optional)) == EXPECTED


def test_the_default_set():
    dataset = load("road?train=3&test=2")
    assert dataset.name == "road"
    assert dataset.classes == CLASSES
    assert CLASSES == ("car", "van", "truck", "bus", "motorcycle", "bicycle", "pedestrian", "traffic cone")
    assert dataset.image_shape == (32, 32, 3)
    assert dataset.train.counts(8).tolist() == [3] * 8
    assert dataset.test.counts(8).tolist() == [2] * 8


def test_more_images_extend_the_set():
    few, many = load("road?train=3&test=2"), load("road?train=7&test=5")
    for name in ("train", "test"):
        a, b = few.split(name), many.split(name)
        for c in range(8):
            first = a.images[a.labels == c]
            assert np.array_equal(first, b.images[b.labels == c][: len(first)])


@pytest.mark.parametrize("label", range(8))
def test_an_image_depends_on_its_own_number_alone(label):
    """Alone, in another order and across a batch's border (128 images of 32 pixels)."""
    together = draw(label, range(140))
    for index in (0, 5, 127, 128, 139):
        assert np.array_equal(draw(label, [index])[0], together[index])
    assert np.array_equal(draw(label, [139, 3, 64]), together[[139, 3, 64]])


def test_seed_split_class_and_number_each_change_an_image():
    base = draw(2, [0])
    others = [draw(2, [0], seed=1), draw(2, [0], split=1), draw(3, [0]), draw(2, [1])]
    assert len({image.tobytes() for image in [base, *others]}) == 5
    assert load("road?train=2&test=1&seed=3").fingerprint() == load("road?train=2&test=1", seed=3).fingerprint()
    assert load("road?train=2&test=1&seed=3", seed=9).fingerprint() == load("road?train=2&test=1", seed=3).fingerprint()
    assert load("road?train=2&test=1").fingerprint() != load("road?train=2&test=1", seed=3).fingerprint()


@pytest.mark.parametrize("size", [28, 64])
def test_other_sizes_show_the_same_scenes(size):
    small, other = draw(7, range(20)), draw(7, range(20), size=size)
    assert other.shape == (20, size, size, 3)
    shrunk, a = resize(other, 16).astype(float), resize(small, 16).astype(float)
    matched = np.abs(shrunk - a).mean(axis=(1, 2, 3))
    mismatched = np.abs(shrunk - np.roll(a, 1, axis=0)).mean(axis=(1, 2, 3))
    assert np.all(matched < 20)
    assert matched.mean() < 0.25 * mismatched.mean()


def test_no_image_is_blank_and_no_two_are_alike():
    images = np.concatenate([draw(c, range(60)) for c in range(8)])
    assert images.std(axis=(1, 2, 3)).min() > 3
    assert len({image.tobytes() for image in images}) == len(images)


@pytest.mark.slow
def test_the_task_is_hard_for_a_linear_model_and_truck_is_taken_for_van_and_bus():
    pytest.importorskip("sklearn")
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import confusion_matrix
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    dataset = load("road?train=500&test=250")
    model = make_pipeline(PCA(64, random_state=0), StandardScaler(), LogisticRegression(max_iter=500))
    model.fit(dataset.train.images.reshape(4000, -1) / 255, dataset.train.labels)
    guesses = model.predict(dataset.test.images.reshape(2000, -1) / 255)
    assert 0.45 < np.mean(guesses == dataset.test.labels) < 0.75
    wrong = confusion_matrix(dataset.test.labels, guesses)[dataset.class_index("truck")]
    wrong[dataset.class_index("truck")] = 0
    van_and_bus = wrong[dataset.class_index("van")] + wrong[dataset.class_index("bus")]
    assert van_and_bus > 0.5 * wrong.sum()
    assert set(np.argsort(wrong)[-2:]) == {dataset.class_index("van"), dataset.class_index("bus")}
