"""A method with questions of its own, in the rounds of a fleet.

Its `depart` and `track` are written as if every answer were there at once. Here they are run with the answers that are;
where one lacks, that is the next question, and they are run again from the start when it has come. So a round is a
dialogue of as many messages as the method's questions follow from each other, and nothing of it needs to be kept.

What `depart` would ask is asked in every round in which a class is watched: who has vanished cannot be asked.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn

import numpy as np

from mpt.base.generators import numpy_generator
from mpt.core import ClassStatistics, StatisticsError
from mpt.core.validation import Floats
from mpt.methods import Method, RoundContext, Traits
from mpt.methods.simple import Linear
from mpt.protocol.further import MOST, Answered, Further, Request
from mpt.protocol.parts import LARGEST, Asked, Part, PartRequest, parts_of
from mpt.protocol.request import StatisticsRequest
from mpt.tracking import method_state
from mpt.tracking.answers import Snapshot, Taken
from mpt.tracking.book import key_of
from mpt.tracking.errors import FleetError
from mpt.tracking.settings import TrackerSettings
from mpt.tracking.state import Tracked, TrackerState

ClassifierHead = tuple[Floats, Floats]
Lookup = Callable[[Request, bool], Answered | None]
"""The answer to a request, of those who stay alone where that is said; None where nobody was asked yet."""


class UnansweredError(BaseException):
    """A method asks what nobody has answered yet. No `Exception`: a method that catches those does not catch it."""


@dataclass(frozen=True, eq=False)
class Told:
    """What a method made of a round's answers.

    Attributes:
        prototypes: (d,) by departed class.
        method_states: by departed class, what the method keeps from now on.
        readout: where the method gives one.
        missing: what is to be asked before anything else can be said.
        problems: a sentence each.
    """

    prototypes: Mapping[int, Floats] = field(default_factory=dict)
    method_states: Mapping[int, bytes] = field(default_factory=dict)
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
    """What can be asked with a round's first question: what a method asks before it needs an answer."""
    method, settings = state.settings.speaks, state.settings
    if method is None:
        return None
    lacking = list[Request]()

    def lookup(request: Request, staying: bool) -> Answered | None:
        if isinstance(request, StatisticsRequest) and _is_base(request, base):
            raise UnansweredError
        return None

    totals = state.coverage.totals
    for c in base.watched:
        one = state.tracked.get(c)
        context = _context(settings, base, c, one, None, state.held_out, lookup, lacking)
        if one is not None and one.method_state is not None:
            _tried(_tracked, method, one, context)
        if one is None or settings.carries(int(totals[c]), one.samples):
            _tried(method.depart, context)
    if not Traits.of(method).needs_departure and not state.tracked:
        context = _context(settings, base, _anyone(state.tracked, base), None, None, (), lookup, lacking)
        _tried(method.track, None, context)
    found = {key_of(request): request for request in lacking}
    return Further(base.round, tuple(found.values())[:MOST]) if found else None


def _tried(call: Callable[..., object], *given: object) -> None:
    """To find out what a method asks; what it raises is said when there are answers."""
    try:
        call(*given)
    except (Exception, SystemExit, UnansweredError):
        return


def _anyone(tracked: Mapping[int, Tracked], base: StatisticsRequest) -> int:
    """A class to ask for where a readout is of all of them."""
    return [*sorted(tracked), *base.watched, 0][0]


def prepare(state: TrackerState, taken: Taken, base: StatisticsRequest) -> Prepared:
    """What `depart` would ask of the watched classes, as if every vehicle stayed."""
    method, settings, snapshot = state.settings.speaks, state.settings, taken.snapshot
    if method is None or snapshot is None:
        return Prepared()
    lacking, used = list[Request](), set[bytes]()
    lookup = _heard(snapshot, taken, base, used)
    for c in base.watched:
        one = state.tracked.get(c)
        if one is None or settings.carries(int(snapshot.everybody.counts[c]), one.samples):
            context = _context(settings, base, c, None, None, (), lookup, lacking)
            _tried(method.depart, context)
    return Prepared(frozenset(used), tuple(lacking))


