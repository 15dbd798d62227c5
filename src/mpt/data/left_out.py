"""What a loader leaves out, counted and said."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mpt.data.errors import DataError

_SHOWN = 3


SPLIT_HERE = "the last fifth of every class is for the test"


def last_fifth(count: int) -> int:
    """How many of a class's samples are for the test, where nobody has said which: the last ones, at least one.

    The last ones together, because samples that follow each other, as frames of a video do, are alike: of every fifth
    one the neighbours would be trained on.
    """
    return max(1, count // 5)


def last_fifths(labels: NDArray[np.int64], classes: Sequence[str], otherwise: str) -> NDArray[np.bool_]:
    """(N,): which samples those are, by the numbers of their classes (N,).

    Raises:
        DataError: a class has one sample; `otherwise` says what there could be instead of a second one.
    """
    tested = np.zeros(len(labels), dtype=bool)
    for c in np.unique(labels):
        mine = np.flatnonzero(labels == c)
        if len(mine) < 2:
            raise DataError(alone(f"class {classes[int(c)]!r}", "sample", otherwise))
        tested[mine[-last_fifth(len(mine)) :]] = True
    return tested


def alone(where: str, what: str, otherwise: str) -> str:
    """What to say of a class that cannot be split."""
    return f"{where} has one {what}, should have at least two, or {otherwise}"


class LeftOut:
    """What is left out, counted by reason and by what it is about (a file, a token, a category)."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self.lacks: dict[str, list[str]] = {}

    def add(self, reason: str, about: str = "") -> None:
        """One more; where `about` is empty the reason stands alone."""
        self.counts.setdefault(reason, Counter())[about] += 1

    def lack(self, what: str, about: str) -> None:
        """Something that was looked for in vain; said once, and after what is left out."""
        known = self.lacks.setdefault(what, [])
        if about not in known:
            known.append(about)

    def total(self, reason: str) -> int:
        """How many samples so far."""
        return self.counts[reason].total() if reason in self.counts else 0

    def clause(self) -> str:
        """As in "left out: broken images 2 (a.jpg, b.jpg), boxes under 32 pixels 14"; empty where nothing was."""
        parts = []
        for reason, counter in self.counts.items():
            names = [name for name in counter if name]
            number = len(names) if names else counter.total()
            more = f"; {counter.total():,} samples" if names and counter.total() > len(names) else ""
            parts.append(f"{reason} {number:,}" + (f" ({_few(names)}{more})" if names else ""))
        clauses = [f"left out: {', '.join(parts)}"] if parts else []
        return "; ".join(clauses + [f"{what}: {_few(names)}" for what, names in self.lacks.items()])


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")
