"""What a fleet's operator has ordered: a file beside the server's state, a line an order, read before a round begins.

{"order": 1, "what": "ban", "subject": "1049...", "time": "2026-11-15T12:00:00.123456+00:00", "why": "stolen"}

The state knows how many orders it has carried out, so one that is rolled back carries them out again. As long as nobody
has answered yet nothing can have been ordered: a file that is there then is of an earlier fleet in the same place, and
is removed.
"""

import json
from pathlib import Path
from typing import get_args

from mpt.fleet.log import append
from mpt.fleet.store import FileStore, SqliteStore, Store
from mpt.tracking.errors import FleetError
from mpt.tracking.operator import Order, What
from mpt.tracking.roster import Decision
from mpt.tracking.tracker import Tracker

_NAME = "orders.jsonl"
_SHOULD = "should be as mpt fleet has written it; remove the line, or the file, and order again"


def file_of(store: Store | None) -> Path | None:
    """Where orders are: in the store's folder, or beside its SQLite file; None where a store is neither.

    Example:
        >>> file_of(SqliteStore(Path("state/fleet.db"))).as_posix()
        'state/fleet.db.orders.jsonl'
    """
    if isinstance(store, FileStore):
        return store.folder / _NAME
    return store.path.with_name(f"{store.path.name}.{_NAME}") if isinstance(store, SqliteStore) else None


def read_orders(store: Store | None) -> tuple[Order, ...]:
    """All that was ordered; nothing where there is no file.

    Raises:
        FleetError: there is one that is not right.
    """
    path = file_of(store)
    try:
        found = "" if path is None else path.read_text(errors="replace")
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise FleetError(f"orders: {path} cannot be read ({error.strerror}), should belong to this user") from None
    lines = [text for text in found.splitlines() if text.strip()]
    return tuple(_order(text, number, path) for number, text in enumerate(lines, 1))


def _order(text: str, number: int, path: Path | None) -> Order:
    try:
        given = json.loads(text)
        made = Order(given["order"], given["what"], given["subject"], given["time"], given.get("why", ""))
    except (ValueError, KeyError, TypeError):
        raise FleetError(f"orders: line {number} of {path} cannot be read, {_SHOULD}") from None
    texts = isinstance(made.time, str) and isinstance(made.why, str) and isinstance(made.subject, int | str)
    if made.number != number or made.what not in get_args(What) or not texts:
        raise FleetError(f"orders: line {number} of {path} is no order, {_SHOULD}")
    return made


def give_order(store: FileStore | SqliteStore, what: What, subject: int | str, time: str, why: str = "") -> Order:
    """Add an order to those there are."""
    path = file_of(store)
    assert path is not None
    order = Order(len(read_orders(store)) + 1, what, subject, time, why)
    written = {"order": order.number, "what": what, "subject": subject, "time": time, "why": why}
    append(path, json.dumps(written) + "\n")
    return order


def take_orders(store: Store | None, tracker: Tracker) -> tuple[Decision, ...]:
    """On the server, before it asks: carry out in the tracker what is new, and what was decided.

    A file that is not right is said in every round, and stops nothing.
    """
    number, path = tracker.round + 1, file_of(store)
    if path is None or not path.exists():
        return ()
    if not tracker.roster.members:
        return _removed(path, number)
    try:
        return tracker.obey(read_orders(store))
    except FleetError as error:
        return (Decision(number, "ignored", why=str(error)),)


def _removed(path: Path, round: int) -> tuple[Decision, ...]:
    """The file of an earlier fleet."""
    try:
        path.unlink()
    except OSError as error:
        raise FleetError(f"orders: {path} is of an earlier fleet, cannot be removed ({error.strerror})") from None
    return (Decision(round, "ignored", why=f"orders: {path} was of an earlier fleet in this place, and is removed"),)