def listen(
    settings: TrackerSettings,
    tracked: Mapping[int, Tracked],
    measured: Collection[int],
    held_out: tuple[int, ...],
    taken: Taken,
    base: StatisticsRequest,
    head: ClassifierHead | None,
) -> Told:
    """What the method makes of the answers that have come, or what it asks next.

    Args:
        settings: of the fleet.
        tracked: the classes with a deposit, after this round's departures.
        measured: those of them that need no method in this round.
        held_out: those whose samples are not trained on.
        taken: the answers.
        base: the statistics that everybody was asked for.
        head: of the round's global model, where the server knows it.
    """
    method, snapshot = settings.speaks, taken.snapshot
    if method is None or snapshot is None:
        return Told()
    prototypes, states, readout = dict[int, Floats](), dict[int, bytes](), None
    missing, problems, lookup = list[Request](), list[str](), _heard(snapshot, taken, base, set())
    subjects: list[tuple[int, Tracked | None]] = [
        (c, one) for c, one in sorted(tracked.items()) if c not in measured and one.method_state is not None
    ]
    if not subjects and not Traits.of(method).needs_departure:
        subjects = [(_anyone(tracked, base), None)]
    for c, one in subjects:
        lacking = list[Request]()
        context = _context(settings, base, c, one, head, held_out, lookup, lacking)
        try:
            after, outcome = _tracked(method, one, context)
            if lacking:
                raise UnansweredError
            if not isinstance(outcome, np.ndarray):
                readout = _readout(outcome, settings)
            elif one is not None:
                prototypes[c] = _prototype(outcome, settings.dim)
            if one is not None:
                states[c] = method_state.stored(after, method)
        except UnansweredError:
            missing += lacking
        except (Exception, SystemExit) as error:
            prototypes.pop(c, None)
            problems.append(_said(settings, c, error, one))
        if readout is not None:
            break
    return Told(prototypes, states, readout, tuple(missing), tuple(problems))


def _said(settings: TrackerSettings, c: int, error: BaseException, one: Tracked | None) -> str:
    plain = isinstance(error, StatisticsError | FleetError)
    what = str(error) if plain else f"{type(error).__name__}: {error}"
    instead = "" if one is None else "; it is reconstructed as by mpt in this round"
    return f"class {settings.name_of(c)}: {settings.method}: {what}{instead}"


def _tracked(method: Method, one: Tracked | None, context: RoundContext) -> tuple[Any, Any]:
    """What a method makes of a class, given what it keeps of it, which is its own to change."""
    state = None if one is None or one.method_state is None else method_state.from_bytes(one.method_state, method)
    return method.track(state, context)


def keep(settings: TrackerSettings, snapshot: Snapshot, c: int, gone: Collection[str]) -> bytes:
    """What the method keeps of a class, from the last round with its vehicles; `StatisticsError` where it cannot.

    Args:
        settings: of the fleet, whose method has questions of its own.
        snapshot: of that round.
        c: the class.
        gone: the vehicles that do not stay.
    """
    method, stats = settings.speaks, snapshot.everybody
    assert method is not None

    def lookup(request: Request, staying: bool) -> Answered:
        without = gone if staying else ()
        if not isinstance(request, StatisticsRequest) or not _is_base(request, base):
            return snapshot.further_of(request, without)
        found = snapshot.without(without)
        if found is None:
            raise StatisticsError("nobody stays")
        return _without_scatter(found, request)

    scatter, origin = stats.scatter is not None, stats.origin
    base = StatisticsRequest(snapshot.round, settings.num_classes, stats.watched, scatter=scatter, origin=origin)
    try:
        return method_state.stored(method.depart(_context(settings, base, c, None, None, (), lookup, [])), method)
    except StatisticsError:
        raise
    except (Exception, SystemExit) as error:
        what = str(error) if isinstance(error, FleetError) else f"{type(error).__name__}: {error}"
        raise StatisticsError(f"{settings.method}: {what}") from error


def _heard(snapshot: Snapshot, taken: Taken, base: StatisticsRequest, used: set[bytes]) -> Lookup:
    """Answers of a round; the keys of those that are not in everybody's statistics go into `used`."""

    def lookup(request: Request, staying: bool) -> Answered | None:
        if isinstance(request, StatisticsRequest) and _is_base(request, base):
            return _without_scatter(snapshot.everybody, request)
        key = key_of(request)
        if key not in taken.book.answers:
            return None
        used.add(key)
        return taken.book.merged(request)

    return lookup


