"""The folder that `mpt run --out` writes: what it holds already, what a run resumes from, and what it leaves."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mpt.base.errors import MptError
from mpt.base.files import LockedError, exclusive_lock, remove_files, write_atomically
from mpt.data import Dataset
from mpt.data.contact_sheet import sheet
from mpt.data.encoded import require_pillow
from mpt.data.request import DatasetSpec
from mpt.runs.checkpoint import CheckpointError, RunCheckpoint, load, remove, save
from mpt.runs.config import ConfigError, RunConfig, make_config, read_toml
from mpt.runs.errors import OtherRunError, RunError
from mpt.runs.logged import TRACKING
from mpt.runs.manifest import CHECKED, ORIGINAL, THINNED
from mpt.runs.models import ModelFolder
from mpt.runs.reader import read_manifest, read_tables
from mpt.runs.record import Record
from mpt.runs.replayed import Replayed
from mpt.runs.tables import COLUMNS, Tables

CHECKPOINT_SECONDS = 20.0
_NOT_IN_KEY = ("seeds", "device", "models")
"""What of the settings does not change a seed's numbers."""


@dataclass
class Folder:
    """One run's folder.

    Attributes:
        path: it.
        config: the run's settings.
        manifest: the run's surroundings.
        device: where models live.
        say: takes a sentence for the user.
        checkpointed: when the last checkpoint was written; None: there can be none.
    """

    path: Path
    config: RunConfig
    manifest: dict[str, Any]
    device: str
    say: Callable[[str], None]
    checkpointed: float | None = field(default_factory=time.monotonic)

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints are while the run is unfinished."""
        return self.path / "checkpoint"

    @property
    def key(self) -> str:
        """A hash of everything that determines the numbers."""
        return key_of(self.config, self.manifest)

    def clear(self) -> None:
        """Remove what an earlier run has left, and nothing else."""
        remove(self.checkpoints)
        Record.of(self.path).remove()
        ModelFolder.of(self.path).remove()
        Replayed.of(self.path).remove()
        remove_files(self.path / ORIGINAL, [self.path / ORIGINAL / f"{table}.csv" for table in COLUMNS])
        for curves in (self.path / "tensorboard").rglob("events.out.tfevents.*"):
            curves.unlink()
        for name in (*_TABLES_AND_PAGE, "manifest.json", "config.toml", TRACKING):
            (self.path / name).unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Inside, no other process writes here; the operating system ends that with the process, however it ends."""
        with ExitStack() as stack:
            try:
                stack.enter_context(exclusive_lock(self.path))
            except LockedError:
                raise ConfigError(
                    f"out: another process is writing to {self.path}; wait, or choose another --out"
                ) from None
            except OSError as error:
                self.say(f"{self.path} cannot be locked ({error.strerror}); see that no other process writes there")
            yield

    def found(self) -> Tables | None:
        """The tables of a finished run of these settings, perhaps of fewer seeds; None: there is none.

        Raises:
            OtherRunError: where the folder holds a run of other settings.
        """
        if not (self.path / "manifest.json").exists():
            return None
        config, manifest = self._read()
        if THINNED in manifest:
            raise OtherRunError(f"out: {self.path} holds a thinned copy, which cannot be gone on with; {_CHOICE}")
        self._compare(config, manifest)
        if manifest.get("commit") != self.manifest["commit"]:
            self.say(f"{self.path} holds a run of commit {manifest.get('commit')}, this is {self.manifest['commit']}")
        if not manifest.get("finished"):
            return None
        try:
            return read_tables(self.path)
        except RunError as error:
            raise OtherRunError(f"out: {self.path} holds a run that cannot be read ({error}); {_CHOICE}") from None

    def begin(self, dataset: Dataset, finished: Tables) -> RunCheckpoint:
        """What to resume from; from now on the folder holds this run, unfinished."""
        seeds = len(finished.seeds)
        found = None
        if not (self.path / "manifest.json").exists():
            self._refuse_strangers()
        (self.path / "report.html").unlink(missing_ok=True)
        if seeds:
            seed = self.config.first_seed + seeds
            found = RunCheckpoint(self.key, seed, None).then(seed, None, finished)
            save(self.checkpoints, found)
        else:
            found = load(self.checkpoints, self.key, device=self.device, say=self.say)
        if found is None:
            self.clear()
            found = RunCheckpoint(self.key, self.config.first_seed, None)
        if seeds:  # whoever reads the folder now must not take it for a finished run of more seeds
            self._write_manifest(finished=False)
        write_atomically(self.path / "config.toml", self.config.to_toml().encode())
        self._write_manifest(finished=False)
        if dataset.kind == "images":
            pillow = require_pillow(DatasetSpec("samples.png"))
            pillow.fromarray(sheet(dataset, first=self.manifest["rare"])).save(self.path / "samples.png", "PNG")
        return found

    def checkpoint(self, checkpoint: RunCheckpoint, *, always: bool) -> None:
        """Write one if `always`, or where the last one was a while ago."""
        if self.checkpointed is None or not (always or time.monotonic() - self.checkpointed > CHECKPOINT_SECONDS):
            return
        try:
            save(self.checkpoints, checkpoint)
            self.checkpointed = time.monotonic()
        except CheckpointError as error:
            self.say(f"{error}, so this run cannot be resumed where it was stopped")
            self.checkpointed = None

    def finish(self, tables: Tables) -> None:
        """Write the tables; from now on the folder holds this run, finished."""
        tables.write(self.path)
        self._write_manifest(finished=True)
        remove(self.checkpoints)

    def _refuse_strangers(self) -> None:
        """A folder without a manifest is none of ours: nothing that is there may be written over."""
        config = self.path / "config.toml"
        ours = config.exists() and config.read_bytes() == self.config.to_toml().encode()
        for name in (*_TABLES_AND_PAGE, "record", "replay", "models", *(() if ours else ("config.toml",))):
            if (self.path / name).exists():
                raise OtherRunError(f"out: {self.path} holds a {name} that is of no run; {_CHOICE}")

    def _write_manifest(self, *, finished: bool) -> None:
        text = json.dumps({**self.manifest, "finished": finished}, indent=2) + "\n"
        write_atomically(self.path / "manifest.json", text.encode())

    def _read(self) -> tuple[RunConfig, dict[str, Any]]:
        try:
            return make_config(read_toml(self.path / "config.toml")), read_manifest(self.path)
        except MptError as error:
            raise OtherRunError(f"out: {self.path} holds a run that cannot be read ({error}); {_CHOICE}") from None

    def _compare(self, config: RunConfig, manifest: dict[str, Any]) -> None:
        theirs, ours = asdict(config), asdict(self.config)
        pairs = [(name, theirs[name], ours[name]) for name in ours if name not in _NOT_IN_KEY]
        pairs += [(name, manifest.get(name), self.manifest[name]) for name in CHECKED]
        pairs.append(("bench", manifest.get("bench", 1), self.manifest["bench"]))
        if config.seeds > self.config.seeds:
            pairs.append(("seeds", config.seeds, self.config.seeds))
        for name, there, here in pairs:
            if name == "files" and isinstance(there, dict) and there != here:
                changed = [text for text in {**there, **here} if there.get(text) != here.get(text)]
                raise OtherRunError(f"out: {', '.join(changed)} has changed since the run in {self.path}; {_CHOICE}")
            if there != here:
                raise OtherRunError(
                    f"out: {self.path} holds a run with {name} {_short(there)}, not {_short(here)}; {_CHOICE}"
                )


def key_of(config: RunConfig, manifest: Mapping[str, Any]) -> str:
    """A hash of everything that determines a run's numbers."""
    settings = {name: value for name, value in asdict(config).items() if name not in _NOT_IN_KEY}
    known = [settings, {name: manifest[name] for name in CHECKED}]
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


_TABLES_AND_PAGE = (*(f"{table}.csv" for table in COLUMNS), "samples.png", "report.html")
_CHOICE = "choose another --out, or pass --overwrite"


def _short(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else "unset" if value is None else repr(value)
