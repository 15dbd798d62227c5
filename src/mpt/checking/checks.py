"""The checks, one function each, and what to do where one fails."""

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from mpt.checking.observed import Make, Seen, Sent, observe
from mpt.checking.vehicles import OnVehicleError
from mpt.checking.world import World
from mpt.checkpoint import CheckpointError
from mpt.core import ClassStatistics, StatisticsError
from mpt.core.cross import Still
from mpt.methods import MethodError, file_of, find_method
from mpt.methods.method import Training, Traits
from mpt.methods.simple import Reference
from mpt.protocol.cross_request import CrossRequest
from mpt.protocol.messages import unpack

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

    method, found = make(), Found(spec, make)
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
class Found:
    """A method under check."""

    spec: str
    make: Make

    def seen(self, world: World, where: str = "", **how: bool) -> Seen:
        """What it does there; `BrokenError` with a sentence about what it raised, and where in the user's file."""
        try:
            return observe(self.make, world, **how)
        except (MethodError, CheckpointError, OnVehicleError) as error:
            raise BrokenError(f"{where}{error}") from error
        except (Exception, SystemExit) as error:  # a method may raise whatever it likes
            raise BrokenError(f"{where}{type(error).__name__}: {error}{self._line(error)}") from error

    def _line(self, error: BaseException) -> str:
        path = file_of(self.spec)
        if path is None:
            return ""
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path.resolve()]
        return f" ({path.name}, line {lines[-1]})" if lines else ""


def _typed(method: Any) -> str:
    """What is wrong with the attributes; "" where nothing is."""
    if not isinstance(method.name, str) or not method.name.strip() or "," in method.name:
        return f"name is {method.name!r}, should be a text without commas: the row in tables"
    if method.training not in get_args(Training):
        return f"training is {method.training!r}, should be one of {', '.join(get_args(Training))}"
    for name in ("depart", "track"):
        if not callable(getattr(method, name)):
            return f"{name} is {getattr(method, name)!r}, should be a method"
    try:
        Traits.of(method)
    except StatisticsError as error:
        return str(error).replace(": ", " is ", 1)
    return ""


def _no_reference(found: Found, method: Any, base: Seen) -> str:
    if base.references and not isinstance(method, Reference):
        raise BrokenError(
            f"it reads now.reference in round {base.references[0]}: samples that no method may know; ask vehicles with "
            "now.report or now.ask"
        )
    return "it reads now.reference, as a row to compare with may" if base.references else ""


def _counted(found: Found, method: Any, base: Seen) -> str:
    if base.carried:
        raise BrokenError(
            f"an answer uses {', '.join(sorted(base.carried))} of the server's, which no message has brought; put it "
            "into the question, so that its bytes are counted"
        )
    if not _same(base, found.seen(World(), "with the vehicles' memory apart from the server's: ", isolated=True)):
        raise BrokenError(
            "answers tell the server more than they send: with the vehicles' memory apart from the server's the "
            "outcome is another; what the server learns has to be in the bytes"
        )
    return f"{len(base.sent)} answers to questions of its own" if base.sent else "no questions of its own"


def _no_samples(found: Found, method: Any, base: Seen) -> str:
    for sent in base.sent:
        rows = [row.astype(kind).tobytes() for h in sent.features for kind in (np.float32, np.float64) for row in h]
        if any(row in sent.answer for row in rows):
            raise BrokenError(f"an answer in round {sent.round} has a sample's features in it; send sums over samples")
    doubled = found.seen(World(copies=2), "with every sample twice: ")
    if len(doubled.sent) != len(base.sent):
        raise BrokenError("there are other messages when a vehicle has every sample twice; send sums over samples")
    for one, other in zip(base.sent, doubled.sent, strict=True):
        if len(one.answer) != len(other.answer):
            raise BrokenError(
                f"an answer goes from {len(one.answer)} to {len(other.answer)} bytes when a vehicle has every sample "
                "twice; send sums, whose size is fixed"
            )
    shuffled = found.seen(World(shuffled=True), "with the samples in another order: ")
    read = zip(_numbers(base.sent), _numbers(shuffled.sent), strict=False)
    if len(shuffled.sent) != len(base.sent) or not all(map(_alike, base.sent, shuffled.sent, read)):
        raise BrokenError(
            "an answer is another one when a vehicle has its samples in another order; send sums over samples"
        )
    return ""


