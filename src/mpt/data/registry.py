"""Every loader by the word that its specs begin with, and `load`."""

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from mpt.base.extensions import Builtin, Extensions
from mpt.base.text import did_you_mean
from mpt.data.car1000 import load_car1000
from mpt.data.csvlist import load_csv
from mpt.data.dataset import Dataset, LocalData
from mpt.data.digits import load_digits
from mpt.data.errors import DataError
from mpt.data.features import load_features
from mpt.data.folder import load_folder, load_local_folder
from mpt.data.function import from_function
from mpt.data.hub import load_hub
from mpt.data.meant import path_meant
from mpt.data.motion import load_motion
from mpt.data.npz import load_npz
from mpt.data.nuimages import load_nuimages
from mpt.data.parquet import load_parquet
from mpt.data.request import DatasetSpec, split_options
from mpt.data.road import load_road

LARGEST_SIDE = 1024
_LOG = logging.getLogger("mpt")


class Loader(NamedTuple):
    """A way to get a dataset; `target` says what follows the colon, empty where nothing does.

    `local` is for vehicles, where a part of the dataset is enough for them.
    """

    load: Callable[[DatasetSpec], Dataset]
    description: str
    target: str = ""
    options: tuple[str, ...] = ()
    local: Callable[[DatasetSpec, str], LocalData] | None = None


LOADERS: dict[str, Loader] = {
    "road": Loader(
        load_road, "road objects drawn on the fly, eight classes, no download", options=("train", "test", "seed")
    ),
    "digits": Loader(load_digits, "handwritten digits that scikit-learn brings, real, ten classes"),
    "motion": Loader(
        load_motion, "windows of a phone's sensors made on the fly: series of 9x128, six activities",
        options=("each", "seed"),
    ),
    "parquet": Loader(
        load_parquet, "PREFIX-train.parquet and PREFIX-test.parquet as Hugging Face writes them", "PREFIX",
        ("image", "label"),
    ),
    "folder": Loader(
        load_folder, "a folder of images per class, in train/ and test/ or to be split", "PATH",
        local=load_local_folder,
    ),
    "nuimages": Loader(
        load_nuimages, "objects cut from the images of a nuImages folder, eight classes or your own", "ROOT",
        ("train", "test", "min_side", "groups", "test_per_class"),
    ),
    "car1000": Loader(
        load_car1000, "cars in a folder with labels.csv (path,type,size,split), by type or sedans by size", "ROOT",
        ("level", "test_per_class"),
    ),
    "npz": Loader(
        load_npz, "a NumPy file of images, series or vectors: x_train and so on, or what save_npz wrote", "PATH",
        ("kind", "channels"),
    ),
    "features": Loader(
        load_features, "what each version of a model makes of the samples: labels, features_1, features_2, ...", "PATH"
    ),
    "csv": Loader(
        load_csv, "a table with an image's path and label in every row, and its split if it has one", "PATH",
        ("image", "label", "split"),
    ),
    "hf": Loader(
        load_hub, "a dataset of the Hugging Face hub, where the package datasets is installed", "NAME",
        ("config", "image", "label", "test", "train"),
    ),
}  # fmt: skip
DATASETS: Extensions[Any] = Extensions(
    "dataset",
    {word: Builtin(loader.load, loader.description) for word, loader in LOADERS.items()},
    DataError,
    own="path.py:function",
    bound=True,
    words=tuple(LOADERS),
)
"""The extension point: a loader above is built in, a user's own is a function that returns a `Dataset`."""


PUBLIC = {"cifar", "cifar-10", "cifar-100", "cifar10", "cifar100", "emnist", "fashion-mnist", "fmnist", "imagenet"}
PUBLIC |= {"femnist", "gtsrb", "mnist", "svhn", "tiny-imagenet"}
"""Names of public sets that users try and that do not come with the package."""


def usages() -> dict[str, str]:
    """Every form of spec, as in `parquet:PREFIX?image=...&label=...`, with one line about it."""
    lines = {}
    for name, loader in LOADERS.items():
        options = "&".join(f"{option}=..." for option in loader.options)
        target = f":{loader.target}" if loader.target else ""
        lines[f"{name}{target}" + (f"?{options}" if options else "")] = loader.description
    return lines | {DATASETS.own: "your own function, which returns a Dataset"}


