"""How each row looks in every chart: colour, dash, mark."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mpt.base.seeds import Series

REFERENCES = ("oracle", "oracle-train", "oracle-train:outward", "oracle-train:duo", "live", "live:duo", "fedavg:live")
"""Rows that use what no method may know."""

_COLOURS = {
    "mpt": ("#0b57c4", "#6ea8ff"),
    "mpt-lite": ("#4c97ee", "#a6cbff"),
    "mpt-x": ("#5a2ca0", "#b79bff"),
    "mpt-x:in-place": ("#8a63c9", "#cdb8ff"),
    "mpt-duo": ("#b0247c", "#f59ad2"),
    "mpt:outward": ("#2f6f9f", "#8fc3ea"),
    "mpt:in-span": ("#5b6fc0", "#8f9fe6"),
    "mpt:stored-residual": ("#27408b", "#7388d8"),
    "mpt:predicted": ("#3f7fbf", "#7fb4e6"),
    "mpt:measured": ("#1f9bcf", "#6fd0f5"),
    "mpt:trained": ("#6a4fb0", "#ab93f0"),
    "fedavg": ("#c8500a", "#ff8f4d"),
    "fedlc": ("#b57900", "#f0b840"),
    "ccvr": ("#117733", "#4fc67a"),
    "icarl": ("#9b2f73", "#e583c0"),
    "sdc": ("#7a7a12", "#c9c94a"),
    "sdc:all": ("#99992a", "#dede7a"),
    "ldc": ("#0f8577", "#4fd0be"),
    "ldc:all": ("#2fa294", "#8be3d6"),
    "dpcr": ("#3b6e22", "#9ccf6b"),
    "dpcr:ncm": ("#5f8f3a", "#bde08f"),
    "mean-shift": ("#a0522d", "#e8a57c"),
    "frozen": ("#c04f63", "#f28c9d"),
    "stop-at-departure": ("#8f3550", "#d9748f"),
    "remaining-mean": ("#7a4b2a", "#c99a75"),
    "oracle-train": ("#3d434c", "#d6dae0"),
    "oracle-train:outward": ("#565d68", "#c0c6ce"),
    "oracle-train:duo": ("#4a3f52", "#cfc4d8"),
    "oracle": ("#6b727c", "#a9b0ba"),
    "live": ("#8b929c", "#868d97"),
    "live:duo": ("#94879e", "#8a7f93"),
    "fedavg:live": ("#b08968", "#a58a75"),
}
_MORE = (
    ("#6a3d9a", "#b794f0"),
    ("#a3420f", "#f0a27a"),
    ("#4d7c0f", "#a3d65c"),
    ("#9d174d", "#f48fb9"),
    ("#0e7490", "#67d3ee"),
    ("#854d0e", "#e3b34f"),
)
_DASHES = {
    "oracle-train": "7 4",
    "oracle-train:outward": "7 2 2 2",
    "oracle-train:duo": "7 2",
    "live:duo": "1.5 2",
    "oracle": "3 3",
    "live": "1.5 3.5",
    "fedavg:live": "1.5 3.5",
    "sdc:all": "8 3",
    "ldc:all": "8 3",
    "dpcr:ncm": "8 3",
    "stop-at-departure": "5 3",
    "mpt:outward": "5 2",
    "mpt:in-span": "3 2",
    "mpt:stored-residual": "8 2 2 2",
    "mpt:predicted": "2 2",
    "mpt:measured": "5 2",
    "mpt:trained": "3 2",
}
_READOUT_DASHES = ("", "4 2", "1.5 2", "6 2 1.5 2")
MARKS = ("circle", "square", "triangle", "diamond", "down", "plus")


@dataclass(frozen=True)
class SeriesStyle:
    """A row as the page shows it.

    Attributes:
        index: of the row, which is its class in the page's style.
        series: the method and its readout.
        label: the method's name, with the readout where the method has several.
        about: what the method does, in a line; empty where nobody has said.
        kind: "mpt", "method" or "reference".
        light, dark: colours on a light and on a dark page.
        dash: of its line, "" for a solid one.
        width: of its line.
        mark: of its points.
    """

    index: int
    series: Series
    label: str
    kind: str
    light: str
    dark: str
    dash: str
    width: float
    mark: str
    about: str = ""


def kind_of(method: str) -> str:
    """The MPT family, a reference, or any other method."""
    if method in REFERENCES:
        return "reference"
    return "mpt" if method == "mpt" or method.startswith(("mpt-", "mpt:", "mpt(")) else "method"


def styles_of(rows: Sequence[Series], about: Mapping[str, str] | None = None) -> dict[Series, SeriesStyle]:
    """How each row looks; a method that comes with MPT always has the same colour."""
    own = [name for name in dict.fromkeys(row.method for row in rows) if name not in _COLOURS]
    made = {}
    for index, row in enumerate(rows):
        siblings = [other.readout for other in rows if other.method == row.method]
        light, dark = _COLOURS.get(row.method) or _MORE[own.index(row.method) % len(_MORE)]
        dash = _DASHES.get(row.method, "")
        if row.method in own:
            dash = _READOUT_DASHES[own.index(row.method) // len(_MORE) % len(_READOUT_DASHES)]
        if siblings.index(row.readout):
            dash = _READOUT_DASHES[siblings.index(row.readout) % len(_READOUT_DASHES)]
        kind = kind_of(row.method)
        made[row] = SeriesStyle(
            index=index,
            series=row,
            label=f"{row.method} · {row.readout}" if len(siblings) > 1 else row.method,
            kind=kind,
            light=light,
            dark=dark,
            dash=dash,
            width=3 if row.method == "mpt" else 2.2 if row.method in ("mpt-lite", "mpt-x") else 1.6,
            mark="circle" if row.method == "mpt" else MARKS[index % len(MARKS)],
            about=(about or {}).get(row.method, ""),
        )
    return made
