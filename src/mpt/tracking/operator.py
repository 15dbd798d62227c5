"""What an operator may order: pure functions from a state to the next, each with what was decided."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np

from mpt.core.validation import read_only
from mpt.tracking.answers import Snapshot
from mpt.tracking.book import Shared
from mpt.tracking.errors import FleetError
from mpt.tracking.roster import Decision, Member, Roster, check_id, line
from mpt.tracking.state import TrackerState

What = Literal["approve", "ban", "unban", "drop", "forget"]
Known = TypeVar("Known")


@dataclass(frozen=True)
class Order:
    """One order.

    Attributes:
        number: counts from 1; a state knows how many it has carried out.
        what: approve or drop, of a class; ban, unban or forget, of a vehicle.
        subject: the class's number, or the vehicle's id.
        time: when it was given, as the logs write it.
        why: what the operator said about it.
    """

    number: int
    what: What
    subject: int | str
    time: str = ""
    why: str = ""


def obey(state: TrackerState, orders: Iterable[Order]) -> tuple[TrackerState, tuple[Decision, ...]]:
    """The state after the orders that it has not carried out yet."""
    decisions = list[Decision]()
    for order in sorted(orders, key=lambda one: one.number):
        if order.number > state.orders:
            try:
                state, made = _HOW[order.what](state, order)
            except FleetError as error:
                made = (Decision(state.round + 1, "ignored", why=str(error)),)
            state = replace(state, orders=order.number)
            decisions += made
    return state, tuple(decisions)


def quarantine(state: TrackerState, vehicle: str, why: str) -> tuple[TrackerState, tuple[Decision, ...]]:
    """Keep a vehicle apart: it is there, has missed nothing, and its answers are not taken."""
    check_id(vehicle)
    before, number = state.roster.members.get(vehicle), state.round + 1
    member = before or Member("present", number, 0)
    apart = replace(member, state="quarantined", since=number, why=line(why))
    return _with(state, vehicle, apart), (Decision(number, "quarantined", vehicle, (), line(why), member.name),)


def _approve(state: TrackerState, order: Order) -> tuple[TrackerState, tuple[Decision, ...]]:
    """In shadow mode: let a class be held out."""
    c = _class(state, order)
    if not state.settings.shadow or c in state.approved:
        return state, ()
    why = f"at {order.time}: its remaining samples are held out of training once it has departed"
    after = replace(state, approved=tuple(sorted({*state.approved, c})))
    return after, (_of_class(state, "approved", c, why),)


def _ban(state: TrackerState, order: Order) -> tuple[TrackerState, tuple[Decision, ...]]:
    """Ask a vehicle nothing more, and forget what it has reported; deposits that were made of it stay."""
    vehicle = _vehicle(order)
    before, number = state.roster.members.get(vehicle), state.round + 1
    if before is not None and before.state == "banned":
        return state, ()
    why = line(f"at {order.time}{f', {order.why}' if order.why else ''}: it is not asked any more")
    member = before or Member("banned", number, 0)
    banned = replace(member, state="banned", since=number, missed=0, why=why)
    after = _with(_without_reports(state, vehicle), vehicle, banned)
    return after, (Decision(number, "banned", vehicle, (), why, member.name),)


def _unban(state: TrackerState, order: Order) -> tuple[TrackerState, tuple[Decision, ...]]:
    """Let a banned or quarantined vehicle back: its next right answer counts."""
    vehicle = _vehicle(order)
    before, number = state.roster.members.get(vehicle), state.round + 1
    if before is None or before.state not in ("banned", "quarantined"):
        return state, ()
    why = f"at {order.time}: its next right answer counts, it was {before.state} since round {before.since}"
    members = dict(state.roster.members)
    if before.state == "quarantined":
        members[vehicle] = replace(before, state="late", since=number, why="the operator has let it back")
    elif before.seen:
        members[vehicle] = replace(before, state="departed", since=number, why="")
    else:
        del members[vehicle]
    after = replace(state, roster=replace(state.roster, members=members))
    return after, (Decision(number, "unbanned", vehicle, (), why, before.name),)


def _drop(state: TrackerState, order: Order) -> tuple[TrackerState, tuple[Decision, ...]]:
    """Drop a class's deposit: it is trained on again, and measured where somebody has samples of it."""
    c = _class(state, order)
    if c not in state.tracked:
        return state, ()
    owners = ", ".join(state.tracked[c].owners)
    why = f"at {order.time}: its deposit is gone, its samples are trained on again and measured where there are any"
    return _without_deposits(state, [c]), (replace(_of_class(state, "dropped", c, why), vehicle=owners),)


