"""What the rare class is confused with, and what the other classes pay."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mpt.base.seeds import Series
from mpt.base.text import score, signed
from mpt.pages.html import DASH, key
from mpt.pages.styles import SeriesStyle
from mpt.pages.svg import esc, width_of
from mpt.runs.reader import Run
from mpt.runs.summary import Summary

Matrix = NDArray[np.int64]
TOP = 5
MOST_COLUMNS = 10
_BAR = 265.0
"""Pixels of a bar on a phone."""
_ROOM_FOR_NUMBER = 0.1


def moments(run: Run) -> dict[str, int]:
    """The rounds that `confusion.csv` has at or before the departure, and after it: the last of each."""
    rounds = {number for _, number in run.confusion}
    before = [number for number in rounds if number <= run.depart_at]
    after = [number for number in rounds if number > run.depart_at]
    return {**({"before": max(before)} if before else {}), **({"after": max(after)} if after else {})}


def confusions(run: Run, looks: dict[Series, SeriesStyle]) -> str:
    """For each row the fractions of the rare class's test samples by what they were taken for."""
    when = moments(run)
    rows = [row for row in looks if any((row, number) in run.confusion for number in when.values())]
    tops = _taken_for(run, rows, list(when.values()))
    names = [run.rare_name, *(run.classes[c] for c in tops)]
    shades = ["rare", *(f"c{i}" for i in range(len(tops)))]
    if len(run.classes) > 1 + len(tops):
        names.append("others")
        shades.append("rest")
    patches = "".join(
        f'<span><i class="patch {shade}"></i>{esc(name)}</span>' for name, shade in zip(names, shades, strict=True)
    )
    heads = "".join(f"<span>{esc(_moment(run, moment, number))}</span>" for moment, number in when.items())
    lines = []
    for row in rows:
        bars = []
        for number in when.values():
            matrix = run.confusion.get((row, number))
            bar = _bar(run, matrix, tops, names, shades, number)
            bars.append(f'<div class="moment"><span class="when">round {number}</span>{bar}</div>')
        look = looks[row]
        lines.append(
            f'<div class="confusion series" data-s="s{look.index}"><div class="who">{key(look)}</div>'
            f"{''.join(bars)}</div>"
        )
    return (
        f'<div class="patches">{patches}</div><div class="confusions n{len(when)}">'
        f'<div class="confusion heads"><span></span>{heads}</div>{"".join(lines)}</div>'
    )


def _moment(run: Run, moment: str, number: int) -> str:
    if moment == "after":
        return f"after, round {number}"
    return f"before, round {number}" + (" (the departure)" if number == run.depart_at else "")


def _taken_for(run: Run, rows: Sequence[Series], rounds: Sequence[int]) -> list[int]:
    """The classes that rare samples are most often taken for, over all rows, in the order of the classes."""
    total = np.zeros(len(run.classes))
    for row in rows:
        for number in rounds:
            matrix = run.confusion.get((row, number))
            if matrix is not None and matrix[run.rare].sum():
                total += matrix[run.rare] / matrix[run.rare].sum()
    total[run.rare] = 0
    order = [int(c) for c in np.argsort(-total, kind="stable") if c != run.rare and total[c] > 0]
    return sorted(order[:TOP])


def _bar(
    run: Run, matrix: Matrix | None, tops: Sequence[int], names: Sequence[str], shades: Sequence[str], number: int
) -> str:
    present = 0 if matrix is None else int(matrix[run.rare].sum())
    if matrix is None or not present:
        return f'<div class="bar empty">{DASH}</div>'
    shares = [float(matrix[run.rare, c]) / present for c in (run.rare, *tops)]
    shares += [max(0.0, 1 - sum(shares))] * (len(names) - len(shares))
    parts, told = [], []
    for share, name, shade in zip(shares, names, shades, strict=True):
        if share > 0.0005:
            shown = score(share, 2)
            fits = share * _BAR >= 1.05 * width_of(f"{name} {shown}")
            inside = f"{esc(name)} {shown}" if fits else shown if share >= _ROOM_FOR_NUMBER else ""
            parts.append(
                f'<span class="{shade}" style="width:{100 * share:.2f}%" title="{esc(name)} {shown}">{inside}</span>'
            )
            told.append(f"{name} {shown}")
    about = f"round {number}: taken for {', '.join(told)}"
    return f'<div class="bar" role="img" aria-label="{esc(about)}">{"".join(parts)}</div>'


def _recalls(matrix: Matrix | None, classes: int) -> NDArray[np.float64]:
    """(C,), NaN where a class has no test samples."""
    if matrix is None:
        return np.full(classes, np.nan)
    present = matrix.sum(axis=1)
    return np.where(present > 0, matrix.diagonal() / np.maximum(present, 1), np.nan)


def others_table(run: Run, summaries: Sequence[Summary], looks: dict[Series, SeriesStyle]) -> str:
    """Recall of the other classes at the last round, its change since the departure, and the loss to oracle-train."""
    when, count = moments(run), len(run.classes)
    last = when.get("after", when.get("before", 0))
    now = {s.series: _recalls(run.confusion.get((s.series, last)), count) for s in summaries}
    start = when["before"] if "after" in when and "before" in when else None
    then = {s.series: _recalls(run.confusion.get((s.series, start or 0)), count) for s in summaries}
    chosen = _chosen(run, list(now.values()))
    best = {s.series.readout: s for s in summaries if s.series.method == "oracle-train"}
    reference = next(iter(best.values()), None)
    head = '<th scope="col" class="sum">all others</th>'
    head += '<th scope="col" class="gap">against oracle-train</th>' if reference else ""
    head += "".join(f'<th scope="col"><span>{esc(run.classes[c])}</span></th>' for c in chosen)
    lines = []
    for s in summaries:
        cells = f'<td class="sum">{score(s.others.mean)}</td>'
        if reference:
            against = best.get(s.series.readout, reference)
            cells += f'<td class="gap">{"" if against is s else signed(s.others.mean - against.others.mean)}</td>'
        cells += "".join(_heat(now[s.series][c], then[s.series][c]) for c in chosen)
        look = looks[s.series]
        lines.append(f'<tr class="series" data-s="s{look.index}"><th scope="row">{key(look)}</th>{cells}</tr>')
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Recall of the other classes"><table class="heat">'
        f'<thead><tr><th scope="col" class="left">method</th>{head}</tr></thead><tbody>{"".join(lines)}</tbody>'
        "</table></div>"
    )


def _chosen(run: Run, recalls: Sequence[NDArray[np.float64]]) -> list[int]:
    """The other classes, or where there are many those in which the rows differ most."""
    others = [c for c in range(len(run.classes)) if c != run.rare]
    if len(others) <= MOST_COLUMNS:
        return others
    table = np.nan_to_num(np.asarray(recalls))
    spread = table.max(axis=0) - table.min(axis=0)
    return sorted(sorted(others, key=lambda c: -float(spread[c]))[:MOST_COLUMNS])


def _heat(now: float, then: float) -> str:
    if np.isnan(now):
        return f"<td>{DASH}</td>"
    if np.isnan(then):
        return f"<td>{score(now, 2)}</td>"
    change = now - then
    tint = "loss" if change < 0 else "gain"
    strength = min(1.0, abs(change) / 0.4)
    return f'<td class="{tint}" style="--h:{strength:.2f}">{score(now, 2)}<small>{signed(change, 2)}</small></td>'
