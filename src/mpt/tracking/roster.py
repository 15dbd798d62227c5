"""Who is in the fleet: a state machine in which absence is not departure.

    (answers) -> present -> (does not answer) -> suspected -> (leaves, or more than `grace` rounds missed) -> departed
                    ^                                |                                                          |
                    +------- (answers again) --------+----------------------------------------------------------+

One that has missed more than `grace` rounds stays suspected as long as it is likely to return, where that is known from
the absences that the fleet has seen (`mpt.tracking.returns`).

Three more are there, and their answer does not count all the same: `late` ones can be reached, and the round did not
wait for them; `refused` ones have answered what no samples could give; `quarantined` ones are kept apart by the server.
No round is counted as missed because of it. A `banned` one was sent away by the operator, who alone lets it back.

A vehicle is known by its id, a string: Flower's node id, say, or a public key.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from mpt.tracking import returns
from mpt.tracking.errors import FleetError
from mpt.tracking.returns import Absence, Returns, Waiting

MemberState = Literal["present", "late", "refused", "quarantined", "suspected", "departed", "banned"]
STATES: tuple[MemberState, ...] = ("present", "late", "refused", "quarantined", "suspected", "departed", "banned")
UNHEARD: tuple[MemberState, ...] = ("late", "refused", "quarantined")
"""Of vehicles that are there, and whose answer does not count."""
AWAITED: tuple[MemberState, ...] = ("suspected", *UNHEARD)
"""Of vehicles that did not count in the last round, and may in the next."""
GONE: tuple[MemberState, ...] = ("departed", "banned")
MOST_GONE = 1000
"""Vehicles that are remembered after their departure: the latest. Others that come back are new."""
LONGEST_ID = 256
LONGEST_REASON = 200
"""Characters of why an answer was refused: with the round and the vehicle a log's line has at most 300."""