def _deterministic(found: Found, method: Any, base: Seen) -> str:
    seen = found.seen(World(), "the second time: ")
    if [(s.question, s.answer) for s in base.sent] != [(s.question, s.answer) for s in seen.sent]:
        raise BrokenError("the second time other bytes are sent; draw from now.rng alone")
    if not _same(base, seen):
        raise BrokenError("the second time the outcome is another; draw from now.rng alone")
    return ""


def _any_order(found: Found, method: Any, base: Seen) -> str:
    if not _same(base, found.seen(World(renamed=True), "with other ids: "), TOLERANCE):
        raise BrokenError("the outcome is another when the vehicles' ids are in another order; sum over their answers")
    return ""


def _goes_on(found: Found, method: Any, base: Seen) -> str:
    if not _same(base, found.seen(World(), resumed=True)):
        raise BrokenError(
            "gone on with from a checkpoint the outcome is another; what a later round needs has to be in what depart "
            "and track give back, not in the method"
        )
    return ""


def _nothing_remains(found: Found, method: Any, base: Seen) -> str:
    seen = found.seen(World(remaining=0), "a class may be gone altogether, with NaN as its mean; here: ")
    missing = [number for number, p in seen.prototypes.items() if not np.isfinite(p).all()]
    return f"no prototype in {len(missing)} of {len(seen.prototypes)} rounds: never predicted" if missing else ""


_CHECKS: dict[str, Callable[[Found, Any, Seen], str]] = {
    "nothing is known that no method may know": _no_reference,
    "the same seed gives the same bytes and outcome": _deterministic,
    "what vehicles tell is in bytes that are counted": _counted,
    "no answer has data of single samples": _no_samples,
    "the order of the vehicles does not matter": _any_order,
    "a run that was stopped goes on": _goes_on,
    "it works where no sample of the class remains": _nothing_remains,
}


def _same(one: Seen, other: Seen, tolerance: float = 0.0) -> bool:
    """Whether the outcomes are the same, up to a relative tolerance; of predictions as large a share may differ."""
    if set(one.prototypes) != set(other.prototypes) or set(one.predicted) != set(other.predicted):
        return False
    return all(_close([p], [other.prototypes[k]], tolerance) for k, p in one.prototypes.items()) and all(
        np.mean(p != other.predicted[k]) <= 10 * tolerance for k, p in one.predicted.items()
    )


def _alike(one: Sent, other: Sent, numbers: tuple[Sequence[Any], Sequence[Any]]) -> bool:
    """Whether two answers have the same numbers to rounding; of messages in a form of the method's own, guessed."""
    if one.answer == other.answer or _close(*numbers, TOLERANCE):
        return True
    if len(one.answer) != len(other.answer):
        return False
    return any(_close(read(one.answer), read(other.answer), TOLERANCE) for read in (_plain32, _plain64))


def _numbers(sent: Sequence[Sent]) -> Iterator[Sequence[Any]]:
    """The arrays in each answer; none where it is in a form of the method's own."""
    known = dict[bytes, Still]()
    for one in sent:
        try:
            report = CrossRequest.from_bytes(one.question).read(one.answer, known)
        except StatisticsError:
            yield _arrays(one.answer)
        else:
            known[report.still_digest] = report.still
            yield report.counts, report.earlier, report.sums, report.gram, report.cross


def _arrays(message: bytes) -> Sequence[Any]:
    try:
        return unpack(message)
    except StatisticsError:
        pass
    try:
        stats = ClassStatistics.from_bytes(message)
    except StatisticsError:
        return ()
    scatter = () if stats.scatter is None else (stats.scatter,)
    return stats.counts, stats.sums, stats.squares, *scatter


def _plain32(message: bytes) -> Sequence[Any]:
    return () if len(message) % 4 else (np.frombuffer(message, dtype="<f4").astype(np.float64),)


def _plain64(message: bytes) -> Sequence[Any]:
    return () if len(message) % 8 else (np.frombuffer(message, dtype="<f8"),)


def _close(ones: Sequence[Any], others: Sequence[Any], tolerance: float) -> bool:
    if not ones or len(ones) != len(others):
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
