"""A method with questions of its own, in the rounds of a fleet.

Its `depart` and `track` are written as if every answer were there at once. Here they are run with the answers that are;
where one lacks, that is the next question, and they are run again from the start when it has come. So a round is a
dialogue of as many messages as the method's questions follow from each other, and nothing of it needs to be kept.

What `depart` would ask is asked in every round in which a class is watched: who has vanished cannot be asked.
"""

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn

import numpy as np

from mpt.core import ClassStatistics, StatisticsError
from mpt.core.validation import Floats, same
from mpt.core.value import Value
from mpt.draws import numpy_generator
from mpt.methods import Method, Now, Traits
from mpt.methods.simple import Linear
from mpt.protocol.further import MOST, Answered, Further, Request
from mpt.protocol.parts import Part, PartRequest
from mpt.protocol.request import StatisticsRequest
from mpt.tracking import keeping
from mpt.tracking.answers import Snapshot, Taken
from mpt.tracking.book import Book, key_of
from mpt.tracking.errors import FleetError
from mpt.tracking.settings import Settings
from mpt.tracking.state import Kept, Tracked, TrackerState

Head = tuple[Floats, Floats]


class UnansweredError(BaseException):
    """A method asks what nobody has answered yet. No `Exception`: a method that catches those does not catch it."""

    def __init__(self, *requests: Request) -> None:
        super().__init__("asked, and not answered yet")
        self.requests = requests


