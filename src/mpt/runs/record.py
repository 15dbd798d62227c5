"""`mpt run --record`: what methods look at in the evaluated rounds, kept for `mpt replay`.

A file a seed and evaluated round, `record/0000-000015.npz`, has for each model the features of the vehicles' samples
and of the test samples; `record/0000-samples.npz` has their labels. Features are float32, as the engine has computed
them. This is more than a vehicle ever sends: a record is for simulations.

The record of a thinned copy (`mpt thin`) is version 2: it says which rounds are there, its features are in a few bits a
number (`Coding`), and its files are compressed.
"""

import hashlib
import io
import json
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from mpt.base.files import remove_files, write_atomically
from mpt.core.validation import Floats, Ints
from mpt.federation.features import Embedding
from mpt.federation.plan import Plan
from mpt.federation.presence import PlannedPresence
from mpt.federation.stored import Stored
from mpt.federation.view import ServerView
from mpt.learning import Loss
from mpt.runs.coded import Coding
from mpt.runs.errors import RecordError

FOLDER = "record"
VERSION, THINNED = 1, 2
"""Of a run's record, and of a thinned copy's."""

_BROKEN = (
    *(OSError, ValueError, RuntimeError, KeyError, TypeError, IndexError, EOFError),
    *(zipfile.BadZipFile, lzma.LZMAError, zlib.error),
)
"""What reading a file raises that is no record."""

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class RecordedLabels:
    """Who holds what in one seed.

    Attributes:
        labels: (n,) of each vehicle's samples, by id.
        test_labels: (N,).
        owner: the vehicle that departs.
        rounds: those that a thinned copy has; None: all evaluated ones.
    """

    labels: Mapping[int, Ints]
    test_labels: Ints
    owner: int
    rounds: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Record:
    """The record in a run's folder."""

    path: Path

    @classmethod
    def of(cls, run: Path) -> "Record":
        """That of a run."""
        return cls(run / FOLDER)

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return sum(file.stat().st_size for file in self._files())

    def fingerprint(self) -> str:
        """What the record is known by: the checksums that its files carry, which takes no reading of all of it."""
        found = {}
        for path in sorted(self._files()):
            try:
                with zipfile.ZipFile(path) as file:
                    found[path.name] = [(part.filename, part.CRC) for part in file.infolist()]
            except (OSError, zipfile.BadZipFile) as error:
                raise RecordError(f"record: {path} cannot be read ({error}); record the run again") from None
        return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]

    def remove(self) -> None:
        """Remove its files, and the folder where nothing else is in it."""
        remove_files(self.path, [*self._files(), *self.path.glob(".*.npz.partial")])

    def write_samples(self, seed: int, samples: RecordedLabels) -> None:
        """Before the first round of a seed."""
        ids = sorted(samples.labels)
        thinned = samples.rounds is not None
        kept = {"rounds": np.array(samples.rounds, dtype=np.int64)} if thinned else {}
        self._write(
            f"{seed:04d}-samples",
            thinned,
            version=np.array(THINNED if thinned else VERSION),
            owner=np.array(samples.owner),
            vehicles=np.array(ids, dtype=np.int64),
            sizes=np.array([len(samples.labels[v]) for v in ids], dtype=np.int64),
            labels=np.concatenate([samples.labels[v] for v in ids]),
            test_labels=np.asarray(samples.test_labels),
            **kept,
        )

    def write_round(
        self,
        seed: int,
        number: int,
        models: Mapping[str, Embedding],
        who: Mapping[str, Sequence[int]],
        step: float | None = None,
    ) -> None:
        """One evaluated round: of each training's model the features of the vehicles in `who`.

        They are kept exactly, or in few bits, rounded to `step` deviations.
        """
        different = list(dict.fromkeys(models.values()))
        arrays: dict[str, Any] = {
            "trainings": np.array(list(models)),
            "models": np.array([different.index(model) for model in models.values()]),
        }
        for i, model in enumerate(different):
            ids = sorted({v for training, mine in models.items() if mine is model for v in who[training]})
            arrays |= {
                f"vehicles{i}": np.array(ids, dtype=np.int64),
                **_packed(i, np.concatenate([model.vehicle(v) for v in ids]), model.test, step),
                f"test_mean{i}": model.test_mean,
                f"rare_mean{i}": model.rare_mean,
                f"weight{i}": _exactly(model.head[0]),
                f"bias{i}": _exactly(model.head[1]),
            }
        self._write(f"{seed:04d}-{number:06d}", step is not None, **arrays)

    def samples(self, seed: int) -> RecordedLabels:
        """What `write_samples` was given."""
        return self._parsed(f"{seed:04d}-samples", self._samples)

    def _samples(self, found: dict[str, Any]) -> RecordedLabels:
        if int(found["version"]) not in (VERSION, THINNED):
            raise RecordError(
                f"record: {self.path} has version {found['version']}, should be {VERSION} or {THINNED}; record it again"
            )
        parts = np.split(found["labels"], np.cumsum(found["sizes"])[:-1])
        rounds = tuple(found["rounds"].tolist()) if "rounds" in found else None
        labels = dict(zip(found["vehicles"].tolist(), parts, strict=True))
        return RecordedLabels(labels, found["test_labels"], int(found["owner"]), rounds)

    def round(self, seed: int, number: int, samples: RecordedLabels) -> dict[str, Stored]:
        """The features of one evaluated round by training; those of one model are one object."""
        return self._parsed(f"{seed:04d}-{number:06d}", lambda found: self._round(found, samples))

    def _round(self, found: dict[str, Any], samples: RecordedLabels) -> dict[str, Stored]:
        models = []
        for i in range(1 + int(found["models"].max())):
            ids = found[f"vehicles{i}"].tolist()
            ends = np.cumsum([len(samples.labels[v]) for v in ids])
            rows, test = _unpacked(i, found)
            features = np.split(rows, ends[:-1])
            models.append(
                Stored(
                    {v: samples.labels[v] for v in ids},
                    dict(zip(ids, features, strict=True)),
                    samples.test_labels,
                    test,
                    found[f"test_mean{i}"],
                    found[f"rare_mean{i}"],
                    (_double(found[f"weight{i}"]), _double(found[f"bias{i}"])),
                )
            )
        return {t: models[m] for t, m in zip(found["trainings"].tolist(), found["models"].tolist(), strict=True)}

    def _files(self) -> Iterator[Path]:
        return self.path.glob("[0-9]*-*.npz")

    def _write(self, name: str, compressed: bool, **arrays: Any) -> None:
        content = io.BytesIO()
        if compressed:
            _savez_lzma(content, arrays)
        else:
            np.savez(content, **arrays)
        self.path.mkdir(exist_ok=True)
        write_atomically(self.path / f"{name}.npz", content.getvalue())

    def _parsed(self, name: str, parse: Callable[[dict[str, Any]], T]) -> T:
        """What a file of the record says; `RecordError` where it is missing or broken."""
        path = self.path / f"{name}.npz"
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return parse(dict(arrays))
        except FileNotFoundError:
            raise RecordError(f"record: there is no {path}, should be there after mpt run --record") from None
        except _BROKEN as error:
            what = f"{type(error).__name__}: {error}"
            raise RecordError(f"record: {path} cannot be read ({what}); record the run again") from None


