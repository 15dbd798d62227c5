"""The checks, one function each, and what to do where one fails."""

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mpt.base.extensions import split
from mpt.checking.observed import Make, Observation, Sent, observe
from mpt.checking.world import World
from mpt.core import StatisticsError
from mpt.core.validation import Floats
from mpt.methods import METHODS, MethodError, find_method
from mpt.methods.method import Traits
from mpt.methods.mpt_duo import MptDuo
from mpt.methods.simple import Oracle
from mpt.methods.spaces import space_of
from mpt.runs.checkpoint import CheckpointError

TOLERANCE = 1e-3
"""Relative; messages are float32."""


@dataclass(frozen=True)
class Check:
    """One of them.

    Attributes:
        name: what is to hold.
        passed: whether it does; None where it could not be tried.
        said: what was found, and what would be right.
    """

    name: str
    passed: bool | None
    said: str = ""


def check_method(spec: str) -> list[Check]:
    """All checks of the method of that name, or `path.py:Class`.

    Raises:
        MethodError: there is no such method, or it lacks what the protocol asks for.
    """

    def make() -> Any:
        return find_method(spec)

    method, found = make(), CheckedMethod(spec, make)
    typed = _typed(method)
    checks = [Check("attributes are those of the protocol", not typed, typed)]
    if typed:
        return checks
    try:
        base = found.seen(World())
    except BrokenError as broken:
        left = [Check(name, None, "not tried") for name in _CHECKS]
        return [*checks, Check("depart and track give what they should", False, str(broken)), *left]
    unknown = [number for number, prototype in base.prototypes.items() if not np.isfinite(prototype).all()]
    if unknown:
        told = f"no prototype in round {unknown[0]} (NaN), though {World().remaining} samples of the class remain"
        checks.append(Check("depart and track give what they should", False, told))
    else:
        checks.append(Check("depart and track give what they should", True))
    differs = False
    for name, check in _CHECKS.items():
        try:
            checks.append(Check(name, None, "not tried") if differs else Check(name, True, check(found, method, base)))
        except BrokenError as broken:
            checks.append(Check(name, False, str(broken)))
            differs = check is _deterministic
    return checks


class BrokenError(Exception):
    """A check fails; the message says what was found and what would be right."""


@dataclass(frozen=True)
class CheckedMethod:
    """A method under check."""

    spec: str
    make: Make

    def seen(self, world: World, where: str = "", **how: bool) -> Observation:
        """What it does there; `BrokenError` with a sentence about what it raised, and where in the user's file."""
        try:
            return observe(self.make, world, **how)
        except (MethodError, CheckpointError) as error:
            raise BrokenError(f"{where}{error}") from error
        except (Exception, SystemExit) as error:  # a method may raise whatever it likes
            raise BrokenError(f"{where}{type(error).__name__}: {error}{self._line(error)}") from error

    def _line(self, error: BaseException) -> str:
        path = METHODS.file_of(self.spec)
        if path is None:
            return ""
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path.resolve()]
        return f" ({path.name}, line {lines[-1]})" if lines else ""


def _typed(method: Any) -> str:
    """What is wrong with the attributes; "" where nothing is."""
    if not isinstance(method.name, str) or split(method.name) != (method.name,):
        return f"name is {method.name!r}, should be a text without commas: the row in tables"
    for name in ("depart", "track"):
        if not callable(getattr(method, name)):
            return f"{name} is {getattr(method, name)!r}, should be a method"
    try:
        Traits.of(method)
        space_of(method)
    except (StatisticsError, MethodError) as error:
        return str(error).replace(": ", " is ", 1)
    return ""


def _no_reference(found: CheckedMethod, method: Any, base: Observation) -> str:
    compared = isinstance(method, Oracle) or (isinstance(method, MptDuo) and method.knows == "train")
    if base.references and not compared:
        raise BrokenError(
            f"it reads context.oracle in round {base.references[0]}: samples that no method may know; ask vehicles "
            "with context.report or context.total"
        )
    return "it reads context.oracle, as a row to compare with may" if base.references else ""


def _counted(found: CheckedMethod, method: Any, base: Observation) -> str:
    if not _same(base, found.seen(World(), "with the vehicles' memory apart from the server's: ", isolated=True)):
        raise BrokenError(
            "answers tell the server more than they send: with the vehicles' memory apart from the server's the "
            "outcome is another; what the server learns has to be in what a part gives"
        )
    return f"{len(base.sent)} answers to questions of its own" if base.sent else "no questions of its own"


