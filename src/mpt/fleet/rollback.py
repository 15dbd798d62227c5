"""`mpt fleet rollback`: let the next server resume from an earlier checkpoint."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime

from mpt.base.files import LockedError, exclusive_lock
from mpt.fleet.log import DecisionLog, now
from mpt.fleet.store import FileStore, SqliteStore, StoreError
from mpt.tracking.errors import FleetError
from mpt.tracking.roster import Decision


def rollback(store: FileStore | SqliteStore, to: int | None = None, clock: Callable[[], datetime] = now) -> str:
    """Put aside all checkpoints later than a round, so that the next server resumes from that one; a sentence on it.

    Nothing is removed: files are renamed to NAME.rolled-back-TIME, rows are moved to the table `rolled_back`. It is
    logged in `decisions.jsonl` beside the state.

    Args:
        store: the server's.
        to: the round to go back to; default: the one before the last that a server would resume from.
        clock: gives the time.

    Raises:
        FleetError: a server is running, or there is no whole checkpoint of that round.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(exclusive_lock(store.home))
        except LockedError:
            raise FleetError(f"state: a server writes to {store.home}; stop it first") from None
        except OSError as error:
            raise FleetError(f"state: {store.home} cannot be locked ({error.strerror})") from None
        target = _target(store.whole(), to)
        later = [number for number in store.rounds() if number > target]
        if not later:
            raise StoreError(f"store: round {target} is the last one already, there is nothing to put aside")
        time = clock()
        store.put_aside(later, f"{time.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}")
        why = f"{_rounds(later)} put aside, the next server resumes from round {target}"
        log = DecisionLog(store.home / "decisions.jsonl", None, lambda: time)
        try:
            log.write([Decision(target, "rolled-back", why=why)])
        except FleetError as error:
            return f"{why}; but this is not logged: {error}"
    return why


def _target(whole: Sequence[int], to: int | None) -> int:
    """The round to go back to."""
    there = f"whole are: {', '.join(map(str, whole)) or 'none'}"
    if to is None:
        if len(whole) < 2:
            raise StoreError(f"store: there is no earlier checkpoint to go back to, {there}; restore one from a backup")
        return whole[-2]
    if to not in whole:
        raise StoreError(f"store: there is no whole checkpoint of round {to}, {there}")
    return to


def _rounds(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"round {numbers[0]} is"
    return f"rounds {', '.join(map(str, numbers[:-1]))} and {numbers[-1]} are"
