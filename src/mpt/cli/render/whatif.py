"""`mpt whatif` as text: a summary, the classes, vehicles and groups in danger, and the line for `watch`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click
from rich.cells import cell_len
from rich.table import Table

from mpt.cli.render import plain_console
from mpt.fleet import whatif as tables
from mpt.tracking.coverage import Coverage
from mpt.tracking.errors import FleetError
from mpt.tracking.settings import TrackerSettings

_PROSE = 80
_WIDEST = 1000
_LONGEST = 40


def print_whatif(
    coverage: Coverage, names: Sequence[str], held: Sequence[tables.Held], watch_share: float, most: int | None
) -> None:
    """Everything, at most so many rows of each table."""
    found = tables.dangers(coverage, names, watch_share, losing=True)
    printer = _Printer(most)
    _print_summary(printer, coverage, held, found, watch_share)
    _print_classes(printer, held)
    _print_vehicles(printer, found)
    _print_groups(printer, tables.joint_groups(coverage, names, held, watch_share))
    _print_alike(printer, "class", tables.alike_classes(coverage, names))
    _print_alike(printer, "vehicle", tables.alike_vehicles(coverage))
    _print_watch(printer, coverage, tables.to_watch(coverage, names, watch_share), held, watch_share)


@dataclass(frozen=True)
class _Printer:
    """Prints at most so many rows, names cut and few of them in a cell; where `most` is None, everything."""

    most: int | None

    def name(self, name: str) -> str:
        """A name; a long one without its middle, since ids often begin alike."""
        if self.most is None or len(name) <= _LONGEST:
            return name
        half = (_LONGEST - 3) // 2
        return f"{name[:half]}...{name[-half:]}"

    def names(self, names: Sequence[str], room: int = _LONGEST) -> str:
        """As many of the names as fit."""
        return self.few([self.name(name) for name in names], room)

    def few(self, texts: Sequence[str], room: int) -> str:
        """As many of the texts as fit into so many columns, at least one, and how many more there are."""
        for kept in range(1, len(texts) if self.most is not None else 1):
            rest = f" and {len(texts) - kept:,} more"
            if cell_len(", ".join(texts[: kept + 1]) + (rest if kept + 1 < len(texts) else "")) > room:
                return ", ".join(texts[:kept]) + rest
        return ", ".join(texts)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], of: str) -> None:
        """A table as wide as the terminal; elsewhere as wide as it is, for other programs to read."""
        if not rows:
            return
        table = Table(box=None, pad_edge=False)
        for column in columns:
            number = column.startswith(">")
            table.add_column(column.lstrip(">"), justify="right" if number else "left", overflow="fold", no_wrap=number)
        for row in rows[: self.most]:
            table.add_row(*row)
        click.echo()
        console = plain_console()
        (console if console.is_terminal else plain_console(width=_WIDEST)).print(table)
        self.left_out(len(rows), of)

    def left_out(self, rows: int, of: str) -> None:
        """Say how many rows were not printed."""
        if self.most is not None and rows > self.most:
            _say(f"and {rows - self.most:,} more {_plural(rows - self.most, of)}: --all prints them, --json has them")


def _print_summary(
    printer: _Printer,
    coverage: Coverage,
    held: Sequence[tables.Held],
    found: Sequence[tables.Danger],
    watch_share: float,
) -> None:
    vehicles, idle = len(coverage.vehicles), len(coverage.vehicles) - tables.holders(coverage)
    without = f" ({idle:,} without samples)" if idle else ""
    totals = (_many(len(held), "class"), _many(int(coverage.totals.sum()), "sample"))
    _say(f"{_many(vehicles, 'vehicle')}{without}, {', '.join(totals)}")

    def numbers(title: str, lines: Sequence[tuple[int, str, Sequence[str]]]) -> None:
        _say(title)
        for number, text, names in lines:
            if number:
                line = f"{number:>9,}  {text}"
                click.echo(f"{line}: {printer.names(names, _PROSE - len(line) - 2)}" if names else line)

    vanish, share = sum(bool(danger.vanish) for danger in found), f"{100 * watch_share:g}%"
    rare = f"would make a class rare: at least {share} of it would go"
    numbers(
        "Vehicles, by what their departure would do:",
        [
            (vanish, "would make a class vanish", ()),
            (len(found) - vanish, rare, ()),
            (vehicles - len(found), "would make no class vanish or rare", ()),
        ],
    )
    by_size = dict[int, list[str]]()
    for one in held:
        by_size.setdefault(len(one.vehicles) if one.samples else -1, []).append(one.name)
    spread_out, empty = by_size.pop(0, []), by_size.pop(-1, [])
    few = [(len(names), f"on {_many(size, 'vehicle')}", names) for size, names in by_size.items()]
    numbers(
        f"Classes, by the fewest vehicles that hold at least {share} of them:",
        [*few, (len(spread_out), "on more vehicles", ()), (len(empty), "without samples", empty)],
    )


def _print_classes(printer: _Printer, held: Sequence[tables.Held]) -> None:
    rows = [
        (
            printer.name(one.name),
            f"{one.samples:,}",
            ", ".join(map(printer.name, one.vehicles)),
            _percent(one.share),
            f"{one.remaining:,}",
            f"{len(one.also):,}",
        )
        for one in held
        if one.vehicles
    ]
    printer.table(("class", ">samples", "hangs on", ">share", ">remain", ">others lost"), rows, "class")


def _print_vehicles(printer: _Printer, found: Sequence[tables.Danger]) -> None:
    def rare(danger: tables.Danger) -> list[str]:
        lost = [x for x in danger.losses if x.verdict == "becomes rare"]
        return [f"{printer.name(x.name)} ({x.remaining:,} of {x.count + x.remaining:,} remain)" for x in lost]

    rows = [(printer.name(d.vehicle), printer.names(d.vanish), printer.few(rare(d), 60)) for d in found]
    printer.table(("if this vehicle left", "would vanish", "would become rare"), rows, "vehicle")


def _print_groups(printer: _Printer, groups: Sequence[tables.Group]) -> None:
    rows = [
        (", ".join(map(printer.name, g.vehicles)), printer.names(g.vanish), printer.names(g.become_rare))
        for g in groups
        if len(g.vanish) + len(g.become_rare) > 1
    ]
    printer.table(("if these left together", "would vanish", "would become rare"), rows, "group")


def _print_alike(printer: _Printer, of: str, found: Sequence[tables.Alike]) -> None:
    if not found:
        return
    click.echo()
    word, here, where = ("id", "", "")
    if of == "class":
        word, here, where = ("name", ", here and in the fleet", "the vehicles' data and ")
    _say(f"Is this one {of}? These {word}s count as different{here}:")
    for one in found[: printer.most]:
        _say("  " + ", ".join(f"{printer.name(name)!r} ({_many(samples, 'sample')})" for name, samples in one))
    printer.left_out(len(found), "such line")
    _say(f"If so, give it one {word} in {where}this table, and run this again.")


def _print_watch(
    printer: _Printer, coverage: Coverage, watch: tables.ToWatch, held: Sequence[tables.Held], watch_share: float
) -> None:
    click.echo()
    if tables.holders(coverage) < 2:
        _say("Nothing to watch: fewer than two vehicles have samples, so nobody would stay.")
        return
    if watch.line:
        _say("To paste into -c '...' of flwr run, or into its TOML file:")
        click.echo(watch.line)
    elif not (watch.crowded or watch.unwritable):
        _say("Nothing to watch: no class hangs on one vehicle.")
    if watch.crowded and not watch.most:
        _say("Nothing can be watched: with one class there is no reference class.")
    elif watch.crowded:
        _say(
            f"By default at most {watch.most:,} of {_many(len(held), 'class')} may be watched: the others are the "
            f"reference classes. Those with the largest share are watched; left out: "
            f"{printer.names(watch.crowded, 2 * _PROSE)}."
        )
    if watch.unwritable:
        listed = printer.names([repr(name) for name in watch.unwritable], 2 * _PROSE)
        _say(f"Left out, for a comma or a quotation mark in the name: {listed}. Rename it.")
    if any(len(one.vehicles) > 1 for one in held):
        _say("watch is for classes on one vehicle: it does not cover those on several.")
    _say_share(watch_share)


def _say_share(watch_share: float) -> None:
    default = TrackerSettings.watch_share
    if watch_share == default:
        return
    try:
        TrackerSettings(num_classes=2, dim=1, watch_share=watch_share)
    except FleetError as error:
        _say(f"The server would refuse this share: {error}.")
    else:
        _say(f"The server's share is {default} by default; watch-share={watch_share} sets it to this one.")


def dumped(data: dict[str, Any]) -> str:
    """JSON with a line for each entry of a list, which is quicker than indenting and can be searched by line."""

    def one(value: Any) -> str:
        if not isinstance(value, list) or not value:
            return json.dumps(value)
        return "[\n    " + ",\n    ".join(map(json.dumps, value)) + "\n  ]"

    return "{\n  " + ",\n  ".join(f"{json.dumps(key)}: {one(value)}" for key, value in data.items()) + "\n}"


def _say(sentence: str) -> None:
    """A sentence in at most 80 columns."""
    console = plain_console()
    plain_console(width=min(console.width, _PROSE) if console.is_terminal else _PROSE).print(sentence)


def _many(number: int, of: str) -> str:
    return f"{number:,} {_plural(number, of)}"


def _plural(number: int, of: str) -> str:
    return of if number == 1 else f"{of}es" if of.endswith("s") else f"{of}s"


def _percent(share: float) -> str:
    """In whole percent; neither 0% nor 100% for what is not."""
    if 0 < share < 0.005:
        return "<1%"
    return ">99%" if 0.995 <= share < 1 else f"{share:.0%}"
