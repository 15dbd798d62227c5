"""`write_scenario_report`: the page of a scenario's run, put together from its sections."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpt.base.files import write_atomically
from mpt.base.seeds import Series, curve
from mpt.methods import METHODS
from mpt.pages import lanes as drawn
from mpt.pages.document import WIDE, document
from mpt.pages.html import figure, legend, pairs
from mpt.pages.lines import NARROW, Chart, Line
from mpt.pages.styles import SeriesStyle, styles_of
from mpt.pages.svg import Frame, esc, n, text, width_of
from mpt.report import scenario_classes as strips
from mpt.report.scenario_evidence import evidence_section
from mpt.report.scenario_files import ScenarioFiles, read_scenario_files
from mpt.report.scenario_table import decisions_table, summary_table
from mpt.report.scenario_words import called, capital, notes, title, verdict
from mpt.runs.errors import RunError
from mpt.scenario import lanes as stays_of
from mpt.version import MADE_BY

MOST_SEEDS = 10
"""So many seeds are drawn beside the first."""
_HALF = 500
_NAME = 190.0
"""Room for a class's name above a chart."""
_ORDER = {"reference": 0, "method": 1, "mpt": 2}
_STYLE = (
    drawn.STYLE
    + strips.STYLE
    + """
.about { color: var(--soft); margin: -8px 0 20px; }
.strips { margin-top: 4px; }
.decisions td { text-align: left; } .decisions td.why { white-space: normal; min-width: 260px; }
.decisions td:first-child, .decisions th:first-child { text-align: right; padding-left: 0; }
"""
)


def is_scenario(folder: Path) -> bool:
    """Whether `mpt run --scenario` has written there."""
    return any(folder.glob("presence-*.csv"))


@dataclass(frozen=True)
class AbsenceChart(Chart):
    """F1 of a class by round, with the rounds shaded in which it is absent, in place of one departure."""

    absences: tuple[tuple[int, int], ...] = ()

    def _y_ticks(self) -> tuple[tuple[float, ...], bool]:
        """The same for all classes."""
        return (0.0, 0.2, 0.4, 0.6, 0.8, 1.0), False

    def _departure(self, frame: Frame) -> str:
        parts, free = [], frame.left
        for first, last in self.absences:
            left, right = frame.x(first - 0.5), min(frame.x(last + 0.5), frame.width)
            parts.append(
                f'<rect class="away" x="{n(left)}" y="{n(frame.top)}" width="{n(right - left)}" '
                f'height="{n(frame.bottom - frame.top)}"/>'
            )
            room = not parts[1:] or right - left > width_of("absent")
            if room and left >= free and left + width_of("absent") < frame.width:
                parts.append(text(left, frame.top - 7, "absent", "note"))
                free = left + width_of("absent") + 12
        return "".join(parts)


def write_scenario_report(folder: Path) -> Path:
    """Make `report.html` from the files of a scenario's run under `folder`; its path.

    Raises `RunError` where a file is missing or broken; an older page then stays as it is.
    """
    page, path = render(read_scenario_files(folder), evidence_section(folder)), folder / "report.html"
    try:
        write_atomically(path, page.encode())
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error.strerror}), should be a file in a folder of yours") from None
    return path


def render(files: ScenarioFiles, evidence: str = "") -> str:
    """The page as text; the same files give the same page. `evidence` is a section of its own."""
    rows = [Series(line.method, "") for line in files.summary]
    look = styles_of(rows, {row.method: _about(row.method) for row in rows})
    charts = {f"f1-{i}": chart for i, chart in enumerate(_charts(files, look))}
    first = [_header(files), _presence(files), _f1(files, look, charts)]
    sections = [*first, _summary(files, look), evidence, _settings(files)]
    return document(title(files), sections, charts, list(look.values()), _STYLE)


def _about(method: str) -> str:
    name = method.partition("(")[0]
    return METHODS.builtin[name].about if name in METHODS else "of your own"


