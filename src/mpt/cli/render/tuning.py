"""`mpt tune`: how far it is, its outcome as a table and as JSON, and what is to be remarked."""

import json
from collections.abc import Iterator
from typing import Any

from rich.table import Column, Table
from rich.text import Text

from mpt.base.text import listed, score
from mpt.cli.render import plain_console
from mpt.runs.tries import Tried
from mpt.runs.tune import Tuned, Tuning

_FIGURES = {"mean_f1": "mean F1 after the departure", "last_f1": "F1 in the last round"}


class TuningStatus:
    """On a terminal, the try that is under way."""

    def __init__(self) -> None:
        self._console = plain_console(stderr=True)
        self._status = self._console.status("reading the runs")

    def __enter__(self) -> "TuningStatus":
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._status.stop()

    def __call__(self, method: str, number: int, tries: int) -> None:
        """Before a try."""
        self._status.update(Text(f"{method}: try {number + 1} of {tries}"))


def tuning_table(found: Tuning) -> Table:
    """A line a method: the scores of its default and of its best setting, and what that is."""
    runs = f"{len(found.runs)} run{'s' if len(found.runs) > 1 else ''}"
    table = Table(
        Column("\nmethod", overflow="fold"),
        Column("\ntries", justify="right"),
        Column("score of\nthe default", justify="right"),
        Column("of the\nbest", justify="right"),
        Column("\narguments of the best", overflow="fold"),
        caption=f"score: {_FIGURES[found.figure]} as a share of oracle-train's, mean over seeds and {runs}",
        caption_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for tuned in found.methods:
        best = tuned.best
        arguments = "" if best is None else best.arguments or "the default"
        table.add_row(tuned.method, str(len(tuned.tries)), _score(tuned.default), _score(best), arguments)
    return table


def remarks(found: Tuning) -> Iterator[str]:
    """Who has fewer tries than the budget and why, what has failed, who was left out, what was there before."""
    untuned = [t.method for t in found.methods if t.whole and len(t.tries) == 1]
    if untuned:
        yield f"{listed(untuned)}: nothing to tune, one try"
    for tuned in found.methods:
        if tuned.whole and tuned.method not in untuned:
            yield f"{tuned.method}: {len(tuned.tries)} tries, it has no more settings"
        if tuned.failed:
            failed = f"{len(tuned.failed)} of {len(tuned.tries)} tries failed"
            yield f"{tuned.method}: {failed}, the first with: {tuned.failed[0].error}"
    if found.left_out:
        yield f"{listed(list(found.left_out))}: left out, their training was not recorded in all of these runs"
    there = sum(len(tuned.tries) for tuned in found.methods) - found.computed
    if there:
        yield f"{there} tries were in {found.out} before and were not computed again"


def as_json(found: Tuning) -> str:
    """The runs, and of each method its tries and what was chosen."""
    made = {
        "runs": {run.key: str(run.folder) for run in found.runs},
        "budget": found.budget,
        "seed": found.seed,
        "figure": found.figure,
        "out": str(found.out),
        "left_out": list(found.left_out),
        "methods": [_record(tuned) for tuned in found.methods],
    }
    return json.dumps(made, indent=2)


def _record(tuned: Tuned) -> dict[str, Any]:
    best = tuned.best
    return {
        "method": tuned.method,
        "tries": len(tuned.tries),
        "failed": len(tuned.failed),
        "default": tuned.default.score,
        "best": None if best is None else best.score,
        "try": None if best is None else best.number,
        "arguments": None if best is None else tuned.settings[best.number],
        "chosen": None if best is None else tuned.spec(best),
    }


def _score(tried: Tried | None) -> str:
    return score(float("nan") if tried is None or tried.score is None else tried.score)
