"""`mpt whatif --scenario` as text: who would be there, and the classes that would be absent, in 80 columns."""

import click
from rich.table import Table

from mpt.base.errors import MptError
from mpt.cli.render import plain_console
from mpt.fleet.whatif_scenario import ClassAbsence, Forecast
from mpt.scenario import text_lanes

_WIDTH = 80
_LONGEST = 20


def print_forecast(found: Forecast, most: int | None) -> None:
    """The scenario, its lanes where they are few, and a row an absence, at most so many of them."""
    presence, scenario = found.presence, found.scenario
    numbers = (
        _many(len(presence.vehicles), "vehicle"),
        _many(presence.rounds, "round"),
        _many(len(found.names), "class"),
        f"seed {found.seed}",
    )
    _say(f"Scenario {scenario.name}: {', '.join(numbers)}")
    if scenario.about:
        _say(scenario.about)
    if most is None or len(presence.vehicles) <= most:
        _print_lanes(found)
    click.echo()
    if not found.absences:
        _say("No class would be absent: whenever a holder is away, others carry its classes.")
        return
    for_good = {one.name for one in found.absences if one.back is None}
    _say(
        f"{_many(len(found.lost), 'class')} of {len(found.names):,} would be absent at some time, "
        f"{len(for_good) or 'none'} of them without the holder's return; that makes {_many(found.pairs, 'pair')} of a "
        "class and a round."
    )
    click.echo()
    _print_table(found, most)
    click.echo()
    _say(
        f"Absent: its holder is away, and at most {found.carry_share:.0%} of the class is on vehicles that are there. "
        "Stays: the largest share that is, meanwhile."
    )


def _print_lanes(found: Forecast) -> None:
    try:
        lanes = text_lanes(found.presence, _WIDTH)
    except MptError:
        return  # a name is too long for lanes
    click.echo()
    click.echo(lanes)
    signs = ["━ there", "· away"]
    signs += ["x does not answer"] if found.presence.silent.any() else []
    signs += ["> says goodbye"] if found.presence.goodbye.any() else []
    _say(", ".join(signs))


def _print_table(found: Forecast, most: int | None) -> None:
    labelled = any(found.presence.labels)
    table = Table(box=None, pad_edge=False)
    for column in ("class", "with", "absent in", *(["when"] if labelled else []), ">for", ">stays", "back", "goodbye"):
        number = column.startswith(">")
        table.add_column(column.lstrip(">"), justify="right" if number else "left", overflow="fold", no_wrap=number)
    for one in found.absences[:most]:
        table.add_row(*_row(one, labelled))
    plain_console(width=_WIDTH).print(table)
    left = 0 if most is None else len(found.absences) - most
    if left > 0:
        _say(f"and {_many(left, 'more absence')}: --all prints them, --json has them")


def _row(one: ClassAbsence, labelled: bool) -> list[str]:
    rounds = f"round {one.first}" if one.first == one.last else f"rounds {one.first} to {one.last}"
    when = [one.labels[0] if one.first == one.last else f"{one.labels[0]} to {one.labels[1]}"] if labelled else []
    back = "no" if one.back is None else f"round {one.back}"
    length, stays = str(one.rounds), _percent(one.stays)
    said = "yes" if one.announced else "no"
    return [_short(one.name), f"{_short(one.vehicle)}, {_percent(one.held)}", rounds, *when, length, stays, back, said]


def _short(name: str) -> str:
    """A long name without its middle, since ids often begin alike."""
    half = (_LONGEST - 3) // 2
    return name if len(name) <= _LONGEST else f"{name[:half]}...{name[-half:]}"


def _percent(share: float) -> str:
    """In whole percent; neither 0% nor 100% for what is not."""
    if 0 < share < 0.005:
        return "<1%"
    return ">99%" if 0.995 <= share < 1 else f"{share:.0%}"


def _say(sentence: str) -> None:
    plain_console(width=_WIDTH).print(sentence)


def _many(number: int, of: str) -> str:
    return f"{number:,} {of if number == 1 else f'{of}es' if of.endswith('s') else f'{of}s'}"
