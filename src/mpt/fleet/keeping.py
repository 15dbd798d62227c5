"""Which checkpoints of a place are read, kept, and may be saved over; `mpt.fleet.store` has the places."""

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mpt.fleet.checkpoint import HEAD, Checkpoint, OtherReleaseError, StoreError, decode, refuse_other_release

LAST = 3
"""How many of the last checkpoints are kept."""
REMEDY = "restore it from a backup, or give another place to begin anew"
_SPACED = (10, 100)

Say = Callable[[str], None]


def kept(rounds: Iterable[int], last: int = LAST) -> set[int]:
    """Which checkpoints are kept: the last ones, and up to four older ones to roll back to.

    Of the older ones these are the first of each of the two latest tens of rounds, and of the two latest hundreds.

    Example:
        >>> sorted(kept(range(1, 258)))
        [100, 200, 240, 250, 255, 256, 257]
    """
    ordered = sorted(set(rounds))
    older, chosen = ordered[:-last], set(ordered[-last:])
    for step in _SPACED:
        firsts = {number // step: number for number in reversed(older)}
        chosen |= {firsts[block] for block in sorted(firsts)[-2:]}
    return chosen


@dataclass(frozen=True)
class There:
    """The checkpoints that are in a place.

    Attributes:
        where: the place.
        heads: how each begins, by round; empty where it cannot be read.
        read: gives the bytes of one.
        name: says what a round's is called.
        say: takes a sentence about every one that is damaged.

    Raises:
        OtherReleaseError: one of them is of another release.
    """

    where: Path
    heads: Mapping[int, bytes]
    read: Callable[[int], bytes]
    name: Callable[[int], str]
    say: Say

    def __post_init__(self) -> None:
        for number, head in self.heads.items():
            refuse_other_release(head, f"store: {self.name(number)}")

    def newest(self) -> tuple[Checkpoint | None, dict[int, bytes]]:
        """The last one that is whole, and all heads with what was read of it; None where there is no checkpoint.

        Raises:
            StoreError: there are some, and none can be read.
        """
        passed: list[str] = []
        for number in sorted(self.heads, reverse=True):
            try:
                data = self.read(number)
                whole = _decoded(number, data)
            except OtherReleaseError as error:
                raise OtherReleaseError(f"store: {self.name(number)}: {error}") from None
            except OSError as error:
                passed.append(f"{self.name(number)} cannot be read ({error.strerror})")
            except (StoreError, sqlite3.DatabaseError) as error:
                passed.append(f"{self.name(number)} is damaged ({error})")
            else:
                for sentence in passed:
                    self.say(f"{sentence}, so the one before it is taken")
                return whole, {**self.heads, number: data[:HEAD]}
        if passed:
            raise StoreError(f"store: no checkpoint can be read: {'; '.join(passed)}; {REMEDY}")
        return None, {}

    def whole(self) -> tuple[int, ...]:
        """The rounds of those that are whole."""
        return tuple(number for number in sorted(self.heads) if self.is_whole(number))

    def is_whole(self, round: int) -> bool:
        """Whether that round's is."""
        try:
            _decoded(round, self.read(round))
        except (StoreError, OSError, sqlite3.DatabaseError):
            return False
        return True


@dataclass
class Seen:
    """What an object knows of its place.

    Attributes:
        looked: whether it has read or written there.
        last: the round of the last checkpoint that it has read or written.
        heads: how all that were there then begin, by round.
    """

    looked: bool = False
    last: int | None = None
    heads: dict[int, bytes] = field(default_factory=dict)

    def note(self, last: int | None, heads: Mapping[int, bytes]) -> None:
        """What is there now."""
        self.looked, self.last, self.heads = True, last, dict(heads)

    def refuse(self, round: int, there: There) -> None:
        """Raise `StoreError` where a round must not be saved over what is there.

        An object that has never looked may save a round that is later than all that are there; one that has looked, as
        long as nobody else has changed the newest. Where nothing is left, anybody may.
        """
        if self.last is not None and there.heads and self.last not in there.heads:
            raise StoreError(
                f"store: round {self.last}, which this server has read or written, is no longer in {there.where}: it "
                "was rolled back or removed; start the server again to resume from what is there"
            )
        first = -1 if self.last is None else self.last
        changed = [n for n, head in there.heads.items() if n >= first and head != self.heads.get(n)]
        if self.looked and (foreign := [n for n in changed if there.is_whole(n)]):
            raise StoreError(_another(there.where, max(foreign)))
        if any(n > round if self.looked else n >= round for n in there.heads):
            found, _ = there.newest()
            if found is not None:
                refuse_later(found.round, round)
                if found.round == round and not self.looked:
                    raise StoreError(_another(there.where, round))


def refuse_later(found: int, round: int) -> None:
    """Raise `StoreError` where one that is there is of a later round than one that would be saved."""
    if found > round:
        raise StoreError(
            f"store: it holds round {found}, so one that is at round {round} would undo it; resume from its last "
            "checkpoint, or give another place"
        )


def _another(where: Path, round: int) -> str:
    return (
        f"store: another server writes to {where}: round {round} there is not what this one has read or written; "
        "stop one of the two, or give another place"
    )


def _decoded(round: int, data: bytes) -> Checkpoint:
    found = decode(data)
    if found.round != round:
        raise StoreError(f"it says that it is of round {found.round}")
    return found
