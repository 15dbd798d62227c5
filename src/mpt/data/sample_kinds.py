"""What a sample may be: an image, a vector, or a series of several channels; each checked and put into words."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mpt.data.errors import DataError
from mpt.data.plain import one_each

SampleKind = Literal["images", "series", "vectors"]

_DIMENSIONS: dict[int, SampleKind] = {2: "vectors", 3: "series", 4: "images"}


def kind_of(samples: NDArray[Any]) -> SampleKind:
    """By the number of dimensions: vectors (N, d), series (N, channels, length), images (N, H, W, C)."""
    return _DIMENSIONS[samples.ndim]


def checked_samples(samples: NDArray[Any]) -> NDArray[Any]:
    """Images (N, H, W, C) in uint8 as they are; vectors (N, d) and series (N, channels, length) in float32.

    Real numbers in two or three dimensions are vectors or series; everything else has to be images.
    """
    real = samples.dtype.kind == "f" and samples.ndim in (2, 3)
    if not real and samples.dtype != np.uint8:
        raise DataError(
            f"images: dtype is {samples.dtype}, should be uint8 (0 to 255), or real numbers of shape (N, d) for "
            "vectors and (N, channels, length) for series"
        )
    if not real and (samples.ndim != 4 or samples.shape[3] not in (1, 3)):
        raise DataError(f"images: shape is {samples.shape}, should be (N, H, W, C) with C = 1 or 3")
    what = kind_of(samples)
    if 0 in samples.shape:
        of = "image of at least one pixel" if what == "images" else f"{_ONE[what]} of at least one number"
        raise DataError(f"{what}: shape is {samples.shape}, should have at least one {of}")
    if not real:
        return np.ascontiguousarray(samples)
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(samples, dtype=np.float32)
    finite = np.isfinite(single).reshape(len(single), -1).all(axis=1)
    if not finite.all():
        first = int(np.argmin(finite))
        raise DataError(f"{what}: sample {first} has a number that is NaN or infinite in float32, should be finite")
    return single


_ONE: dict[SampleKind, str] = {"images": "image", "series": "series", "vectors": "vector"}


def in_words(kind: SampleKind, shape: Sequence[int]) -> str:
    """Samples of a shape, as in "series of 9x128"."""
    return f"{kind} of {'x'.join(map(str, shape))}"


def as_names(name: str, ids: object) -> NDArray[np.str_]:
    """Names of devices or subjects: texts as they are, whole numbers with leading zeros, so that they sort as such.

    Raises:
        DataError: one is missing, empty, NaN or infinite; the message begins with `name`.
    """
    found = one_each(name, ids, "devices")
    if found.dtype.kind in "iu" and found.size:
        width = len(str(int(found.max())))
        return np.array([f"{int(one):0{width}d}" for one in found])
    return found.astype(np.str_)