_LONGEST_TITLE = 70
_EMPTY: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Decision:
    """One change, and why.

    Attributes:
        round: in which it was decided.
        what: joined, late, suspected, departed, returned, refused, clipped, quarantined, banned, unbanned, forgotten or
            failed, of a vehicle; watched, released, crowded, deposited, disputed, fallback, carried, lost, held-out,
            shadowed, approved, dropped, recovered, referenced, unreferenced or verdict, of classes.
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
        who = f" vehicle {line(titled(self.vehicle, self.name), _LONGEST_TITLE)}" if self.vehicle else ""
        classes = f" {printable(named(self.class_names or self.classes))}" if self.classes else ""
        return f"round {self.round}:{who}{classes} {self.what}: {printable(self.why)}"


@dataclass(frozen=True, slots=True)
class Member:
    """A vehicle as the server sees it.

    Attributes:
        state: one of `STATES`.
        since: the round in which it came into that state.
        seen: the last round in which its answer was accepted; 0 where none was.
        missed: how many questions in a row it has not answered since; those after its departure count too.
        name: what it is called, where that is known; it is known by its id.
        joined: the round in which its first answer was accepted; 0 where that is not known.
        why: why it is in that state, where its answers do not count.
        own: its absences that have ended, where they are kept: a movement profile, see `Waiting`.
    """

    state: MemberState
    since: int
    seen: int
    missed: int = 0
    name: str = ""
    joined: int = 0
    why: str = ""
    own: tuple[Absence, ...] = ()


@dataclass(frozen=True)
class Roster:
    """The vehicles whose answers were accepted, by id, but for those that departed long ago.

    Attributes:
        members: by id.
        forgotten: how many have departed and are no longer among the members.
        absences: how many absences there were that have ended, by how long they were: entry k counts those of 2 k and
            2 k + 1 questions, and from 64 on as many as `mpt.tracking.returns.bin_of` says.
    """

    members: Mapping[str, Member] = field(default_factory=dict)
    forgotten: int = 0
    absences: tuple[int, ...] = ()

    def having(self, *states: MemberState) -> tuple[str, ...]:
        """The vehicles in one of these states, sorted."""
        return tuple(sorted(v for v, member in self.members.items() if member.state in states))

    def state(self, vehicle: str) -> MemberState | None:
        """Of a vehicle; None where it never answered."""
        member = self.members.get(vehicle)
        return None if member is None else member.state

    def gone(self, vehicle: str) -> bool:
        """Whether a vehicle has departed or was banned."""
        return self.state(vehicle) in GONE

    def name(self, vehicle: str) -> str:
        """Of a vehicle; empty where none is known."""
        member = self.members.get(vehicle)
        return "" if member is None else member.name


@dataclass(frozen=True)
class Absent:
    """Who did not answer in a round as it should be, and why.

    Attributes:
        missing: could not be reached, or did not answer in all the time that there is; for others that are not named
            the same is assumed, without a reason.
        late: can be reached, and the round did not wait for them.
        refused: have answered what cannot be.
    """

    missing: Mapping[str, str] = field(default_factory=dict)
    late: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    def __or__(self, other: "Absent") -> "Absent":
        return Absent({**self.missing, **other.missing}, {**self.late, **other.late}, {**self.refused, **other.refused})


_ALL_MISSING = Absent()
_NO_LONGER = Waiting()


def advance(
    roster: Roster,
    round: int,
    answered: Collection[str],
    leaving: Collection[str] = (),
    *,
    grace: int,
    waiting: Waiting = _NO_LONGER,
    absent: Absent = _ALL_MISSING,
    names: Mapping[str, str] = _EMPTY,
    kept: Collection[str] = (),
    asked: Collection[str] | None = None,
) -> tuple[Roster, tuple[Decision, ...]]:
    """The roster after a round, and what changed.

    Args:
        roster: before the round.
        round: its number.
        answered: vehicles whose answer was accepted.
        leaving: vehicles that announced that they leave; with an answer, this round is their last.
        grace: a vehicle is departed once it has missed more than so many rounds in a row.
        waiting: whether a vehicle that is likely to return is waited for longer.
        absent: of the others, what is known.
        names: what vehicles are called, where that is known; others keep the name they had.
        kept: vehicles that are not forgotten however long ago they departed.
        asked: vehicles that were asked in this round; others that do not answer have missed nothing. None: all were.
    """
    if isinstance(leaving, str):
        raise FleetError(f"leaving: {leaving!r}, should be several vehicles, [{leaving!r}]")
    for vehicle in (*answered, *leaving):
        check_id(vehicle)
    members, decisions = dict(roster.members), list[Decision]()
    verdict = _verdict(roster, grace, waiting)
    passed_over = set[str]() if asked is None else members.keys() - set(asked)
    for vehicle in sorted({*(v for v, m in members.items() if m.state != "banned"), *answered, *leaving}):
        before = members.get(vehicle)
        if before is not None and before.state == "banned":
            continue
        if vehicle in answered:
            now, changes = _answered(before, round, waiting)
        elif before is None or (vehicle in passed_over and vehicle not in leaving):
            continue
        elif before.state == "departed":
            members[vehicle] = replace(before, missed=before.missed + 1)
            continue
        else:
            now, changes = (before, []) if vehicle in passed_over else _unheard(vehicle, before, round, verdict, absent)
        if vehicle in leaving:
            now = replace(now, state="departed", since=round, why="")
            changes = [*(c for c in changes if vehicle in answered), ("departed", "it said that it leaves")]
        members[vehicle] = replace(now, name=roster.name(vehicle))
        decisions += [Decision(round, what, vehicle, (), why) for what, why in changes]
    for vehicle in names.keys() & members.keys():
        members[vehicle] = replace(members[vehicle], name=names[vehicle])
    ended = [m.missed for v, m in roster.members.items() if v in answered and m.state != "banned" and m.missed]
    forgotten = _long_gone(members, kept)
    for vehicle in forgotten:
        del members[vehicle]
    members = {v: _retained(m, waiting, round) if m.own else m for v, m in members.items()}
    return Roster(members, roster.forgotten + len(forgotten), returns.counted(roster.absences, ended)), tuple(decisions)


def _answered(before: Member | None, round: int, waiting: Waiting) -> tuple[Member, list[tuple[str, str]]]:
    if before is None:
        return Member("present", round, round, joined=round), [("joined", "it answered for the first time")]
    own = (*before.own, (before.missed, round)) if before.missed and waiting.returns == "own" else before.own
    if before.state == "present":
        return replace(before, seen=round, missed=0, own=own), []
    why = f"it was {before.state} since round {before.since} and answered again"
    return Member("present", round, round, joined=before.joined, own=own), [("returned", why)]


def _retained(member: Member, waiting: Waiting, round: int) -> Member:
    """Without its own absences that are no longer kept."""
    own = waiting.kept(member.own, round)
    return member if own == member.own else replace(member, own=own)


def _unheard(
    vehicle: str, before: Member, round: int, verdict: "Verdict", absent: Absent
) -> tuple[Member, list[tuple[str, str]]]:
    """A vehicle that has not departed, and whose answer does not count."""
    states: tuple[tuple[MemberState, Mapping[str, str]], ...] = (("refused", absent.refused), ("late", absent.late))
    for state, whys in states:
        if vehicle in whys:
            why = whys[vehicle]
            if before.state in (state, "quarantined"):
                return before if before.state != state else replace(before, why=why), []
            return replace(before, state=state, since=round, why=why), [(state, why)] if state == "late" else []
    return _missed(before, round, verdict, absent.missing.get(vehicle, "it did not answer"))


def _missed(before: Member, round: int, verdict: "Verdict", why: str) -> tuple[Member, list[tuple[str, str]]]:
    missed = before.missed + 1
    gone, reason = verdict(replace(before, missed=missed))
    why = f"{why}; {reason}" if reason else why
    if gone:
        return replace(before, state="departed", since=round, missed=missed, why=""), [("departed", why)]
    if before.state != "suspected":
        return replace(before, state="suspected", since=round, missed=missed, why=""), [("suspected", why)]
    return replace(before, missed=missed), [("suspected", why)] if reason else []


Verdict = Callable[[Member], tuple[bool, str]]
"""Whether a vehicle that has missed so many questions is departed, and why, where there is something to say."""


def _verdict(roster: Roster, grace: int, waiting: Waiting) -> Verdict:
    """By the grace, and by how likely a return is from what was seen up to this round."""
    known = pooled(roster) if waiting.returns != "off" else None

    def verdict(member: Member) -> tuple[bool, str]:
        missed = member.missed
        if missed <= grace:
            return False, ""
        rounds = "1 round" if missed == 1 else f"{missed} rounds in a row"
        why = f"{rounds} missed, more than the grace of {grace}"
        if known is None:
            return True, why
        if missed >= waiting.most:
            return True, f"{why}, and no vehicle is waited for any longer" if missed > grace + 1 else why
        chance = _chance(known, member, waiting)
        share = f"vehicles come back after such an absence in {chance:.0%} of cases"
        if chance > waiting.chance:
            return False, f"{why}, but {share}" if missed == grace + 1 else ""
        return True, f"{why}, and {share}" if missed > grace + 1 else why

    return verdict


def pooled(roster: Roster) -> Returns:
    """How long absences are, from all that the fleet has seen; the forgotten count like the other departed ones."""
    lasting = Counter[int]()
    departed = [m.missed for m in roster.members.values() if m.state == "departed"]
    lasting.update(m.missed for m in roster.members.values() if m.missed and m.state not in GONE)
    weight = 1 + roster.forgotten / max(len(departed), 1)
    found = {length: float(times) for length, times in lasting.items()}
    for length in departed:
        found[length] = found.get(length, 0.0) + weight
    return returns.estimate(roster.absences, found)


def _chance(known: Returns, member: Member, waiting: Waiting) -> float:
    """That a vehicle answers before it is waited for no longer."""
    horizon = waiting.most - member.missed
    chance = known.chance(member.missed, horizon)
    if waiting.returns != "own":
        return chance
    return returns.own_chance(chance, [length for length, _ in member.own], member.missed, horizon)


def _long_gone(members: Mapping[str, Member], kept: Collection[str]) -> list[str]:
    """The departed that are no longer remembered."""
    departed = [v for v, member in members.items() if member.state == "departed"]
    if len(departed) <= MOST_GONE:
        return []
    departed.sort(key=lambda v: (members[v].since, v))
    return [v for v in departed[:-MOST_GONE] if v not in kept]


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


def line(text: str, most: int = LONGEST_REASON) -> str:
    """What somebody else's text may say in a log: one line, cut where it is too long.

    Example:
        >>> line("a" * 1000, 6)
        'aaaaa…'
    """
    said = printable(text[: 2 * most])
    return said if len(said) <= most and len(text) <= 2 * most else said[: most - 1] + "…"