def _forget(state: TrackerState, order: Order) -> tuple[TrackerState, tuple[Decision, ...]]:
    """Remove what is kept of a vehicle: its place in the roster, counts, remembered sums, reports and own deposits."""
    vehicle = _vehicle(order)
    before, number = state.roster.members.get(vehicle), state.round + 1
    owned = [c for c, one in state.tracked.items() if one.owners == (vehicle,)]
    after = _without_deposits(_without_reports(state, vehicle), owned)
    members = {v: m for v, m in after.roster.members.items() if v != vehicle or m.state == "banned"}
    if vehicle in members:
        members[vehicle] = replace(members[vehicle], seen=0, joined=0, name="")
    tracked = {c: replace(one, owners=tuple(v for v in one.owners if v != vehicle)) for c, one in after.tracked.items()}
    after = replace(after, roster=replace(after.roster, members=members), tracked=tracked)
    why = f"at {order.time}: its counts, remembered sums and {len(owned)} deposits are removed"
    forgotten = Decision(number, "forgotten", vehicle, tuple(owned), why, before.name if before is not None else "")
    return after, (forgotten,)


_HOW: dict[What, Callable[[TrackerState, Order], tuple[TrackerState, tuple[Decision, ...]]]] = {
    "approve": _approve,
    "ban": _ban,
    "unban": _unban,
    "drop": _drop,
    "forget": _forget,
}


def _class(state: TrackerState, order: Order) -> int:
    c = order.subject
    if not isinstance(c, int) or isinstance(c, bool) or not 0 <= c < state.settings.num_classes:
        most = state.settings.num_classes - 1
        raise FleetError(f"order {order.number}: {order.what} of class {c!r}, should be from 0 to {most}")
    return c


def _vehicle(order: Order) -> str:
    check_id(order.subject)
    return str(order.subject)


def _of_class(state: TrackerState, what: str, c: int, why: str) -> Decision:
    names = state.settings.class_names
    return Decision(state.round + 1, what, classes=(c,), why=why, class_names=(names[c],) if names else ())


def _with(state: TrackerState, vehicle: str, member: Member) -> TrackerState:
    members = {**state.roster.members, vehicle: member}
    return replace(state, roster=Roster(members, state.roster.forgotten, state.roster.absences))


def _without_reports(state: TrackerState, vehicle: str) -> TrackerState:
    """Without what a vehicle has reported, as far as that is kept apart from others'."""
    snapshot = None if state.snapshot is None else _without_holder(state.snapshot, vehicle)
    return replace(
        state,
        counts=_others(state.counts, vehicle),
        stale_offsets=_others(state.stale_offsets, vehicle),
        lacking=_others(state.lacking, vehicle),
        snapshot=snapshot,
        trusted={v: _without_holder(one, vehicle) for v, one in state.trusted.items() if v != vehicle},
    )


def _others(table: Mapping[str, Known], vehicle: str) -> dict[str, Known]:
    return {v: known for v, known in table.items() if v != vehicle}


def _without_holder(snapshot: Snapshot, vehicle: str) -> Snapshot:
    """The snapshot without a holder's own report; one that has no other report stays as it is, for its sums."""
    holders = {v: report for v, report in snapshot.holders.items() if v != vehicle}
    if vehicle not in snapshot.holders or (snapshot.rest is None and not holders):
        return snapshot
    further = {
        key: Shared(shared.rest, {v: answer for v, answer in shared.holders.items() if v != vehicle})
        for key, shared in snapshot.further.items()
    }
    return replace(snapshot, holders=holders, further=further)


def _without_deposits(state: TrackerState, classes: Collection[int]) -> TrackerState:
    prototypes, made = state.prototypes.copy(), state.made.copy()
    for c in classes:
        prototypes[c], made[c] = np.nan, -1
    return replace(
        state,
        tracked={c: one for c, one in state.tracked.items() if c not in classes},
        held_out=tuple(c for c in state.held_out if c not in classes),
        approved=tuple(c for c in state.approved if c not in classes),
        health={c: one for c, one in state.health.items() if c not in classes},
        outward=tuple(c for c in state.outward if c not in classes),
        stale_offsets={
            v: {c: row for c, row in rows.items() if c not in classes} for v, rows in state.stale_offsets.items()
        },
        views=state.views.without(classes),
        prototypes=read_only(prototypes),
        made=read_only(made),
    )