def load(
    spec: str,
    *,
    image_size: int | None = None,
    per_class: int | None = None,
    seed: int = 0,
    say: Callable[[str], None] = _LOG.warning,
) -> Dataset:
    """The dataset that `spec` names; `docs/reference/datasets.md` has every form.

    Args:
        spec: for instance `road`, `road?train=500`, `digits`, `parquet:PREFIX`, `folder:PATH`, `npz:PATH`, `hf:NAME`,
            `nuimages:ROOT`, `car1000:ROOT`, `path.py:function(size=3)`.
        image_size: the side of the square images wanted; None leaves it to the loader.
        per_class: training samples of a class at most, as `Dataset.limited` has them; `nuimages` and `car1000` read no
            more than that. None for all.
        seed: of what is drawn (`road`); sets that exist are the same under every seed.
        say: takes a sentence on what was left out.

    Raises:
        DataError: with one sentence, whatever is wrong.
    """
    loader, request = _resolved(spec, image_size, seed, per_class, say)
    dataset = loader.load(request)
    _say_notes(request, dataset)
    return dataset if per_class is None else dataset.limited(per_class)


def load_local(
    spec: str,
    *,
    image_size: int | None = None,
    per_class: int | None = None,
    say: Callable[[str], None] = _LOG.warning,
) -> LocalData:
    """A vehicle's own samples: of `folder:PATH` train/ alone, of others the training samples. As in `load`."""
    held = _held(spec, image_size, per_class, say, "train")
    return held if per_class is None else held.limited(per_class)


def load_test(spec: str, *, image_size: int | None = None, say: Callable[[str], None] = _LOG.warning) -> LocalData:
    """Test samples alone, as a server has them: of `folder:PATH` test/ or val/ alone, or PATH's own class folders."""
    return _held(spec, image_size, None, say, "test")


def _held(
    spec: str, image_size: int | None, per_class: int | None, say: Callable[[str], None], which: str
) -> LocalData:
    loader, request = _resolved(spec, image_size, 0, per_class, say)
    if loader.local is None:
        dataset = loader.load(request)
        held = LocalData(dataset.name, dataset.classes, getattr(dataset, which), dataset.notes)
    else:
        held = loader.local(request, which)
    _say_notes(request, held)
    return held


def _say_notes(request: DatasetSpec, loaded: Dataset | LocalData) -> None:
    for note in loaded.notes:
        request.say(f"{request.spec}: {note}")


def _meant(spec: str, word: str, target: str) -> str:
    """What may have been meant by a dataset that is none."""
    if near := did_you_mean(word, LOADERS, cutoff=0.8):
        return near
    if target.isidentifier() and all(part.isidentifier() for part in word.split(".")):
        return f"no module {word!r} can be imported from {os.getcwd()}; a file is written as {DATASETS.own}"
    return did_you_mean(word, LOADERS, f"should be one of {', '.join(usages())}")


def _resolved(
    spec: str, image_size: int | None, seed: int, per_class: int | None, say: Callable[[str], None]
) -> tuple[Loader, DatasetSpec]:
    if not isinstance(spec, str):
        raise DataError(f"dataset: {type(spec).__name__}, should be a text such as 'road'")
    if image_size is not None and not 8 <= image_size <= LARGEST_SIDE:
        raise DataError(f"image_size: {image_size}, should be 8 to {LARGEST_SIDE}")
    if seed < 0:
        raise DataError(f"seed: {seed}, should not be negative")
    if per_class is not None and per_class < 1:
        raise DataError(f"per_class: {per_class}, should be at least 1")
    word, colon, target = spec.partition("?")[0].partition(":")
    if word not in LOADERS:
        if path := path_meant(spec):
            raise DataError(f"dataset: {spec!r} is none that is known, did you mean {path}?")
        if word.lower() in PUBLIC:
            told = "parquet:PREFIX, folder:PATH or hf:NAME reads your own copy"
            raise DataError(f"dataset: {spec!r} does not come with MPT; {told}")
        if not DATASETS.is_own(DATASETS.parse(spec)):
            raise DataError(f"dataset: {spec!r} is none that is known, {_meant(spec, word, target)}")
        if "?" in spec:
            head, _, tail = spec.partition("?")
            told = ", ".join(tail.split("&"))
            raise DataError(f"{spec}: the arguments of a function stand in brackets, should be like {head}({told})")
        return Loader(partial(from_function, DATASETS), DATASETS.own), DatasetSpec(
            spec, spec, {}, image_size, seed, per_class, say
        )
    loader, (_, options) = LOADERS[word], split_options(spec)
    if bool(target) != bool(loader.target) or (colon and not target):
        wanted = f"{word}:{loader.target}" if loader.target else word
        raise DataError(f"dataset: {spec!r}, should be {wanted}")
    for option in options:
        if option not in loader.options:
            allowed = f"one of {', '.join(loader.options)}" if loader.options else "left out, there are none"
            raise DataError(f"{spec}: no option {option!r} for {word}, should be {allowed}")
    return loader, DatasetSpec(spec, target, options, image_size, seed, per_class, say)
