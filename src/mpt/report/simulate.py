"""`mpt.simulate`: a run, and its page where it has a folder."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from mpt.federation.measurement import Measurement
from mpt.federation.trainers import Trainers
from mpt.report.page import write_report
from mpt.runs import simulate as runs
from mpt.runs.config import RunConfig
from mpt.runs.going import Progress
from mpt.runs.live import Display, NotebookBar, f1_line, notebook_display
from mpt.runs.logbook import track as logger_of
from mpt.runs.result import RunResult

_LOG = logging.getLogger("mpt")


class _Watched(NotebookBar):
    """A run's rounds as a notebook's bar."""

    def __init__(self, config: RunConfig, display: Display | None) -> None:
        super().__init__(f"{config.dataset} without {config.rare}", config.seeds * config.rounds, display)
        self.config = config

    def begin(self, manifest: Mapping[str, Any]) -> None:
        """Before the first round."""
        self.text = f"{self.what}: round 1 trains"
        self._draw()

    def __call__(self, seed: int, number: int, rows: Sequence[Measurement]) -> None:
        """After every round."""
        config = self.config
        which = f"seed {seed}, " if config.seeds > 1 else ""
        line = f"F1: {f1_line(rows)}" if rows else ""
        self.step((seed - config.first_seed) * config.rounds + number, f"{which}round {number}/{config.rounds}", line)


def simulate(
    config: RunConfig,
    *,
    out: Path | str | None = None,
    overwrite: bool = False,
    begin: runs.Begin | None = None,
    progress: Progress | bool | None = None,
    track: str | None = None,
    say: runs.Say = _LOG.warning,
    trainers: Trainers | None = None,
) -> RunResult:
    """Run all seeds of `config` on one device; with `out`, its files and `report.html` are there.

    Args:
        config: the settings.
        out: a folder for the results. What an unfinished run of the same settings has left there is resumed; a finished
            one is read and not run again, but for seeds that are new.
        overwrite: whatever run is in the folder, begin anew.
        begin: called once with the manifest (versions, device, classes, counts, vehicles), before the first round that
            is computed.
        progress: called after every round with the seed, the round's number and its rows. By default a notebook shows a
            bar, and nothing is shown elsewhere; False: nowhere.
        track: log every round to "tensorboard", "mlflow[:URI]" or "wandb[:PROJECT]" as well.
        say: takes a sentence on what was left out of the dataset, and on what was found in the folder.
        trainers: those that other runs of the process have used.

    Raises:
        Stopped: on Ctrl-C, after what has been done is on the disk.
    """
    logger = None if track is None else logger_of(track, config, None if out is None else Path(out), say)
    display = None if callable(progress) or progress is False else notebook_display()
    with ExitStack() as stack:
        if logger is not None:
            stack.callback(logger.close)
        shown = stack.enter_context(_Watched(config, display))
        begins = [shown.begin, *([begin] if begin else []), *([logger.begin] if logger else [])]
        rounds: list[Progress] = [
            shown,
            *([progress] if callable(progress) else []),
            *([logger] if logger else []),
        ]
        result = runs.simulate(
            config,
            out=out,
            overwrite=overwrite,
            begin=partial(_each, begins),
            progress=partial(_each, rounds),
            say=say,
            trainers=trainers,
        )
        _paged(result)
        if logger is not None:
            logger.finish(result)
    return result


def simulate_together(
    configs: Sequence[RunConfig],
    outs: Sequence[Path],
    *,
    progress: Sequence[Progress | None],
    say: Sequence[runs.Say],
    trainers: Trainers | None = None,
) -> list[RunResult]:
    """`mpt.runs.simulate.simulate_together`, with a page in each folder."""
    return runs.simulate_together(configs, outs, progress=progress, say=say, finished=_paged, trainers=trainers)


def _each(calls: Sequence[Callable[..., None]], *given: Any) -> None:
    for call in calls:
        call(*given)


def _paged(result: RunResult) -> None:
    """Write a run's page, where it has a folder."""
    if result.folder is not None and (result.computed or not (result.folder / "report.html").exists()):
        write_report(result.folder)
