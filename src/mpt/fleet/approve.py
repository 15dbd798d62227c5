"""`mpt fleet approve`: let classes of a fleet in shadow mode be held out of training."""

import difflib
from collections.abc import Callable, Sequence
from datetime import datetime

from mpt.fleet.approvals import Approval, read_approvals, write_approvals
from mpt.fleet.log import now, stamp
from mpt.fleet.status import ClassStatus, Status, read_status
from mpt.fleet.store import FileStore, SqliteStore
from mpt.tracking.errors import FleetError


def approve(
    store: FileStore | SqliteStore, classes: Sequence[str], clock: Callable[[], datetime] = now
) -> tuple[str, ...]:
    """Approve classes, by name or by number, all of them or none; a sentence on each.

    Raises:
        FleetError: there is nothing to approve here, or not these.
    """
    status = read_status(store)
    if not status.shadow:
        raise FleetError("state: this fleet is not in shadow mode, departed classes are held out without approval")
    if not status.vehicles:
        raise FleetError(f"state: no vehicle has answered up to round {status.round}, there is nothing to approve yet")
    chosen = tuple({one.number: one for one in (_meant(status, text) for text in classes)}.values())
    for one in chosen:
        if one.approved:
            raise FleetError(f"class: {one.name!r} is approved already, should be another")
    time = stamp(clock())
    write_approvals(store, (*read_approvals(store), *(Approval(one.number, one.name, time) for one in chosen)))
    return tuple(_sentence(status, one) for one in chosen)


def _meant(status: Status, text: str) -> ClassStatus:
    """The class of that name, or else of that number."""
    names = {one.name: one for one in status.classes}
    if text in names:
        return names[text]
    if text.isascii() and text.isdigit() and int(text) < len(status.classes):
        return status.classes[int(text)]
    near = difflib.get_close_matches(text, names, 1)
    hint = f"should it be {near[0]!r}?" if near else f"should be of {', '.join(names)}"
    raise FleetError(f"class: {text!r} is none of the fleet's, {hint}")


def _sentence(status: Status, one: ClassStatus) -> str:
    """What an approval does, and from when on."""
    if one.tracked is None or one.tracked.state != "departed":
        why = "it has not departed; from the round after it has, its remaining samples are not trained on"
    else:
        why = (
            f"it has departed; the server reads this at the end of round {status.round + 1}, and from round "
            f"{status.round + 2} on its {one.tracked.remaining} remaining samples are not trained on"
        )
    return f"{one.name} is approved: {why}"