@dataclass(frozen=True, eq=False)
class Told:
    """What a method made of a round's answers.

    Attributes:
        prototypes: (d,) by departed class.
        kept: by departed class, what the method keeps from now on.
        readout: where the method gives one.
        missing: what is to be asked before anything else can be said.
        problems: a sentence each.
    """

    prototypes: Mapping[int, Floats] = field(default_factory=dict)
    kept: Mapping[int, Kept] = field(default_factory=dict)
    readout: Linear | None = None
    missing: tuple[Request, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prepared:
    """For the day on which a watched class departs.

    Attributes:
        keys: what `depart` asks, by key: kept by holder.
        missing: what is to be asked before that is known.
    """

    keys: frozenset[bytes] = frozenset()
    missing: tuple[Request, ...] = ()


def foreseen(state: TrackerState, base: StatisticsRequest) -> Further | None:
    """What can be asked with a round's first question: all that does not follow from its answers."""
    method = state.settings.speaks
    if method is None:
        return None
    found = dict[bytes, Request]()

    def report(request: StatisticsRequest, *, staying: bool = False) -> NoReturn:
        raise UnansweredError(*([] if _is_base(request, base) else [request]))

    def answered(request: PartRequest) -> NoReturn:
        raise UnansweredError(request)

    for c, one in [(c, state.tracked.get(c)) for c in base.watched] or [(0, None)]:
        parts = _parts(state.settings, one, base, c, answered)
        now = _now(state.settings, base, c, report, parts, None, state.held_out)
        for call in _calls(method, one, now, watched=c in base.watched):
            try:
                call()
            except UnansweredError as lacking:
                found |= {key_of(request): request for request in lacking.requests}
            except (Exception, SystemExit):  # said when there are answers
                continue
    return Further(base.round, tuple(found.values())[:MOST]) if found else None


def _calls(method: Method, one: Tracked | None, now: Now, *, watched: bool) -> list[Callable[[], Any]]:
    """What a method is called for in a round, for one class."""
    if one is not None:
        return [] if one.kept is None else [lambda: method.track(_own(one.kept), now)]
    calls: list[Callable[[], Any]] = [lambda: method.depart(now)] if watched else []
    if not Traits.of(method).needs_departure:
        calls.append(lambda: method.track(None, now))
    return calls


def _own(kept: Kept | None) -> Any:
    value = None if kept is None else kept.value
    return value if isinstance(value, Value) else copy.deepcopy(value)


def prepare(settings: Settings, taken: Taken, base: StatisticsRequest) -> Prepared:
    """What `depart` would ask of the watched classes, as if every vehicle stayed."""
    method, snapshot = settings.speaks, taken.snapshot
    if method is None or snapshot is None:
        return Prepared()
    missing, used = dict[bytes, Request](), set[bytes]()
    for c in base.watched:
        try:
            method.depart(_live(settings, snapshot, taken.book, base, c, None, None, (), used))
        except UnansweredError as lacking:
            missing |= {key_of(request): request for request in lacking.requests}
        except (Exception, SystemExit):  # said on the day
            continue
    return Prepared(frozenset(used), tuple(missing.values()))


def listen(
    settings: Settings,
    tracked: Mapping[int, Tracked],
    measured: Collection[int],
    taken: Taken,
    base: StatisticsRequest,
    head: Head | None,
) -> Told:
    """What the method makes of the answers that have come, or what it asks next.

    Args:
        settings: of the fleet.
        tracked: the classes with a deposit, after this round's departures.
        measured: those of them that need no method in this round.
        taken: the answers.
        base: the statistics that everybody was asked for.
        head: of the round's global model, where the server knows it.
    """
    method, snapshot = settings.speaks, taken.snapshot
    if method is None or snapshot is None:
        return Told()
    prototypes, kept, readouts = dict[int, Floats](), dict[int, Kept](), list[Linear]()
    missing, problems = dict[bytes, Request](), list[str]()
    subjects: list[tuple[int, Tracked | None]] = [
        (c, one) for c, one in sorted(tracked.items()) if c not in measured and one.kept is not None
    ]
    held_out = tuple(sorted(tracked)) if settings.holds_out else ()
    always = not Traits.of(method).needs_departure
    anyone: list[tuple[int, Tracked | None]] = [([*sorted(tracked), *base.watched, 0][0], None)] if always else []
    for c, one in subjects or anyone:
        now = _live(settings, snapshot, taken.book, base, c, one, head, held_out, set())
        try:
            after, outcome = method.track(None if one is None else _own(one.kept), now)
            if isinstance(outcome, np.ndarray) and one is not None:
                prototypes[c] = _prototype(outcome, settings.dim)
            elif not isinstance(outcome, np.ndarray):
                readouts.append(_readout(outcome, settings))
            if one is not None:
                kept[c] = storable(after, method)
        except UnansweredError as lacking:
            missing |= {key_of(request): request for request in lacking.requests}
        except (Exception, SystemExit) as error:
            prototypes.pop(c, None)
            problems.append(_said(settings, c, error, one))
    return Told(prototypes, kept, readouts[0] if readouts else None, tuple(missing.values()), tuple(problems))


def _said(settings: Settings, c: int, error: BaseException, one: Tracked | None) -> str:
    plain = isinstance(error, StatisticsError | FleetError)
    what = str(error) if plain else f"{type(error).__name__}: {error}"
    instead = "" if one is None else "; it is reconstructed as by mpt in this round"
    return f"class {settings.name_of(c)}: {settings.method}: {what}{instead}"


def storable(value: Any, method: Method) -> Kept:
    """What a method keeps; `FleetError` where it could not be stored."""
    keeping.to_bytes(value, method)
    return Kept(value)


def keep(settings: Settings, snapshot: Snapshot, c: int, gone: Collection[str]) -> Kept:
    """What the method keeps of a class, from the last round with its vehicles; `StatisticsError` where it cannot.

    Args:
        settings: of the fleet, whose method has questions of its own.
        snapshot: of that round.
        c: the class.
        gone: the vehicles that do not stay.
    """
    method, stats = settings.speaks, snapshot.everybody
    assert method is not None

    def report(request: StatisticsRequest, *, staying: bool = False) -> ClassStatistics:
        if _from_base(request, stats):
            found = snapshot.without(gone) if staying else stats
            if found is None:
                raise StatisticsError("nobody stays")
            return _without_scatter(found, request)
        answered = snapshot.further_of(request, gone if staying else ())
        assert isinstance(answered, ClassStatistics)
        return answered

    def answered(request: PartRequest) -> dict[str, Floats]:
        found = snapshot.further_of(request)
        assert isinstance(found, dict)
        return found

    base = StatisticsRequest(snapshot.round, settings.num_classes, watched=stats.watched, origin=stats.origin)
    now = _now(settings, base, c, report, _parts(settings, None, base, c, answered), None, ())
    try:
        return storable(method.depart(now), method)
    except StatisticsError:
        raise
    except (Exception, SystemExit) as error:
        what = str(error) if isinstance(error, FleetError) else f"{type(error).__name__}: {error}"
        raise StatisticsError(f"{settings.method}: {what}") from error


def _live(
    settings: Settings,
    snapshot: Snapshot,
    book: Book,
    base: StatisticsRequest,
    c: int,
    one: Tracked | None,
    head: Head | None,
    held_out: tuple[int, ...],
    keys: set[bytes],
) -> Now:
    """A round with the answers that have come, for one class; what is taken from the book goes into `keys`."""
    parts = _parts(settings, one, base, c, _answers(book, keys))
    return _now(settings, base, c, _reports(snapshot, book, keys), parts, head, held_out)


def _now(
    settings: Settings,
    base: StatisticsRequest,
    c: int,
    report: Callable[..., ClassStatistics],
    summed: Callable[[Part, Mapping[str, Floats]], dict[str, Floats]],
    head: Head | None,
    held_out: tuple[int, ...],
) -> Now:
    def ask(*_: Any) -> NoReturn:
        raise StatisticsError("now.ask sends a function, which no fleet does; declare a part and use now.total")

    def reference(_: Literal["test", "train"]) -> NoReturn:
        raise StatisticsError("now.reference is known on one machine alone")

    return Now(
        round=base.round,
        departed=c,
        num_classes=settings.num_classes,
        classifier=head,
        report=report,
        ask=ask,
        reference=reference,
        rng=numpy_generator(settings.seed, "method", base.round),
        held_out=held_out,
        watched=base.watched,
        origin=base.origin,
        summed=summed,
    )


def _parts(
    settings: Settings,
    one: Tracked | None,
    base: StatisticsRequest,
    c: int,
    answered: Callable[[PartRequest], dict[str, Floats]],
) -> Callable[[Part, Mapping[str, Floats]], dict[str, Floats]]:
    """What `now.total` asks by."""

    def summed(part: Part, arrays: Mapping[str, Floats]) -> dict[str, Floats]:
        reference = None
        if part.earlier:
            if one is None or one.reference is None:
                raise StatisticsError(f"{part.name}: there is no departure-time model to read")
            reference = one.reference.round
        sent = {name: np.asarray(array, dtype=np.float32).astype(np.float64) for name, array in arrays.items()}
        return answered(PartRequest(base.round, settings.num_classes, c, settings.method, part.name, reference, sent))

    return summed


def _reports(snapshot: Snapshot, book: Book, keys: set[bytes]) -> Callable[..., ClassStatistics]:
    """What `now.report` gives from a round's answers; what it takes from the book goes into `keys`."""

    def report(request: StatisticsRequest, *, staying: bool = False) -> ClassStatistics:
        if _from_base(request, snapshot.everybody):
            return _without_scatter(snapshot.everybody, request)
        found = _looked_up(book, request, keys)
        assert isinstance(found, ClassStatistics)
        return found

    return report


def _answers(book: Book, keys: set[bytes]) -> Callable[[PartRequest], dict[str, Floats]]:
    def answered(request: PartRequest) -> dict[str, Floats]:
        found = _looked_up(book, request, keys)
        assert isinstance(found, dict)
        return found

    return answered


def _looked_up(book: Book, request: Request, keys: set[bytes]) -> Answered:
    key = key_of(request)
    if key not in book.answers:
        raise UnansweredError(request)
    keys.add(key)
    return book.merged(request)


def _is_base(request: StatisticsRequest, base: StatisticsRequest) -> bool:
    """Whether everybody's statistics answer a request: they are the same, or have a scatter besides."""
    return key_of(replace(request, scatter=base.scatter)) == key_of(base) and (base.scatter or not request.scatter)


def _from_base(request: StatisticsRequest, stats: ClassStatistics) -> bool:
    origin = np.zeros(stats.dim) if request.origin is None else request.origin
    plain = request.span is None and not request.unit and stats.span is None
    there = stats.scatter is not None or not request.scatter
    return plain and there and request.watched == stats.watched and same(origin, stats.origin)


def _without_scatter(stats: ClassStatistics, request: StatisticsRequest) -> ClassStatistics:
    return stats if request.scatter else replace(stats, scatter=None)


def _prototype(outcome: Floats, dim: int) -> Floats:
    if outcome.shape != (dim,):
        raise StatisticsError(f"it gave an array of shape {outcome.shape}, should be a prototype ({dim},)")
    if not np.isfinite(outcome).all():
        raise StatisticsError("it has no prototype (NaN)")
    return np.array(outcome, dtype=np.float64)


def _readout(outcome: Any, settings: Settings) -> Linear:
    """As a linear layer, which can be stored and deployed."""
    if not hasattr(outcome, "to_linear"):
        what = type(outcome).__name__
        raise StatisticsError(
            f"it gave a {what}, should be a prototype, or have to_linear(): a fleet stores its readout"
        )
    weight, bias = (np.asarray(array, dtype=np.float64) for array in outcome.to_linear())
    if weight.shape != (settings.num_classes, settings.dim) or bias.shape != (settings.num_classes,):
        raise StatisticsError(f"its readout has shapes {weight.shape} and {bias.shape}, should be (C, d) and (C,)")
    return Linear(weight, bias)
