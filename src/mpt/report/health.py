"""What methods expected of themselves, beside how far off they were: errors that were stated without any label."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from mpt.core.health import VERDICTS
from mpt.methods import calibrated
from mpt.pages.html import DASH, figure
from mpt.pages.styles import SeriesStyle
from mpt.pages.svg import esc
from mpt.runs.reader import Run


class Stated(NamedTuple):
    """One method's statements over all seeds and rounds after the departure.

    Attributes:
        method: its name.
        expected: the stated error at the last round, mean over seeds.
        distance: the true distance to oracle-train's prototype there, mean over seeds; NaN where it is not known.
        within: the share of rounds in which the true distance was within the stated error; NaN likewise.
        verdicts: how often each was given, in the order of `VERDICTS`.
    """

    method: str
    expected: float
    distance: float
    within: float
    verdicts: tuple[int, ...]


def stated(run: Run) -> list[Stated]:
    """The statements of every method that made any."""
    distances = {(m["seed"], m["round"], m["method"]): m["prototype_distance"] for m in run.figures.metrics}
    made: dict[str, list[tuple[int, float, float, int]]] = {}
    for d in run.diagnostics:
        if (
            d["method"]
            and d["round"] > run.depart_at
            and d.get("expected_error") is not None
            and d.get("verdict") is not None
        ):
            distance = distances.get((d["seed"], d["round"], d["method"]))
            line = (d["round"], d["expected_error"], math.nan if distance is None else distance, int(d["verdict"]))
            made.setdefault(d["method"], []).append(line)
    found = []
    for method, lines in made.items():
        last = max(line[0] for line in lines)
        known = [(expected, distance) for _, expected, distance, _ in lines if not math.isnan(distance)]
        found.append(
            Stated(
                method,
                _mean([expected for number, expected, _, _ in lines if number == last]),
                _mean([distance for number, _, distance, _ in lines if number == last]),
                _mean([float(distance <= expected) for expected, distance in known]),
                tuple(sum(line[3] == v for line in lines) for v in range(len(VERDICTS))),
            )
        )
    return found


def health_table(run: Run, looks: Sequence[SeriesStyle]) -> str:
    """The statements of methods that are calibrated as a table; nothing where none of them made any."""
    found = [one for one in stated(run) if calibrated(one.method)]
    if not found:
        return ""
    order = [look.series.method for look in looks]
    rows = "".join(_line(one) for one in sorted(found, key=lambda one: order.index(one.method)))
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("expected", "true", "within", *VERDICTS))
    table = (
        '<div class="scroll" tabindex="0" role="region" aria-label="What the methods expected"><table>'
        f'<thead><tr><th scope="col" class="left">method</th>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )
    told = (
        "Without labels, a reconstruction states how far it may be from oracle-train&rsquo;s prototype: at the last "
        "round, beside how far it was; the share of rounds in which it was within that; and how often it called itself "
        "good, degraded or lost, unconfirmed where no remaining samples confirm that it is good, or disputed where "
        "they contradict the forecast. Only methods are shown whose statements were measured to hold."
    )
    return figure(table, told, "What the methods expected")


def _line(one: Stated) -> str:
    share = DASH if math.isnan(one.within) else f"{one.within:.0%}"
    cells = [_number(one.expected), _number(one.distance), share, *map(str, one.verdicts)]
    return f'<tr><th scope="row">{esc(one.method)}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def _number(value: float) -> str:
    return DASH if math.isnan(value) else f"{value:.2f}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
