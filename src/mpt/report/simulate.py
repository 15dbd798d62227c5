"""`mpt.simulate`: a run, and its page where it has a folder."""

import logging
from pathlib import Path

from mpt.report.page import write_report
from mpt.runs import simulate as runs
from mpt.runs.config import RunConfig
from mpt.runs.result import RunResult

_LOG = logging.getLogger("mpt")


def simulate(
    config: RunConfig,
    *,
    out: Path | str | None = None,
    overwrite: bool = False,
    begin: runs.Begin | None = None,
    progress: runs.Progress | None = None,
    say: runs.Say = _LOG.warning,
) -> RunResult:
    """Run all seeds of `config` on one device; with `out`, its files and `report.html` are there.

    Args:
        config: the settings.
        out: a folder for the results. What an unfinished run of the same settings has left there is resumed; a finished
            one is read and not run again, but for seeds that are new.
        overwrite: whatever run is in the folder, begin anew.
        begin: called once with the manifest (versions, device, classes, counts, vehicles), before the first round that
            is computed.
        progress: called after every round with the seed, the round's number and its rows.
        say: takes a sentence on what was left out of the dataset, and on what was found in the folder.

    Raises:
        Stopped: on Ctrl-C, after what has been done is on the disk.
    """
    result = runs.simulate(config, out=out, overwrite=overwrite, begin=begin, progress=progress, say=say)
    if result.folder is not None and (result.computed or not (result.folder / "report.html").exists()):
        write_report(result.folder)
    return result
