"""What was approved of a fleet in shadow mode: a file beside the server's state, which it reads before a round ends.

{"approvals": [{"class": 2, "name": "truck", "time": "2026-11-15T12:00:00.123456+00:00"}]}

`mpt fleet approve` writes it. As long as nobody has answered yet nothing can have been approved: a file that is there
then is of an earlier fleet in the same place, and is removed.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from mpt.base.files import write_atomically
from mpt.fleet.store import FileStore, SqliteStore, Store
from mpt.tracking.errors import FleetError
from mpt.tracking.roster import Decision
from mpt.tracking.tracker import Tracker

_NAME = "approvals.json"
_SHOULD = "should be as mpt fleet approve has written it; remove it, and approve again"


@dataclass(frozen=True)
class Approval:
    """That a class may be held out of training.

    Attributes:
        number: the class.
        name: what it is called, for people.
        time: when it was approved, as the logs write it.
    """

    number: int
    name: str
    time: str


def file_of(store: Store | None) -> Path | None:
    """Where approvals are: in the store's folder, or beside its SQLite file; None where a store is neither.

    Example:
        >>> file_of(SqliteStore(Path("state/fleet.db"))).as_posix()
        'state/fleet.db.approvals.json'
    """
    if isinstance(store, FileStore):
        return store.folder / _NAME
    return store.path.with_name(f"{store.path.name}.{_NAME}") if isinstance(store, SqliteStore) else None


def read_approvals(store: Store | None) -> tuple[Approval, ...]:
    """All that was approved; nothing where there is no file.

    Raises:
        FleetError: there is one that is not right.
    """
    path = file_of(store)
    try:
        found = b"" if path is None else path.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise FleetError(f"approvals: {path} cannot be read ({error.strerror}), should belong to this user") from None
    try:
        given = json.loads(found)["approvals"] if path is not None else []
        made = tuple(Approval(one["class"], one["name"], one["time"]) for one in given)
    except (ValueError, KeyError, TypeError):
        raise FleetError(f"approvals: {path} cannot be read, {_SHOULD}") from None
    for one in made:
        if type(one.number) is not int or not isinstance(one.name, str) or not isinstance(one.time, str):
            raise FleetError(f"approvals: {path} has class {one.number!r}, {_SHOULD}")
    return made


def write_approvals(store: Store, approvals: Collection[Approval]) -> None:
    """Put these in place of all that was approved, whole or not at all."""
    path = file_of(store)
    assert path is not None
    listed = [{"class": one.number, "name": one.name, "time": one.time} for one in approvals]
    try:
        write_atomically(path, (json.dumps({"approvals": listed}, indent=1) + "\n").encode(), private=True)
    except OSError as error:
        why = f"({error.strerror}), should be called as the server's user"
        raise FleetError(f"approvals: {path} cannot be written {why}") from None


def take_approvals(store: Store | None, tracker: Tracker) -> tuple[Decision, ...]:
    """On the server, before a round is closed: approve in the tracker what is new, and what was decided.

    A file that is not right is said in every round, and stops nothing. Without shadow mode there is nothing to approve.
    """
    number, path = tracker.round + 1, file_of(store)
    if not tracker.settings.shadow or path is None:
        return ()
    if not tracker.roster.members:
        return _removed(path, number)
    try:
        found = {one.number: one for one in read_approvals(store)}
        new = sorted(found.keys() - set(tracker.state.approved))
        tracker.approve(new)
    except FleetError as error:
        return (Decision(number, "ignored", why=str(error)),)
    names = tracker.settings.class_names
    return tuple(
        Decision(
            number,
            "approved",
            classes=(c,),
            why=f"at {found[c].time}: its remaining samples are held out of training once it has departed",
            class_names=(names[c],) if names else (),
        )
        for c in new
    )


def _removed(path: Path, round: int) -> tuple[Decision, ...]:
    """The file of an earlier fleet."""
    if not path.exists():
        return ()
    try:
        path.unlink()
    except OSError as error:
        raise FleetError(f"approvals: {path} is of an earlier fleet, cannot be removed ({error.strerror})") from None
    return (Decision(round, "ignored", why=f"approvals: {path} was of an earlier fleet in this place, and is removed"),)