def _header(files: ScenarioFiles) -> str:
    presence = files.presences[files.seeds[0]]
    facts = [
        f"{files.manifest.get('dataset', files.config.get('dataset', ''))}, {len(files.names)} classes",
        str(files.config.get("backbone", "")),
        f"{len(presence.vehicles)} vehicles",
        f"{presence.rounds} rounds",
        "1 seed" if len(files.seeds) == 1 else f"{len(files.seeds)} seeds",
    ]
    about = str(files.manifest.get("about", ""))
    told = f'<p class="about">{esc(about)}</p>' if about else ""
    sentences = "".join(f'<p class="verdict">{esc(sentence)}</p>' for sentence in verdict(files))
    warnings = "".join(f'<p class="warning" role="note">{esc(sentence)}</p>' for sentence in notes(files))
    return (
        f'<header><p class="over">Missing prototype tracking · a scenario</p><h1>{esc(title(files))}</h1>{told}'
        f'{sentences}<p class="facts">{esc(" · ".join(fact for fact in facts if fact))}</p>{warnings}</header>'
    )


def _presence(files: ScenarioFiles) -> str:
    first, *others = files.seeds
    several = f" Of {len(files.seeds)} seeds, this is {first}; the others are below." if others else ""
    more = "".join(
        f"<details><summary>Seed {seed}</summary>{_timeline(files, seed)}</details>" for seed in others[:MOST_SEEDS]
    )
    return (
        "<section><h2>Who was there, and what the server made of it</h2><p>A lane a vehicle; below, on the same "
        "rounds, the classes that were absent or of which the server took a deposit. The server knows the lanes only "
        f"from answers and goodbyes.{several}</p>{_timeline(files, first)}{more}</section>"
    )


def _timeline(files: ScenarioFiles, seed: int) -> str:
    """The lanes and the classes of a seed, each drawn for a wide screen and for a phone."""
    presence, chosen = files.presences[seed], files.concerned(seed)
    mine = _lanes(files, seed)
    decisions = [one for one in files.decisions if one.seed == seed]
    held = [strips.Strip.of(c, files.holder(seed, c), files.classes[seed][c], decisions) for c in chosen]
    named = [lane for lane in mine if lane.holds or len(mine) <= drawn.MANY]
    names = [name for lane in named for name in (lane.name, f"holds {', '.join(lane.holds)}" if lane.holds else "")]
    names += [name for one in held for name in (one.name, f"on {one.holder}")]
    carry = files.config.get("carry_share")
    carry = float(carry) if isinstance(carry, int | float) and 0 <= carry <= 1 else None
    axes = {kind: drawn.axis_for(width, presence.rounds, names) for kind, width in _WIDTHS.items()}
    lanes = "".join(
        f'<div class="{kind}">{drawn.draw_lanes(mine, axis, presence.labels)}</div>' for kind, axis in axes.items()
    )
    key = drawn.lanes_key(silent=bool(presence.silent.any()), goodbyes=bool(presence.goodbye.any()))
    labels = presence.labels
    when = f" Round 1 is {esc(labels[0])}, round {len(labels)} {esc(labels[-1])}." if labels else ""
    shown = figure(key + lanes, f"The names of holders stand with the classes that are concentrated on them.{when}")
    if not held:
        return shown
    below = "".join(f'<div class="{kind}">{strips.draw_strips(held, axis, carry)}</div>' for kind, axis in axes.items())
    told = (
        "For each class the server&rsquo;s decisions, the share of its samples on vehicles that are there, and what "
        "the server does: it measures the class&rsquo;s prototype, has a deposit of it, or also holds what remains "
        "of it out of training. A mark&rsquo;s reason shows under the pointer; all stand in the table of decisions."
    )
    return shown + figure(strips.strips_key(held, carry is not None) + below, told, "What became of the classes")


_WIDTHS = {"wide": float(WIDE), "narrow": float(drawn.PHONE)}


def _lanes(files: ScenarioFiles, seed: int) -> list[drawn.Lane]:
    presence = files.presences[seed]
    holds: dict[str, list[str]] = {}
    for name in files.absent(seed):
        holds.setdefault(files.holder(seed, name), []).append(name)
    stays: dict[str, list[tuple[int, int]]] = {}
    for vehicle, first, last in stays_of(presence):
        stays.setdefault(vehicle, []).append((first, last))
    return [
        drawn.Lane(
            vehicle,
            tuple(holds.get(vehicle, ())),
            tuple(stays.get(vehicle, ())),
            tuple(int(row) + 1 for row in presence.silent[:, number].nonzero()[0]),
            tuple(int(row) + 1 for row in presence.goodbye[:, number].nonzero()[0]),
        )
        for number, vehicle in enumerate(presence.vehicles)
    ]