@dataclass(frozen=True)
class Recorder:
    """Writes one seed's rounds as a federation comes to them.

    At the departure all vehicles are recorded, also those that are not there yet: it is under that model that methods
    may look at their samples later.
    """

    record: Record
    presence: PlannedPresence

    def __call__(self, number: int, seen: Mapping[str, ServerView]) -> None:
        """In an evaluated round."""
        plan = self.presence.plan
        departs = number == plan.depart_at
        who = {t: self.presence.vehicles if departs else mine.here for t, mine in seen.items()}
        self.record.write_round(plan.seed, number, {t: mine.features for t, mine in seen.items()}, who)


def expected_bytes(plan: Plan, losses: Sequence[Loss], samples: int, dim: int) -> int:
    """About how large the record of one seed with so many training and test samples will be, rather more than less.

    Args:
        plan: of the seed.
        losses: of its trainings; before the departure those with the same one do not differ.
        samples: of training and test.
        dim: of a feature.
    """
    before = len(set(losses))
    rounds = [number for number in range(1, plan.rounds + 1) if plan.evaluates(number)]
    models = sum(before if number <= plan.depart_at else len(losses) for number in rounds)
    return models * samples * dim * 4


def _savez_lzma(content: io.BytesIO, arrays: Mapping[str, Any]) -> None:
    """As `numpy.savez_compressed`, with a better compression that `numpy.load` reads as well."""
    with zipfile.ZipFile(content, "w", zipfile.ZIP_LZMA) as packed:
        for name, array in arrays.items():
            with packed.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)


def _packed(i: int, features: Floats, test: Floats, step: float | None) -> dict[str, Any]:
    """A model's features (n, d) and (N, d) as arrays of a file: exactly, or as codes."""
    if step is None:
        return {f"features{i}": _exactly(features), f"test{i}": _exactly(test)}
    coding = Coding.of(np.concatenate([features, test]), step)
    codes = {f"features{i}": coding.encode(features), f"test{i}": coding.encode(test)}
    return {**codes, **{f"{name}{i}": np.asarray(value) for name, value in vars(coding).items()}}


def _unpacked(i: int, found: Mapping[str, Any]) -> tuple[Floats, Floats]:
    """What `_packed` was given, or what is left of it."""
    features, test = found[f"features{i}"], found[f"test{i}"]
    if f"step{i}" not in found:
        return _double(features), _double(test)
    kept = {field.name: found[f"{field.name}{i}"] for field in fields(Coding)}
    coding = Coding(**{**kept, "step": float(kept["step"])})
    return coding.decode(features), coding.decode(test)


def _exactly(array: Floats) -> Any:
    """In float32 where that is exact, as it is for features that were computed in it."""
    small = array.astype(np.float32)
    return small if np.array_equal(small, array, equal_nan=True) else array


def _double(array: Any) -> Floats:
    made: Floats = array.astype(np.float64)
    return made
