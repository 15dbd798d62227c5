"""Resizing of whole stacks of images with NumPy alone."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mpt.data.dataset import Dataset, Images
from mpt.data.errors import DataError
from mpt.data.sample_kinds import in_words

_BLOCK = 256


def resized(dataset: Dataset, image_size: int | None) -> Dataset:
    """`dataset` with square images of that side; itself where they have it or None is asked for."""
    if image_size is not None and dataset.kind != "images":
        held = in_words(dataset.kind, dataset.sample_shape)
        raise DataError(f"image_size: {image_size}, should be left out: {dataset.name} has {held}")
    if image_size is None or dataset.image_shape[:2] == (image_size, image_size):
        return dataset
    train, test = (replace(s, images=resize(s.images, image_size)) for s in (dataset.train, dataset.test))
    return replace(dataset, train=train, test=test)


def resize(images: Images, size: int) -> Images:
    """(N, H, W, C) to (N, size, size, C), bilinear, with antialiasing where it shrinks; like Pillow's BILINEAR."""
    n, height, width, channels = images.shape
    rows, columns = bilinear_weights(height, size), bilinear_weights(width, size)
    out = np.empty((n, size, size, channels), dtype=np.uint8)
    for start in range(0, n, _BLOCK):
        block = images[start : start + _BLOCK].astype(np.float32)
        wide = np.einsum("xw,nhwc->nhxc", columns, block, optimize=True)
        whole = np.einsum("yh,nhxc->nyxc", rows, wide, optimize=True)
        out[start : start + _BLOCK] = np.clip(whole + 0.5, 0, 255).astype(np.uint8)
    return out


def bilinear_weights(n: int, size: int) -> NDArray[np.float32]:
    """(size, n): what each of `n` pixels contributes to each of `size`; a triangle as wide as the coarser grid."""
    scale = n / size
    reach = max(scale, 1.0)
    centres = (np.arange(size) + 0.5) * scale
    weights = np.maximum(0.0, 1.0 - np.abs(np.arange(n) + 0.5 - centres[:, None]) / reach)
    normalised: NDArray[np.float32] = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return normalised
