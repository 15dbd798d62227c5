"""`mpt fleet approve, ban, unban, drop, forget`: orders to a fleet's server, which obeys before it asks again."""

import difflib
from collections.abc import Callable, Sequence
from datetime import datetime

from mpt.fleet.log import now, stamp
from mpt.fleet.orders import give_order
from mpt.fleet.status import ClassStatus, Status, VehicleStatus, read_status
from mpt.fleet.store import FileStore, SqliteStore
from mpt.tracking.errors import FleetError

Clock = Callable[[], datetime]
_Place = FileStore | SqliteStore


def approve(store: _Place, classes: Sequence[str], clock: Clock = now) -> tuple[str, ...]:
    """In shadow mode: let classes be held out, by name or by number, all of them or none; a sentence on each.

    Raises:
        FleetError: there is nothing to approve here, or not these.
    """
    status = read_status(store)
    if not status.shadow:
        raise FleetError("state: this fleet is not in shadow mode, departed classes are held out without approval")
    if not status.vehicles:
        raise FleetError(f"state: no vehicle has answered up to round {status.round}, there is nothing to approve yet")
    chosen = tuple({one.number: one for one in (_class(status, text) for text in classes)}.values())
    for one in chosen:
        if one.approved:
            raise FleetError(f"class: {one.name!r} is approved already, should be another")
    for one in chosen:
        give_order(store, "approve", one.number, stamp(clock()))
    return tuple(_approved(status, one) for one in chosen)


def ban(store: _Place, vehicle: str, why: str = "", clock: Clock = now) -> tuple[str, ...]:
    """Send a vehicle away: it is asked nothing more, and what it has reported is forgotten."""
    status = read_status(store)
    known, name = _vehicle(status, vehicle)
    if known is not None and known.state == "banned":
        raise FleetError(f"vehicle: {name} is banned already, should be another")
    give_order(store, "ban", known.vehicle if known is not None else vehicle, stamp(clock()), why)
    owned = [c.name for c in status.classes if c.tracked is not None and known and known.vehicle in c.tracked.owners]
    said = [f"{name} is banned: it is asked nothing more {_when(status)}; mpt fleet unban lets it back"]
    if owned:
        said.append(f"deposits that were made of it stay: {', '.join(owned)}; mpt fleet drop removes one")
    if known is not None and (held := [c.name for c in status.classes if c.hangs and c.holder == known.vehicle]):
        said.append(f"it holds most of {', '.join(held)}: nothing is deposited of a vehicle that is banned")
    return tuple(said)


def unban(store: _Place, vehicle: str, clock: Clock = now) -> tuple[str, ...]:
    """Let a banned or quarantined vehicle back."""
    status = read_status(store)
    known, name = _vehicle(status, vehicle)
    if known is None or known.state not in ("banned", "quarantined"):
        away = [_title(v) for v in status.vehicles if v.state in ("banned", "quarantined")]
        raise FleetError(f"vehicle: {name} is neither banned nor quarantined, {_of(away)}")
    give_order(store, "unban", known.vehicle, stamp(clock()))
    return (f"{name} is let back: its next right answer counts, {_when(status)}",)


def drop(store: _Place, text: str, clock: Clock = now) -> tuple[str, ...]:
    """Remove a class's deposit: its samples are trained on again, and measured where there are any."""
    status = read_status(store)
    one = _class(status, text)
    if one.tracked is None:
        tracked = [c.name for c in status.classes if c.tracked is not None]
        raise FleetError(f"class: {one.name!r} has no deposit, {_of(tracked)}")
    give_order(store, "drop", one.number, stamp(clock()))
    lost = "" if one.tracked.remaining else "; nobody has a sample of it now: it is not recognised until somebody has"
    when = f"its samples are trained on again {_when(status)}"
    return (f"{one.name}: the deposit of round {one.tracked.deposit_round} is dropped, {when}{lost}",)


def forget(store: _Place, vehicle: str, clock: Clock = now) -> tuple[str, ...]:
    """Remove what is kept of a vehicle, and say what cannot be removed."""
    status = read_status(store)
    known, name = _vehicle(status, vehicle)
    if known is None:
        raise FleetError(f"vehicle: nothing is known of {name}, {_of([_title(v) for v in status.vehicles])}")
    owned = [c for c in status.classes if c.tracked is not None and c.tracked.owners == (known.vehicle,)]
    give_order(store, "forget", known.vehicle, stamp(clock()))
    gone = f"; the deposits of {', '.join(c.name for c in owned)} with it" if owned else ""
    return (
        f"{name} is forgotten {_when(status)}: its counts, remembered sums and place in the roster{gone}",
        "what stays: the model was trained with its updates; sums that its report was added to, until the next round; "
        "checkpoints of rounds before, until they are pruned; lines of decisions.jsonl with its id",
        "it may join again: to keep it out, ban it first",
    )


def _class(status: Status, text: str) -> ClassStatus:
    """The class of that name, or else of that number."""
    names = {one.name: one for one in status.classes}
    if text in names:
        return names[text]
    if text.isascii() and text.isdigit() and int(text) < len(status.classes):
        return status.classes[int(text)]
    near = difflib.get_close_matches(text, names, 1)
    hint = f"should it be {near[0]!r}?" if near else f"should be of {', '.join(names)}"
    raise FleetError(f"class: {text!r} is none of the fleet's, {hint}")


def _vehicle(status: Status, text: str) -> tuple[VehicleStatus | None, str]:
    """The vehicle of that id, or else of that name, and what to call it; None of an id that never answered rightly."""
    ids, names = {v.vehicle: v for v in status.vehicles}, {v.name: v for v in status.vehicles if v.name}
    known = ids.get(text, names.get(text))
    if known is not None:
        return known, _title(known)
    if text.isascii() and text.isdigit():
        return None, f"vehicle {text}"
    near = difflib.get_close_matches(text, [*names, *ids], 1)
    hint = f"should it be {near[0]!r}?" if near else "should be its id or name"
    raise FleetError(f"vehicle: {text!r} is none of the fleet's, {hint}")


def _title(vehicle: VehicleStatus) -> str:
    return f"{vehicle.name} ({vehicle.vehicle})" if vehicle.name else f"vehicle {vehicle.vehicle}"


def _of(names: Sequence[str]) -> str:
    return f"should be of {', '.join(names[:20])}" if names else "there is none"


def _when(status: Status) -> str:
    return f"from round {status.round + 1} on, or the one after where that has begun"


def _approved(status: Status, one: ClassStatus) -> str:
    """What an approval does, and from when on."""
    if one.tracked is None or one.tracked.state != "departed":
        why = "it has not departed; from the round after it has, its remaining samples are not trained on"
    else:
        why = (
            f"it has departed; the server reads this before its question in round {status.round + 1}, and from round "
            f"{status.round + 2} on its {one.tracked.remaining} remaining samples are not trained on"
        )
    return f"{one.name} is approved: {why}"
