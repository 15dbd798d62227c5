"""A run's figures, round by round, in TensorBoard, MLflow or Weights & Biases where one of them is installed.

Whatever goes wrong there while a run goes on is a sentence, and the run goes on: `Steadfast`.
"""

import importlib
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from mpt.base.errors import ConfigError
from mpt.base.text import installs
from mpt.federation.measurement import Measurement
from mpt.runs.config import RunConfig
from mpt.runs.logged import plain, scalars, why
from mpt.runs.mlflow_log import MlflowLogger
from mpt.runs.result import RunResult
from mpt.runs.wandb_log import LONGEST, WandbLogger

_MODULES: dict[str, str] = {"tensorboard": "torch.utils.tensorboard", "mlflow": "mlflow", "wandb": "wandb"}
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "WANDB_MODE": "offline",
    "WANDB_ERROR_REPORTING": "false",
}
"""What is set for these packages where the user has not: they call nobody of their own accord, and wait for seconds."""
PATIENCE = 3
"""So many failures in a row, and nothing more is tried until the end of the run."""


class Address(NamedTuple):
    """`--track NAME[:PLACE]`: which package, and where it is to write."""

    name: str
    place: str


class MetricLogger(Protocol):
    """Takes the rows of every round."""

    def begin(self, manifest: Mapping[str, Any]) -> None:
        """Before the first round that is computed: what is known beforehand."""
        ...

    def __call__(self, seed: int, number: int, rows: Sequence[Measurement]) -> None:
        """Log the rows of one round."""
        ...

    def finish(self, result: RunResult) -> None:
        """The run is at its end, and its files are there."""
        ...

    def close(self) -> None:
        """No more comes, finished or not."""
        ...


def address(text: str) -> Address:
    """What is written after `--track`.

    Example:
        >>> address("mlflow:sqlite:///mlflow.db")
        Address(name='mlflow', place='sqlite:///mlflow.db')
    """
    name, _, place = text.partition(":")
    if name not in _MODULES:
        raise ConfigError(f"track: {text!r}, should be tensorboard, mlflow[:URI] or wandb[:PROJECT]")
    if name == "tensorboard" and place:
        raise ConfigError(f"track: {text!r}, tensorboard writes into the results' folder, should be tensorboard alone")
    if name == "wandb" and (len(place) > LONGEST or set(place) & set("/\\#?%:")):
        raise ConfigError(
            f"track: {text!r}, should be wandb:PROJECT with at most {LONGEST} characters and none of / \\ # ? % :"
        )
    return Address(name, place)


def module_of(name: str) -> Any:
    """The package, or `ConfigError` where it is not installed."""
    for variable, value in _QUIET.items():
        os.environ.setdefault(variable, value)
    try:
        return importlib.import_module(_MODULES[name])
    except ImportError:
        how = "pip install tensorboard" if name == "tensorboard" else installs("track")
        raise ConfigError(f"track: {name} is not installed, {how} brings it") from None


def track(text: str, config: RunConfig, out: Path | None, say: Callable[[str], None]) -> MetricLogger:
    """The logger that is meant, or `ConfigError` where it is not installed or its place is none.

    Args:
        text: as after `--track`.
        config: the run's settings.
        out: the run's folder, where it has one.
        say: takes a sentence for the user.
    """
    where = address(text)
    if where.name == "tensorboard" and out is None:
        raise ConfigError("track: tensorboard writes into the results' folder, should come with --out DIR")
    module = module_of(where.name)
    logger: MetricLogger
    if where.name == "tensorboard" and out is not None:
        logger = _TensorBoard(module, Path(out))
    elif where.name == "mlflow":
        logger = MlflowLogger(module, where.place, config, out)
    else:
        logger = WandbLogger(module, where.place, config, out, say)
    return Steadfast(logger, where.name, say)


class Steadfast:
    """A logger that never stops a run: what fails is said once, kept, and tried again with the next round."""

    def __init__(self, logger: MetricLogger, name: str, say: Callable[[str], None]) -> None:
        self.logger, self.name, self.say = logger, name, say
        self.pending: deque[Callable[[], None]] = deque()
        self.failed = 0

    def begin(self, manifest: Mapping[str, Any]) -> None:
        """As the logger's."""
        self._do(partial(self.logger.begin, manifest))

    def __call__(self, seed: int, number: int, rows: Sequence[Measurement]) -> None:
        """One round."""
        if rows:
            self._do(partial(self.logger, seed, number, rows))

    def finish(self, result: RunResult) -> None:
        """As the logger's; a last try for what has failed."""
        self.failed = 0
        self._do(partial(self.logger.finish, result))

    def close(self) -> None:
        """Say what was not logged."""
        if self.pending:
            self.say(f"track: the last {len(self.pending)} of this run's entries were not logged to {self.name}")
        try:
            self.logger.close()
        except Exception as error:  # another package's, and whatever it meets
            self._warn(error)

    def _do(self, call: Callable[[], None]) -> None:
        self.pending.append(call)
        while self.pending and self.failed < PATIENCE:
            try:
                self.pending[0]()
            except Exception as error:
                self._warn(error)
                return
            self.pending.popleft()
            self.failed = 0

    def _warn(self, error: Exception) -> None:
        self.failed += 1
        if self.failed == 1:
            self.say(f"track: {self.name} cannot be written to, the run goes on without it ({why(error)})")


class _TensorBoard:
    """Curves under OUT/tensorboard, one run a seed, method and readout."""

    def __init__(self, module: Any, out: Path) -> None:
        self.module, self.folder = module, out / "tensorboard"
        self.writers: dict[str, Any] = {}

    def begin(self, manifest: Mapping[str, Any]) -> None:
        """It has no place for that."""

    def __call__(self, seed: int, number: int, rows: Sequence[Measurement]) -> None:
        """One round."""
        for row in rows:
            name = f"seed-{seed}/{plain(row.method)}/{plain(row.readout)}"
            if name not in self.writers:
                self.writers[name] = self.module.SummaryWriter(str(self.folder / name), purge_step=number)
            for key, value in scalars(row).items():
                self.writers[name].add_scalar(key, value, number)
        for writer in self.writers.values() if rows else ():
            writer.flush()

    def finish(self, result: RunResult) -> None:
        """The folder it writes into has everything else."""

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()
