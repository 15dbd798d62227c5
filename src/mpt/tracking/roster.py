"""Who is in the fleet: a state machine in which absence is not departure.

    (answers) -> present -> (does not answer) -> suspected -> (leaves, or more than `grace` rounds missed) -> departed
                    ^                                |                                                          |
                    +------- (answers again) --------+----------------------------------------------------------+

A vehicle is known by its id, a string: Flower's node id, say, or a public key.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from mpt.tracking.errors import FleetError

MemberState = Literal["present", "suspected", "departed"]
STATES: tuple[MemberState, ...] = ("present", "suspected", "departed")
LONGEST_ID = 1024

_EMPTY: Mapping[str, str] = {}


@dataclass(frozen=True)
class Decision:
    """One change, and why.

    Attributes:
        round: in which it was decided.
        what: joined, suspected, departed, returned, refused or failed, of a vehicle; watched, released, crowded,
            deposited, fallback, carried, lost, held-out, shadowed, approved, recovered, referenced, unreferenced or
            verdict, of classes.
        vehicle: whose doing it is; empty where it is nobody's.
        classes: those concerned.
        why: a sentence without its first capital and its full stop.
        name: what the vehicle is called, where that is known.
        class_names: what the classes are called, likewise.
    """

    round: int
    what: str
    vehicle: str = ""
    classes: tuple[int, ...] = ()
    why: str = ""
    name: str = ""
    class_names: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The decision as one line for a log."""
        who = f" vehicle {printable(titled(self.vehicle, self.name))}" if self.vehicle else ""
        classes = f" {printable(named(self.class_names or self.classes))}" if self.classes else ""
        return f"round {self.round}:{who}{classes} {self.what}: {printable(self.why)}"


@dataclass(frozen=True)
class Member:
    """A vehicle as the server sees it.

    Attributes:
        state: present, suspected or departed.
        since: the round in which it came into that state.
        seen: the last round in which it answered.
        missed: how many rounds in a row it has not answered since.
        name: what it is called, where that is known; it is known by its id.
    """

    state: MemberState
    since: int
    seen: int
    missed: int = 0
    name: str = ""


@dataclass(frozen=True)
class Roster:
    """All vehicles that ever answered, by id."""

    members: Mapping[str, Member] = field(default_factory=dict)

    def having(self, *states: MemberState) -> tuple[str, ...]:
        """The vehicles in one of these states, sorted."""
        return tuple(sorted(v for v, member in self.members.items() if member.state in states))

    def state(self, vehicle: str) -> MemberState | None:
        """Of a vehicle; None where it never answered."""
        member = self.members.get(vehicle)
        return None if member is None else member.state

    def name(self, vehicle: str) -> str:
        """Of a vehicle; empty where none is known."""
        member = self.members.get(vehicle)
        return "" if member is None else member.name


def advance(
    roster: Roster,
    round: int,
    answered: Collection[str],
    leaving: Collection[str] = (),
    *,
    grace: int,
    absent: Mapping[str, str] = _EMPTY,
    names: Mapping[str, str] = _EMPTY,
) -> tuple[Roster, tuple[Decision, ...]]:
    """The roster after a round, and what changed.

    Args:
        roster: before the round.
        round: its number.
        answered: vehicles whose answer was accepted.
        leaving: vehicles that announced that they leave; with an answer, this round is their last.
        grace: a vehicle is departed once it has missed more than so many rounds in a row.
        absent: why a vehicle did not answer, where that is known.
        names: what vehicles are called, where that is known; others keep the name they had.
    """
    if isinstance(leaving, str):
        raise FleetError(f"leaving: {leaving!r}, should be several vehicles, [{leaving!r}]")
    for vehicle in (*answered, *leaving):
        check_id(vehicle)
    members, decisions = dict(roster.members), list[Decision]()
    for vehicle in sorted({*members, *answered, *leaving}):
        before = members.get(vehicle)
        name = names.get(vehicle, roster.name(vehicle))
        if vehicle in answered:
            now, changes = _answered(before, round)
        elif before is None or before.state == "departed":
            if before is not None:
                members[vehicle] = replace(before, name=name)
            continue
        else:
            now, changes = _missed(before, round, grace, absent.get(vehicle, "it did not answer"))
        if vehicle in leaving:
            now = Member("departed", round, now.seen, now.missed)
            changes = [*(c for c in changes if vehicle in answered), ("departed", "it said that it leaves")]
        members[vehicle] = replace(now, name=name)
        decisions += [Decision(round, what, vehicle, (), why) for what, why in changes]
    return Roster(members), tuple(decisions)


def _answered(before: Member | None, round: int) -> tuple[Member, list[tuple[str, str]]]:
    if before is None:
        return Member("present", round, round), [("joined", "it answered for the first time")]
    if before.state == "present":
        return Member("present", before.since, round), []
    why = f"it was {before.state} since round {before.since} and answered again"
    return Member("present", round, round), [("returned", why)]


def _missed(before: Member, round: int, grace: int, why: str) -> tuple[Member, list[tuple[str, str]]]:
    missed = before.missed + 1
    if missed > grace:
        rounds = "1 round" if missed == 1 else f"{missed} rounds in a row"
        why = f"{why}; {rounds} missed, more than the grace of {grace}"
        return Member("departed", round, before.seen, missed), [("departed", why)]
    if before.state == "present":
        return Member("suspected", round, before.seen, missed), [("suspected", why)]
    return Member("suspected", before.since, before.seen, missed), []


def check_id(vehicle: object) -> None:
    """Refuse what cannot be a vehicle's id."""
    if not isinstance(vehicle, str) or not vehicle or len(vehicle) > LONGEST_ID or not _is_unicode(vehicle):
        shown = ascii(vehicle)[:40]
        raise FleetError(f"vehicle: {shown}, should be a string of 1 to {LONGEST_ID} characters, the vehicle's id")


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in text)


def titled(vehicle: str, name: str) -> str:
    """A vehicle for people: its name, and its id behind it."""
    return f"{name} ({vehicle})" if name and name != vehicle else vehicle


def named(classes: Collection[int] | Collection[str]) -> str:
    """ "class 3" or "classes car, truck"."""
    return f"{'class' if len(classes) == 1 else 'classes'} {', '.join(map(str, classes))}"


def printable(text: str) -> str:
    """The text on one line, with nothing in it that could forge another line of a log."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
