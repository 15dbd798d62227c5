"""Cells of a sweep, each a run of its own, and the folder that several processes fill together."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpt.base.files import LockedError, exclusive_lock, write_atomically
from mpt.methods import Traits, find_method
from mpt.runs.config import ConfigError, RunConfig, read_toml
from mpt.runs.errors import OtherRunError, RunError
from mpt.runs.manifest import own_files
from mpt.runs.reader import read_tables
from mpt.runs.tables import Tables
from mpt.version import ENGINE

if TYPE_CHECKING:
    from mpt.federation.trainers import Trainers
    from mpt.runs.going import Progress

_IN_THE_DATA = {"dataset", "rare", "image_size", "per_class"}
_ELSEWHERE = {"seeds", "device", "record", "models"}
_LATER: dict[str, Any] = {
    "loss": "cross-entropy",
    "momentum": 0.9,
    "weight_decay": 5e-4,
    "local_steps": None,
    "prox": 0.0,
    "schedule": "constant",
    "server": "average",
    "server_lr": None,
    "server_momentum": 0.9,
    "first_seed": 0,
    "weights": None,
    "freeze": False,
    "aggregation": None,
    "attack": (),
    "gate": "auto",
}
"""Settings that came later: a cell in which one is as it was before has the key that it had before."""


@dataclass(frozen=True)
class Cell:
    """One run of a sweep.

    Attributes:
        config: its settings.
        fingerprint: of the samples it sees.
        rare: index of the class that departs.
        label: for people.
    """

    config: RunConfig
    fingerprint: str
    rare: int
    label: str = ""

    @cached_property
    def training(self) -> str:
        """A hash of all that determines the models: cells that share it differ in what is read out of them.

        One with an attack shares it with none: attackers may keep what they have seen.
        """
        if self.config.attack:
            return self.key
        return replace(self, config=self.config.only_training, label="").key

    @cached_property
    def key(self) -> str:
        """A hash of all that determines the numbers: settings, samples, users' own files, methods' versions, `ENGINE`.

        Where the samples lie does not count, and neither do seeds, each of which is computed once, nor the device: on
        another one the numbers differ by rounding, which `manifest.json` lets one see.
        """
        left_out = _IN_THE_DATA | _ELSEWHERE
        settings = {
            name: value
            for name, value in asdict(self.config).items()
            if name not in left_out and not (name in _LATER and value == _LATER[name])
        }
        files = {text: known for text, known in own_files(self.config).items() if text != self.config.dataset}
        versions = {name: Traits.of(find_method(name)).version for name in self.config.methods}
        known: dict[str, Any] = {
            "engine": ENGINE,
            "settings": settings,
            "samples": self.fingerprint,
            "rare": self.rare,
            "files": files,
        }
        if later := {name: version for name, version in versions.items() if version != 1}:
            known["versions"] = later
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:20]


@dataclass(frozen=True)
class CellStore:
    """A folder with one run folder a cell, named by its key.

    A cell is finished when its `manifest.json` says so, which is written last. Who computes a cell holds a lock on a
    file of its own; the operating system gives that back however the process ends.
    """

    path: Path

    def folder(self, cell: Cell) -> Path:
        """A cell's, as `mpt run --out` writes it."""
        return self.path / cell.key

    def paged(self, cell: Cell) -> bool:
        """Whether it is finished and has its page."""
        return self.finished(cell) and (self.folder(cell) / "report.html").exists()

    def finished(self, cell: Cell) -> bool:
        """Whether all its seeds are there."""
        return bool(self.manifest(cell).get("finished")) and self._asked(cell) >= cell.config.seeds

    def seeds(self, cell: Cell) -> int:
        """How many are finished; of a cell that is being extended, those that were before."""
        if self.manifest(cell).get("finished"):
            return self._asked(cell)
        try:
            return len(read_tables(self.folder(cell)).seeds)
        except RunError:
            return 0

    def tables(self, cell: Cell, *, every: bool = False) -> Tables | None:
        """What a cell has measured: of as many seeds as are asked for, or of those that are finished; None: of none.

        With `every` of all that are finished, be they more than are asked for.
        """
        seeds = self.seeds(cell) if every else min(cell.config.seeds, self.seeds(cell))
        if not seeds:
            return None
        try:
            tables = read_tables(self.folder(cell))
            last = [r for r in tables.metrics if r["round"] == cell.config.rounds]
            there = {(r["seed"], r["method"]) for r in last}
            numbers = replace(cell.config, seeds=seeds).seed_numbers
            asked = {(seed, r["method"]) for seed in numbers for r in tables.metrics}
        except RunError:
            asked = set()
        if not asked or not asked <= there:
            raise ConfigError(
                f"{self.folder(cell)}: {cell.label or 'the cell'} is finished, but its tables are cut off or cannot be "
                "read; should be whole, or the folder deleted to have it computed again"
            )
        return tables.of_seeds(numbers)

    def manifest(self, cell: Cell) -> dict[str, Any]:
        """A cell's `manifest.json`; empty where there is none."""
        try:
            return dict(json.loads((self.folder(cell) / "manifest.json").read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return {}

    def failure(self, cell: Cell, since: float = 0.0) -> str | None:
        """Why it could not be computed, where the last attempt is no older than `since`."""
        path = self.folder(cell) / "error.txt"
        try:
            return path.read_text(encoding="utf-8").strip() if path.stat().st_mtime >= since else None
        except OSError:
            return None

    @contextmanager
    def claimed(self, cell: Cell) -> Iterator[bool]:
        """Whether the cell is ours inside; False: another process computes it."""
        locks = self.path / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        own = locks / cell.key
        own.touch()
        with ExitStack() as stack:
            try:
                stack.enter_context(exclusive_lock(own))
            except LockedError:
                yield False
                return
            yield True

    def compute(
        self,
        cell: Cell,
        device: str,
        progress: "Progress",
        say: Callable[[str], None],
        trainers: "Trainers | None" = None,
    ) -> None:
        """Run what a claimed cell lacks; what an unfinished run has left is resumed where that can be.

        A failure is kept beside the run for `failure`, and raised.
        """
        from mpt.report.simulate import simulate

        folder, done = self.folder(cell), bool(self.manifest(cell).get("finished"))
        try:
            config = self._begun(cell, device)
            try:
                simulate(config, out=folder, progress=progress, say=say, trainers=trainers)
            except OtherRunError:
                if done:
                    raise
                simulate(config, out=folder, overwrite=True, progress=progress, say=say, trainers=trainers)
        except Exception as error:
            write_atomically(folder / "error.txt", f"{type(error).__name__}: {error}\n".encode())
            raise

    def compute_together(
        self,
        cells: Sequence[Cell],
        device: str,
        progress: Sequence["Progress"],
        say: Sequence[Callable[[str], None]],
        trainers: "Trainers | None" = None,
    ) -> None:
        """The same for several claimed cells of one training, which is trained once."""
        from mpt.report.simulate import simulate_together

        configs, folders = [self._begun(cell, device) for cell in cells], list(map(self.folder, cells))
        simulate_together(configs, folders, progress=progress, say=say, trainers=trainers)

    def _begun(self, cell: Cell, device: str) -> RunConfig:
        """The settings of what a claimed cell lacks; its folder is there."""
        folder, begun = self.folder(cell), self._asked(cell)
        folder.mkdir(parents=True, exist_ok=True)
        config = replace(cell.config, device=device, seeds=max(cell.config.seeds, begun))
        with suppress(OSError):
            (folder / "error.txt").unlink()
        if begun:  # the same samples may lie elsewhere now
            before = replace(config, seeds=begun)
            write_atomically(folder / "config.toml", before.to_toml().encode())
        return config

    def _asked(self, cell: Cell) -> int:
        """How many a run of the cell was begun with; 0: there is none."""
        try:
            return int(read_toml(self.folder(cell) / "config.toml").get("seeds", 0))
        except ConfigError:
            return 0