def _charts(files: ScenarioFiles, look: dict[Series, SeriesStyle]) -> list[AbsenceChart]:
    """Of each class that was absent; over all seeds where its absences are the same in all of them."""
    absent = {seed: files.absent(seed) for seed in files.seeds}
    made: list[AbsenceChart] = []
    for name, methods in files.f1.items():
        seeds = [seed for seed in files.seeds if name in absent[seed]]
        first = absent[seeds[0]][name]
        if any(absent[seed].get(name) != first for seed in files.seeds):
            seeds = seeds[:1]
        rows = sorted(
            (row for row in look if row.method in methods), key=lambda r: (_ORDER[look[r].kind], r.method == "mpt")
        )
        lines = [Line.of(look[row], curve(p for p in methods[row.method] if p[0] in seeds)) for row in rows]
        of_one = f", seed {seeds[0]}" if len(seeds) < len(files.seeds) else ""
        made.append(
            AbsenceChart(
                name=f"f1-{len(made)}",
                label=f"F1 of {drawn.fitted(called(name), _NAME)}{of_one}",
                lines=tuple(line for line in lines if line.curve.points),
                depart_at=0,
                last=files.presences[seeds[0]].rounds,
                note=f"is absent in {strips.in_rounds(first)}",
                ceiling=1.0,
                absences=tuple(first),
            )
        )
    return made


def _f1(files: ScenarioFiles, look: dict[Series, SeriesStyle], charts: dict[str, AbsenceChart]) -> str:
    if not charts:
        return ""
    width, height = (_HALF, 310.0) if len(charts) > 1 else (WIDE, 360.0)
    shown = []
    for chart, name in zip(charts.values(), files.f1, strict=True):
        both = (
            f'<div class="wide">{chart.draw(width, height, labels=False)}</div>'
            f'<div class="narrow">{chart.draw(NARROW, 290, labels=False)}</div>'
        )
        shown.append(f"<figure>{both}<figcaption>{esc(capital(called(name)))} {esc(chart.note)}.</figcaption></figure>")
    grid = f'<div class="two">{"".join(shown)}</div>' if len(shown) > 1 else shown[0]
    together = any(len(line.curve.seeds) > 1 for chart in charts.values() for line in chart.lines)
    keys = legend(list(look.values()), singles=together)
    band = " Bands are ± one deviation over seeds." if together else ""
    if len(files.seeds) > 1 and not together:
        band = " Absences differ between seeds, so of each class the first seed is shown in which it was absent."
    return (
        "<section><h2>How well absent classes are recognised</h2><p>F1 on the test samples by round, of each class "
        f"that was absent some time. A name switches its row off and on all over the page.{band}</p>{keys}{grid}"
        "</section>"
    )


def _summary(files: ScenarioFiles, look: dict[Series, SeriesStyle]) -> str:
    seeds = "; mean ± deviation over seeds" if len(files.seeds) > 1 else ""
    counts = sorted({line.pairs for line in files.summary})
    number = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}" if counts else "0"
    told = (
        f"A pair is a class and a round that was read out in which the class is absent by the truth; there are "
        f"{number}, the same for all rows{seeds}. Bytes are those of all vehicles&rsquo; reports in a "
        "round. A heading sorts."
    )
    table = figure(summary_table(files.summary, look), told)
    return f"<section><h2>Summary</h2>{table}{_meanings(look)}{decisions_table(files)}</section>"


def _meanings(look: dict[Series, SeriesStyle]) -> str:
    items = "".join(f"<div><dt>{esc(k.series.method)}</dt><dd>{esc(k.about)}</dd></div>" for k in look.values())
    return f'<details><summary>What the rows are</summary><dl class="meanings">{items}</dl></details>'


def _settings(files: ScenarioFiles) -> str:
    settings = [(key, _plain(value)) for key, value in files.config.items()]
    apart = {"classes", "lost_with", "vehicles", "about", "pairs"}
    known = [(key, _plain(value)) for key, value in files.manifest.items() if key not in apart]
    return (
        f"<section><h2>Settings</h2>{pairs(settings)}<h3>Where the numbers come from</h3>{pairs(known)}"
        "<h3>To repeat it</h3><pre>mpt run --config config.toml</pre></section>"
        f"<footer>Made by mpt report ({MADE_BY}) from the presence-*.csv, classes.csv, decisions.csv, metrics.csv and "
        "summary.csv which lie beside this page.</footer>"
    )


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_plain(one)}" for key, one in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(_plain, value))
    return ("yes" if value else "no") if isinstance(value, bool) else "not known" if value is None else str(value)
