"""What every loader returns: samples and labels of a training and a test split, checked once and fixed."""

import hashlib
import operator
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mpt.data.errors import DataError
from mpt.data.sample_kinds import SampleKind, checked_samples, in_words, kind_of

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
Texts = NDArray[np.str_]
SplitName = Literal["train", "test"]

SPLITS: tuple[SplitName, SplitName] = ("train", "test")
_CHOICE = 0x6C696D69  # the purpose word of `limited`'s generators


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """Samples. The arrays are read-only; an array that comes in as it is kept is not copied.

    Attributes:
        images: (N, H, W, C) uint8, N at least 1, C = 1 (grey) or 3 (RGB). Samples that are no images stand here too:
            vectors (N, d) or series (N, channels, length), float32.
        labels: (N,) int64, indices into the dataset's classes.
        vehicles: (N,) text, the vehicle that recorded each sample; None where nothing is known of it.
        versions: of `features:` datasets, (N, d) float64 for each version of a model: what it makes of the samples.
    """

    images: NDArray[Any]
    labels: Labels
    vehicles: Texts | None = None
    versions: tuple[NDArray[np.float64], ...] = ()

    def __post_init__(self) -> None:
        images, labels = checked_samples(_as_array(self.images, "images")), _as_array(self.labels, "labels")
        if labels.dtype.kind not in "iu":
            raise DataError(f"labels: dtype is {labels.dtype}, should be integers")
        if labels.shape != (len(images),):
            raise DataError(f"labels: shape is {labels.shape}, should be ({len(images)},), one for each image")
        if labels.min() < 0:
            raise DataError(f"labels: sample {int(np.argmin(labels))} has {labels.min()}, should not be negative")
        object.__setattr__(self, "images", _fixed(images))
        object.__setattr__(self, "labels", _fixed(np.array(labels, dtype=np.int64)))
        if self.vehicles is not None:
            vehicles = _as_array(self.vehicles, "vehicles")
            if vehicles.dtype.kind != "U" or vehicles.shape != labels.shape or not np.all(vehicles != ""):
                raise DataError(
                    f"vehicles: {vehicles.dtype} of shape {vehicles.shape}, should be a text that is not empty "
                    f"for each of the {len(images)} images"
                )
            object.__setattr__(self, "vehicles", _fixed(np.array(vehicles)))
        object.__setattr__(self, "versions", tuple(_fixed(np.asarray(v, dtype=np.float64)) for v in self.versions))

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"<Split: {len(self)} {in_words(self.kind, self.sample_shape)}>"

    @property
    def kind(self) -> SampleKind:
        """What the samples are: images, series or vectors."""
        return kind_of(self.images)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Of one sample: (H, W, C) of an image, (channels, length) of a series, (d,) of a vector."""
        return self.images.shape[1:]

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(H, W, C); `DataError` where the samples are no images."""
        if self.kind != "images":
            raise DataError(f"images: these are {in_words(self.kind, self.sample_shape)}, should be images")
        _, height, width, channels = self.images.shape
        return height, width, channels

    @property
    def channels_first(self) -> NDArray[Any]:
        """As networks take them: images (N, C, H, W), series (N, channels, length), vectors (N, d)."""
        return self.images.transpose(0, 3, 1, 2) if self.kind == "images" else self.images

    def counts(self, num_classes: int) -> Labels:
        """(num_classes,): the samples of each class."""
        return np.bincount(self.labels, minlength=num_classes).astype(np.int64)

    def take(self, indices: NDArray[np.integer[Any]]) -> "Split":
        """The samples at `indices` (M,), in that order."""
        vehicles = None if self.vehicles is None else self.vehicles[indices]
        versions = tuple(version[indices] for version in self.versions)
        return Split(self.images[indices], self.labels[indices], vehicles, versions)


