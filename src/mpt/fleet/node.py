"""A vehicle's own settings: its node config, as `mpt vehicle --node-config` and Flower's SuperNode take it."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mpt.tracking.errors import FleetError

KEYS = {
    "dataset": "any dataset name of `mpt run`: folder:PATH, parquet:PREFIX, npz:PATH, path.py:function, ...",
    "partition-id": "with num-partitions: which part of a dataset that all have",
    "num-partitions": "how many parts there are",
    "min-samples": "classes that the vehicle has fewer samples of are not in its reports (default: 1)",
    "validation": "at most this share of each class is set aside to evaluate on (default: the run's)",
    "name": "what the vehicle is called, where it is known by what it says (vehicle-ids = partition)",
    "own-settings": "further keys, with commas between, that an app of your own reads",
    "leave-file": "where it is told to leave; mpt vehicle sets it",
    "images-file": "where its decoded images are kept; mpt vehicle sets it",
}
"""Every key of a node config that the vehicle's app reads, and what it means."""
_LONGEST_NAME = 200


@dataclass(frozen=True)
class NodeConfig:
    """A node config that was checked; the keys of `KEYS` with "_" for "-".

    Attributes:
        dataset: of the vehicle's own, or which its part is of; None: the run's.
        partition_id, num_partitions: its part; None where its samples are its own.
        min_samples: classes that it has fewer samples of are left out of its reports.
        validation: the most of each class that it sets aside, where the run asks for evaluations; None: no limit.
        name: what it calls itself; empty where it has no name.
        leave_file: by which it is told to leave.
        images_file: where its decoded images are kept between messages.
    """

    dataset: str | None = None
    partition_id: int | None = None
    num_partitions: int | None = None
    min_samples: int = 1
    validation: float | None = None
    name: str = ""
    leave_file: Path | None = None
    images_file: Path | None = None

    @classmethod
    def of(cls, given: Mapping[str, object]) -> "NodeConfig":
        """From a node config, as Flower has parsed it.

        Raises:
            FleetError: a key is unknown and none of `own-settings`, or a value is not what it should be.
        """
        own = [key.strip() for key in (_text(given, "own-settings") or "").split(",")]
        for key in given:
            if key not in KEYS and key not in own:
                raise FleetError(f"node config: unknown key {key!r}, {_meant(key)}")
        part, parts = _whole(given, "partition-id", 0), _whole(given, "num-partitions", 1)
        if part is not None and parts is not None and part >= parts:
            raise FleetError(f"node config: partition-id = {part}, should be from 0 to {parts - 1}")
        if (part is None) != (parts is None):
            lacking = "num-partitions" if parts is None else "partition-id"
            raise FleetError(f"node config: {lacking} is missing, should be given with the other of the two")
        name = _text(given, "name") or ""
        if len(name) > _LONGEST_NAME or not name.isprintable() or "," in name:
            should = f"should be one line of at most {_LONGEST_NAME}, without commas"
            raise FleetError(f"node config: name = {name[:40]!r}, {should}")
        leave, images = _text(given, "leave-file"), _text(given, "images-file")
        return cls(
            dataset=_text(given, "dataset"),
            partition_id=part,
            num_partitions=parts,
            min_samples=min_samples(given),
            validation=_share(given, "validation"),
            name=name,
            leave_file=None if leave is None else Path(leave),
            images_file=None if images is None else Path(images),
        )

    @property
    def vehicle(self) -> str:
        """What the vehicle calls itself: its part's number, or its name."""
        return self.name if self.partition_id is None else str(self.partition_id)


def min_samples(given: Mapping[str, object]) -> int:
    """Of how many samples a class has to be for the vehicle to report on it; 1 where nothing is said."""
    found = _whole(given, "min-samples", 1)
    return 1 if found is None else found


def _whole(given: Mapping[str, object], key: str, least: int) -> int | None:
    if key not in given:
        return None
    value = given[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise FleetError(f"node config: {key} = {value!r}, should be a whole number of at least {least}")
    return value


def _share(given: Mapping[str, object], key: str) -> float | None:
    if key not in given:
        return None
    value = given[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise FleetError(f"node config: {key} = {value!r}, should be a number from 0 to below 1")
    return float(value)


def _text(given: Mapping[str, object], key: str) -> str | None:
    if key not in given:
        return None
    value = given[key]
    if not isinstance(value, str) or not value:
        raise FleetError(f'node config: {key} = {value!r}, should be a text in quotes, such as {key}="..."')
    return value


def _meant(key: str) -> str:
    near = difflib.get_close_matches(key.lower().replace("_", "-"), KEYS, 1, 0.7)
    known = f'known are {", ".join(KEYS)}; own-settings="{key}" allows one that your own app reads'
    return f"should it be {near[0]!r}?" if near else known
