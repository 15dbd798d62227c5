"""Sums that take in one report after the other, in float64 and in place: they are held once, however many come."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Generic, TypeVar

from mpt.core import ClassStatistics, CrossStatistics

Report = TypeVar("Report", ClassStatistics, CrossStatistics)

_ADDED = {
    ClassStatistics: ("counts", "sums", "squares", "scatter"),
    CrossStatistics: ("counts", "earlier", "sums", "gram", "cross"),
}
_EITHER = ("narrow", "halves")


class Summed(Generic[Report]):
    """The sum of reports of one kind. They are known to fit each other, so that nothing here can fail."""

    def __init__(self) -> None:
        self._first: Report | None = None
        self._sums = dict[str, Any]()
        self._flags = dict[str, Any]()

    def add(self, report: Report) -> None:
        """Take in one more."""
        names = [name for name in _ADDED[type(report)] if getattr(report, name) is not None]
        flags = {name: getattr(report, name) for name in _EITHER if hasattr(report, name)}
        if self._first is None:
            self._first, self._flags = report, flags
            self._sums = {name: getattr(report, name).copy() for name in names}
            return
        for name in names:
            self._sums[name] += getattr(report, name)
        self._flags = {name: self._flags[name] or flag for name, flag in flags.items()}

    def total(self, more: Iterable[Report] = ()) -> Report | None:
        """Of all that was taken in, and of `more`; None where there is nothing."""
        whole: Summed[Report] = Summed()
        whole._first, whole._flags = self._first, self._flags
        whole._sums = {name: array.copy() for name, array in self._sums.items()}
        for report in more:
            whole.add(report)
        return None if whole._first is None else replace(whole._first, **whole._sums, **whole._flags)