def _context(
    settings: TrackerSettings,
    base: StatisticsRequest,
    c: int,
    one: Tracked | None,
    head: ClassifierHead | None,
    held_out: tuple[int, ...],
    lookup: Lookup,
    lacking: list[Request],
) -> RoundContext:
    """A round for a method and a class; what it asks and nobody has answered goes into `lacking`."""

    def found(request: Request, staying: bool = False) -> Answered:
        if (request.round, request.num_classes) != (base.round, base.num_classes):
            raise StatisticsError(
                f"a request for round {request.round}, should be for {base.round}: use context.request"
            )
        answer = lookup(request, staying)
        if answer is None:
            lacking.append(request)
            raise UnansweredError
        return answer

    def report(request: StatisticsRequest, *, staying: bool = False) -> ClassStatistics:
        answer = found(request, staying)
        assert isinstance(answer, ClassStatistics)
        return answer

    def summed(part: Part, asked: Asked) -> dict[str, Floats]:
        answer = found(_part_request(settings, asked, one, part))
        assert isinstance(answer, dict)
        return answer

    def oracle(_: Literal["test", "train"]) -> NoReturn:
        raise StatisticsError("context.oracle is known on one machine alone")

    return RoundContext(
        round=base.round,
        departed=c,
        num_classes=settings.num_classes,
        classifier=head,
        report=report,
        summed=summed,
        oracle=oracle,
        rng=numpy_generator(settings.seed, "method", base.round),
        held_out=held_out,
        watched=base.watched,
        origin=base.origin,
    )


def _part_request(settings: TrackerSettings, asked: Asked, one: Tracked | None, part: Part) -> PartRequest:
    if part.name not in parts_of(settings.speaks):
        raise StatisticsError(f"{part.name}: no function of the method has that name, vehicles could not find it")
    reference = None
    if part.earlier:
        if one is None or one.reference is None:
            raise StatisticsError(f"{part.name}: there is no departure-time model to read")
        reference = one.reference.round
    for name, array in asked.arrays.items():
        if not np.isfinite(array).all() or np.abs(array).max(initial=0) > LARGEST:
            raise StatisticsError(f"{part.name}: {name} should be finite and at most {LARGEST:.0e}")
    about = asked.round, asked.num_classes, asked.departed
    return PartRequest(*about, settings.method, part.name, reference, asked.arrays)


def _is_base(request: StatisticsRequest, base: StatisticsRequest) -> bool:
    """Whether everybody's statistics answer a request: they are the same, or have a scatter besides."""
    return key_of(replace(request, scatter=base.scatter)) == key_of(base) and (base.scatter or not request.scatter)


def _without_scatter(stats: ClassStatistics, request: StatisticsRequest) -> ClassStatistics:
    return stats if request.scatter else replace(stats, scatter=None)


def _prototype(outcome: Any, dim: int) -> Floats:
    if outcome.shape != (dim,) or np.iscomplexobj(outcome):
        raise StatisticsError(f"it gave {outcome.dtype} of shape {outcome.shape}, should be a prototype ({dim},)")
    made: Floats = np.array(outcome, dtype=np.float64)
    if not np.isfinite(made).all():
        raise StatisticsError("it has no prototype (NaN)")
    if np.abs(made).max() > LARGEST**0.5:
        raise StatisticsError(f"its prototype has numbers up to {np.abs(made).max():.1e}, which no feature has")
    return made


def _readout(outcome: Any, settings: TrackerSettings) -> Linear:
    """As a linear layer, which can be stored and deployed."""
    if not hasattr(outcome, "to_linear"):
        what = type(outcome).__name__
        raise StatisticsError(f"it gave a {what}, should be a prototype, or have to_linear(): a fleet stores it")
    weight, bias = (np.asarray(array, dtype=np.float64) for array in outcome.to_linear())
    if weight.shape != (settings.num_classes, settings.dim) or bias.shape != (settings.num_classes,):
        raise StatisticsError(f"its readout has shapes {weight.shape} and {bias.shape}, should be (C, d) and (C,)")
    if not np.isfinite(weight).all() or np.isnan(bias).any() or np.isposinf(bias).any():
        raise StatisticsError("its readout should be finite, but for a bias of minus infinity")
    return Linear(weight, bias)
