"""Short names of cells, for tables: dataset, class, remaining samples, backbone, and what else sets them apart."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from mpt.runs.reader import Run


class CellName(NamedTuple):
    """What a cell is.

    Attributes:
        dataset: its name, not its path.
        departing: the class that departs.
        backbone: of the model.
        remaining: the fraction of remaining samples; None where vehicles keep what they have recorded.
        more: settings that set it apart from cells which are the same in all of this; else empty.

    Where it names a pair of cells, a part in which the two differ is empty.
    """

    dataset: str
    departing: str
    backbone: str
    remaining: float | None
    more: str = ""

    @property
    def task(self) -> str:
        """The dataset and the class: cells that share them share their samples."""
        return " ".join(part for part in (self.dataset, self.departing) if part)

    @property
    def rest(self) -> str:
        """What sets cells of one task apart, such as 2% cnn3."""
        share = "" if self.remaining is None else f"{100 * self.remaining:g}%"
        return " ".join(part for part in (share, self.backbone, self.more) if part)

    def __str__(self) -> str:
        return " ".join(part for part in (self.task, self.rest) if part)

    @property
    def order(self) -> tuple[str, str, str, float, str]:
        """By which cells stand in tables."""
        return self.dataset, self.departing, self.backbone, self.remaining or 0.0, self.more


def cell_names(cells: Sequence[tuple[Run, Run]], apart: frozenset[str]) -> list[CellName]:
    """Of pairs of cells, each unlike the others.

    Args:
        cells: two a pair, which may be the same.
        apart: settings that do not set cells apart.
    """
    names = [_shared(_name(one), _name(other)) for one, other in cells]
    for name in {name for name in names if names.count(name) > 1}:
        places = [i for i, other in enumerate(names) if other == name]
        for i, more in zip(places, _unlike([cells[i][0] for i in places], apart), strict=True):
            names[i] = name._replace(more=more)
    return names


def _name(run: Run) -> CellName:
    dataset = run.manifest.get("dataset") or run.config.get("dataset", "")
    return CellName(str(dataset), run.rare_name, str(run.config.get("backbone", "")), run.share_remaining)


def _shared(one: CellName, other: CellName) -> CellName:
    dataset, departing, backbone = ("" if a != b else a for a, b in zip(one[:3], other[:3], strict=True))
    return CellName(dataset, departing, backbone, one.remaining if one.remaining == other.remaining else None)


def _unlike(runs: Sequence[Run], apart: frozenset[str]) -> list[str]:
    """Settings in which these runs differ, a text each; the folders' names where these do not tell them apart."""
    names = dict.fromkeys(name for run in runs for name in run.config if name not in apart | {"dataset"})
    unlike = [name for name in names if len({str(run.config.get(name)) for run in runs}) > 1]
    texts = [", ".join(_text(n, run.config[n]) for n in unlike if run.config.get(n) is not None) for run in runs]
    return texts if len({*texts}) == len(runs) else [run.path.name for run in runs]


def _text(name: str, value: Any) -> str:
    return f"{name} {', '.join(map(str, value)) if isinstance(value, list) else value}"
