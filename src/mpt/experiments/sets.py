"""The paper's three sets, and what stands for them: the sets themselves where the user has them, or stand-ins."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal

from mpt.data import Dataset, load
from mpt.data.request import split_options
from mpt.runs.config import ConfigError

SetName = Literal["nuimages", "car1000-coarse", "car1000-fine"]


@dataclass(frozen=True)
class PaperSet:
    """A set as the paper has it.

    Attributes:
        title: its name in the paper's tables.
        rare: its rare class there.
        loader: the word that a spec of the set itself begins with.
        level: the option `level` of that loader, where it reads several of the paper's sets; coarse where left out.
        stand_in: spec and rare class of what stands for it where nothing else is named.
        tuning: the stand-in's tuning classes.
    """

    title: str
    rare: str
    loader: str
    level: str
    stand_in: tuple[str, str]
    tuning: tuple[str, ...] = ()


SETS: dict[SetName, PaperSet] = {
    "nuimages": PaperSet("nuImages", "truck", "nuimages", "", ("road?train=100&test=60", "truck"), ("bus",)),
    "car1000-coarse": PaperSet(
        "Car-1000, coarse", "van", "car1000", "coarse", ("road?train=100&test=60&seed=1", "van")
    ),
    "car1000-fine": PaperSet("Car-1000, fine", "micro sedan", "car1000", "fine", ("digits", "8")),
}


@dataclass(frozen=True)
class ToldSamples:
    """What finished cells say of samples that are not at hand: enough to show the cells, not to compute one.

    Attributes:
        name: of the dataset.
        classes: names by index.
        known_by: the samples' fingerprint.
    """

    name: str
    classes: tuple[str, ...]
    known_by: str

    @property
    def num_classes(self) -> int:
        """How many."""
        return len(self.classes)

    def class_index(self, which: str) -> int:
        """Of a class."""
        if which not in self.classes:
            raise ConfigError(f"data: no class {which!r} in {self.name}, should be one of {', '.join(self.classes)}")
        return self.classes.index(which)

    def fingerprint(self) -> str:
        """As a `Dataset` has it."""
        return self.known_by


@dataclass(frozen=True)
class Source:
    """What is used as one of the paper's sets.

    Attributes:
        set: which of them.
        spec: the dataset, as `mpt run --dataset` takes it.
        rare: the class that departs.
        further: classes that depart instead of it in `beyond`.
        tuning: classes that settings are chosen on and that are reported nowhere: the grid of regimes.
    """

    set: SetName
    spec: str
    rare: str
    further: tuple[str, ...] = ()
    tuning: tuple[str, ...] = ()

    def indices(self, dataset: Dataset | ToldSamples) -> tuple[int, ...]:
        """Of the class that departs and the further ones in the source's samples."""
        names = (self.rare, *self.further, *self.tuning)
        found = tuple(map(dataset.class_index, names))
        for place, index in enumerate(found):
            if index in found[:place]:
                raise ConfigError(f"data: class {names[place]!r} of {self.set} is there twice, should be named once")
        return found[: 1 + len(self.further)]

    @property
    def classes(self) -> str:
        """As `parse_sources` takes them."""
        return ",".join((self.rare, *self.further)) + ("/" + ",".join(self.tuning) if self.tuning else "")

    @property
    def real(self) -> bool:
        """Whether it is the paper's set itself: read by the loader for it, whatever the user calls it."""
        head, options = split_options(self.spec)
        paper = SETS[self.set]
        level = options.get("level", "coarse") if paper.level else ""
        return head.partition(":")[0] == paper.loader and level == paper.level

    @property
    def name(self) -> str:
        """For headings: the paper's name for its own set only, else that of the stand-in."""
        if self.real:
            return SETS[self.set].title
        head = split_options(self.spec)[0]
        return f"stand-in {head.rpartition('/')[2].rpartition(':')[2]}"

    @property
    def short(self) -> str:
        """The same with the class that departs."""
        return f"{self.name} ({self.rare})"

    @property
    def label(self) -> str:
        """The data's name, and whether it is the paper's."""
        return self._labelled(self.rare)

    @property
    def full_label(self) -> str:
        """The same with the further classes."""
        return self._labelled(self.rare, *self.further)

    @property
    def tuning_label(self) -> str:
        """The same with the tuning classes."""
        return self._labelled(*self.tuning)

    def _labelled(self, *classes: str) -> str:
        kind = f"real: {SETS[self.set].title}" if self.real else f"stand-in for {SETS[self.set].title}"
        return f"{self.spec}, {', '.join(classes)} ({kind})"


def parse_sources(given: Iterable[str], *, stand_ins: bool) -> dict[SetName, Source]:
    """Sources from texts like `nuimages=parquet:/data/cifar10:truck,cat/bird`: set, dataset, classes after the colon.

    The first class departs in every exhibit, further ones in `beyond` only; those behind a slash are tuning classes,
    which depart in the grid of regimes only.

    Args:
        given: at most one a set.
        stand_ins: whether sets that are not given get their stand-in; else they have no source.
    """
    sources = dict[SetName, Source]()
    if stand_ins:
        sources = {n: Source(n, *s.stand_in, tuning=s.tuning) for n, s in SETS.items()}
    named = set[str]()
    for text in given:
        name, equals, rest = text.partition("=")
        spec, colon, classes = rest.rpartition(":")
        found = next((n for n in SETS if n == name), None)
        if found is None or not equals or not colon or not spec or not classes:
            names = " or ".join([", ".join(list(SETS)[:-1]), list(SETS)[-1]])
            raise ConfigError(f"data: {text!r}, should be like nuimages=road:truck, with {names} before the =")
        if found in named:
            raise ConfigError(f"data: {found} is there twice, should be named once")
        reported, slash, tuned = classes.partition("/")
        (rare, *further), tuning = reported.split(","), tuned.split(",") if slash else []
        if not all((rare, *further, *tuning)):
            raise ConfigError(f"data: {text!r} has an empty class name, should be like nuimages=road:truck,bus")
        named.add(found)
        sources[found] = Source(found, spec, rare, tuple(further), tuple(tuning))
    return sources


TOLD: dict[str, ToldSamples] = {}
"""By spec, for `mpt reproduce --show` on a machine that has cells and no images."""


@cache
def loaded(spec: str, image_size: int | None, per_class: int) -> Dataset | ToldSamples:
    """The samples that a run of these settings sees, read once a process."""
    return TOLD[spec] if spec in TOLD else load(spec, image_size=image_size, per_class=per_class)
