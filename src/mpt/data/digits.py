"""`digits`: the 1,797 handwritten digits of 8x8 pixels that scikit-learn brings (UCI, Optical Recognition, 1998)."""

import numpy as np

from mpt.data.dataset import Dataset, Split
from mpt.data.request import DatasetSpec
from mpt.data.resize import resize

DEFAULT_SIZE = 32
TEST_EVERY = 5


def load_digits(request: DatasetSpec) -> Dataset:
    """Grey, one channel, enlarged from 8 to `image_size` (default 32) pixels; every fifth sample of a class is test."""
    try:
        from sklearn.datasets import load_digits as bundled
    except ImportError:
        raise request.error("needs scikit-learn, which is not installed; pip install scikit-learn") from None
    bunch = bundled()
    grey = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, :, :, None]
    labels = bunch.target.astype(np.int64)
    images = resize(grey, request.image_size or DEFAULT_SIZE)
    rank = np.empty(len(labels), dtype=np.int64)
    for c in range(10):
        members = np.flatnonzero(labels == c)
        rank[members] = np.arange(len(members))
    test = rank % TEST_EVERY == TEST_EVERY - 1
    classes = tuple(str(name) for name in bunch.target_names)
    return Dataset("digits", classes, Split(images[~test], labels[~test]), Split(images[test], labels[test]))