def _no_samples(found: CheckedMethod, method: Any, base: Observation) -> str:
    for sent in base.sent:
        arrays = [row for array in sent.answer for row in np.atleast_2d(array)]
        for features in sent.features:
            if any(_has_row(features, row) for row in arrays):
                raise BrokenError(
                    f"an answer in round {sent.round} has a sample's features in it; send sums over samples"
                )
    doubled = found.seen(World(copies=2), "with every sample twice: ")
    if len(doubled.sent) != len(base.sent):
        raise BrokenError("there are other messages when a vehicle has every sample twice; send sums over samples")
    shuffled = found.seen(World(shuffled=True), "with the samples in another order: ")
    same = len(shuffled.sent) == len(base.sent)
    if not same or not all(_close(one.answer, other.answer, TOLERANCE) for one, other in _pairs(base, shuffled)):
        raise BrokenError(
            "an answer is another one when a vehicle has its samples in another order; send sums over samples"
        )
    return ""


def _deterministic(found: CheckedMethod, method: Any, base: Observation) -> str:
    seen = found.seen(World(), "the second time: ")
    same = len(seen.sent) == len(base.sent)
    if not same or not all(
        _close(a.answer, b.answer, 0) and _close(a.question, b.question, 0) for a, b in _pairs(base, seen)
    ):
        raise BrokenError("the second time other numbers are sent; draw from context.rng alone")
    if not _same(base, seen):
        raise BrokenError("the second time the outcome is another; draw from context.rng alone")
    return ""


def _any_order(found: CheckedMethod, method: Any, base: Observation) -> str:
    if not _same(base, found.seen(World(renamed=True), "with other ids: "), TOLERANCE):
        raise BrokenError("the outcome is another when the vehicles' ids are in another order; sum over their answers")
    return ""


def _resumes(found: CheckedMethod, method: Any, base: Observation) -> str:
    if not _same(base, found.seen(World(), resumed=True)):
        raise BrokenError(
            "resumed from a checkpoint the outcome is another; what a later round needs has to be in what depart "
            "and track give back, not in the method"
        )
    return ""


def _nothing_remains(found: CheckedMethod, method: Any, base: Observation) -> str:
    seen = found.seen(World(remaining=0), "a class may be gone altogether, with NaN as its mean; here: ")
    missing = [number for number, p in seen.prototypes.items() if not np.isfinite(p).all()]
    return f"no prototype in {len(missing)} of {len(seen.prototypes)} rounds: never predicted" if missing else ""


_CHECKS: dict[str, Callable[[CheckedMethod, Any, Observation], str]] = {
    "nothing is known that no method may know": _no_reference,
    "the same seed gives the same bytes and outcome": _deterministic,
    "what vehicles tell is in bytes that are counted": _counted,
    "no answer has data of single samples": _no_samples,
    "the order of the vehicles does not matter": _any_order,
    "a run that was stopped can be resumed": _resumes,
    "it works where no sample of the class remains": _nothing_remains,
}


def _same(one: Observation, other: Observation, tolerance: float = 0.0) -> bool:
    """Whether the outcomes are the same, up to a relative tolerance; of predictions as large a share may differ."""
    if set(one.prototypes) != set(other.prototypes) or set(one.predicted) != set(other.predicted):
        return False
    return all(_close([p], [other.prototypes[k]], tolerance) for k, p in one.prototypes.items()) and all(
        np.mean(p != other.predicted[k]) <= 10 * tolerance for k, p in one.predicted.items()
    )


def _pairs(one: Observation, other: Observation) -> Iterator[tuple[Sent, Sent]]:
    return zip(one.sent, other.sent, strict=True)


def _has_row(features: Floats, row: Floats) -> bool:
    """Whether a vector is one of the rows, to float32."""
    if row.shape != features.shape[1:]:
        return False
    return bool(np.any(np.all(features.astype(np.float32) == row.astype(np.float32), axis=1)))


def _close(ones: Sequence[Any], others: Sequence[Any], tolerance: float) -> bool:
    if len(ones) != len(others):
        return False
    for one, other in zip(ones, others, strict=True):
        if one.shape != other.shape or not np.array_equal(np.isfinite(one), np.isfinite(other)):
            return False
        there = np.isfinite(one)
        with np.errstate(over="ignore", invalid="ignore"):
            size = float(np.abs(one[there]).max(initial=0.0))
            gap = float(np.abs(one[there] - other[there]).max(initial=0.0))
        if not gap <= tolerance * size:
            return False
    return True