@dataclass(frozen=True, eq=False)
class LocalData:
    """What a vehicle has of its own: training samples, of one class or more. Of a server: its test samples.

    Attributes:
        name: what it is called.
        classes: the classes' names.
        train: the samples; of `load_test`, those to test on.
        notes: what the loader left out, a clause each.
    """

    name: str
    classes: tuple[str, ...]
    train: Split
    notes: tuple[str, ...] = ()

    def limited(self, per_class: int) -> "LocalData":
        """The same with up to `per_class` samples a class, as `Dataset.limited` chooses them."""
        return replace(self, train=_limited(self.train, len(self.classes), per_class, 0))


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A training and a test split over the same classes, all images, series or vectors of one size.

    Attributes:
        name: what it is called.
        classes: the classes' names.
        train: what vehicles hold.
        test: what methods are read out on.
        notes: what the loader left out, a clause each.

    Example:
        >>> grey = Split(np.zeros((4, 8, 8, 1), dtype=np.uint8), np.array([0, 1, 0, 1]))
        >>> dataset = Dataset("grey", ("car", "truck"), train=grey, test=grey)
        >>> dataset.class_index("truck")
        1
        >>> dataset.limited(1)
        <Dataset grey: 2 train and 4 test images of 8x8x1, 2 classes>
    """

    name: str
    classes: tuple[str, ...]
    train: Split
    test: Split
    notes: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise DataError(f"name: {self.name!r}, should be a text that is not empty")
        object.__setattr__(self, "classes", _as_classes(self.classes))
        for which in SPLITS:
            split = getattr(self, which)
            if not isinstance(split, Split):
                raise DataError(f"{which}: {type(split).__name__}, should be a Split")
            highest = int(split.labels.max())
            if highest >= self.num_classes:
                raise DataError(
                    f"{which} labels: sample {int(np.argmax(split.labels))} has {highest}, "
                    f"should be 0 to {self.num_classes - 1} for {self.num_classes} classes"
                )
        if self.train.sample_shape != self.test.sample_shape:
            of = "(H, W, C)" if self.train.kind == "images" else "the shape of a sample"
            raise DataError(
                f"{self.train.kind}: {of} is {self.train.sample_shape} in train and {self.test.sample_shape} in test, "
                "should be the same"
            )

    @property
    def num_classes(self) -> int:
        """The number of classes, those without samples included."""
        return len(self.classes)

    @property
    def kind(self) -> SampleKind:
        """What the samples are: images, series or vectors."""
        return self.train.kind

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Of every sample: (H, W, C) of an image, (channels, length) of a series, (d,) of a vector."""
        return self.train.sample_shape

    @property
    def versions(self) -> int:
        """How many versions of a model there are features of; 0 where the samples themselves are there."""
        return len(self.train.versions)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(H, W, C) of every image; `DataError` where the samples are no images."""
        return self.train.image_shape

    def split(self, which: SplitName) -> Split:
        """The split of that name."""
        if which not in SPLITS:
            raise DataError(f"split: {which!r}, should be one of {', '.join(SPLITS)}")
        return self.train if which == "train" else self.test

    def class_index(self, which: str | int) -> int:
        """The index of a class given by name or by index; a numeral that is no class's name is an index."""
        if isinstance(which, str):
            if which in self.classes:
                return self.classes.index(which)
            if not (which.isascii() and which.isdigit()):
                raise DataError(f"class: no {which!r} in {self.name}, should be one of {', '.join(self.classes)}")
            which = int(which)
        try:
            index = operator.index(which)
        except TypeError:
            raise DataError(f"class: {which!r}, should be a name or an index") from None
        if isinstance(which, bool) or not 0 <= index < self.num_classes:
            names = ", ".join(self.classes)
            raise DataError(
                f"class: no {which!r} in {self.name}, should be 0 to {self.num_classes - 1} or one of {names}"
            )
        return index

    def count(self, which: str | int, split: SplitName = "train") -> int:
        """How many samples a class has."""
        return int(np.count_nonzero(self.split(split).labels == self.class_index(which)))

    def require(self, which: str | int, minimum: int, split: SplitName = "train") -> int:
        """How many samples a class has; fewer than `minimum` raise `DataError`."""
        have = self.count(which, split)
        if have < minimum:
            name = self.classes[self.class_index(which)]
            raise DataError(f"class {name!r}: {have} {split} samples in {self.name}, should be at least {minimum}")
        return have

    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits for classes, images, labels and vehicles; name and notes do not count."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        for name in self.classes:
            digest.update(f"{len(name.encode())}:".encode() + name.encode())
        for split in (self.train, self.test):
            digest.update(repr(split.images.shape).encode())
            digest.update(split.images.data)
            digest.update(split.labels.astype("<i8").data)
            for version in split.versions:
                digest.update(np.ascontiguousarray(version, dtype="<f8").data)
            for vehicle in () if split.vehicles is None else split.vehicles.tolist():
                digest.update(f"{len(vehicle.encode())}:".encode() + vehicle.encode())
        return digest.hexdigest()[:16]

    def limited(self, per_class: int, *, seed: int = 0) -> "Dataset":
        """The same dataset with up to `per_class` training samples a class, chosen at random and left in their order.

        The choice depends on the seed and the class alone, and a smaller one is part of a larger one. The test split
        stays whole.
        """
        if per_class < 1:
            raise DataError(f"per_class: {per_class}, should be at least 1")
        if seed < 0:
            raise DataError(f"seed: {seed}, should not be negative")
        return replace(self, train=_limited(self.train, self.num_classes, per_class, seed))

    def rgb(self) -> "Dataset":
        """The same dataset with three channels; grey is repeated."""
        if self.image_shape[2] == 3:
            return self
        train, test = (replace(s, images=np.repeat(s.images, 3, axis=3)) for s in (self.train, self.test))
        return replace(self, train=train, test=test)

    def __repr__(self) -> str:
        return (
            f"<Dataset {self.name}: {len(self.train)} train and {len(self.test)} test "
            f"{in_words(self.kind, self.sample_shape)}, {self.num_classes} classes>"
        )


def _limited(split: Split, num_classes: int, per_class: int, seed: int) -> Split:
    chosen = []
    for c in range(num_classes):
        members = np.flatnonzero(split.labels == c)
        order = np.random.default_rng([_CHOICE, seed, c]).permutation(len(members))
        chosen.append(members[order[:per_class]])
    return split.take(np.sort(np.concatenate(chosen)))


def _as_array(value: object, name: str) -> NDArray[Any]:
    try:
        return np.asarray(value)
    except ValueError:
        raise DataError(f"{name}: cannot be read as one array, all entries should have the same shape") from None


def _fixed(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.setflags(write=False)
    return view


def _as_classes(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise DataError(f"classes: {value!r}, should be several names")
    classes = tuple(value)
    for name in classes:
        if not isinstance(name, str) or not name:
            raise DataError(f"classes: {name!r} among them, should be texts that are not empty")
    if len(set(classes)) < len(classes):
        twice = next(name for name in classes if classes.count(name) > 1)
        raise DataError(f"classes: {twice!r} is there twice, should differ from each other")
    if len(classes) < 2:
        raise DataError(f"classes: {len(classes)}, should be at least 2")
    return classes
