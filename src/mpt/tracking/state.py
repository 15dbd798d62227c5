"""All that the server of a fleet knows between two rounds, as one value and as bytes."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpt.core import ClassStatistics, Deposit, StatisticsError
from mpt.core.health import Health
from mpt.core.validation import Floats, Ints
from mpt.core.wire import Reader, Writer
from mpt.methods.simple import Linear
from mpt.tracking import method_state, roll
from mpt.tracking.answers import Earlier, Snapshot
from mpt.tracking.book import Shared
from mpt.tracking.coverage import Coverage, Watch
from mpt.tracking.errors import FleetError
from mpt.tracking.roster import AWAITED, Decision, Member, Roster
from mpt.tracking.settings import TrackerSettings
from mpt.tracking.views import Views

_KIND = b"T"
_SPAN, _ORIGIN, _REMEMBERED, _CROSS, _SPOKEN, _LINEAR, _VIEWS = 1, 2, 4, 8, 16, 32, 64


@dataclass(frozen=True, eq=False)
class ReferenceModel:
    """What vehicles make the cross moments of a departed class with.

    Attributes:
        round: the reference model is that round's global model.
        origin: (d,), a vector near its features.
        weights: (C,), how much each class counts.
    """

    round: int
    origin: Floats
    weights: Floats


@dataclass(frozen=True, eq=False)
class Tracked:
    """A class with a deposit.

    Attributes:
        deposit: of the class.
        owners: the vehicles whose absence it was made for.
        round: the round whose statistics it was made from.
        since: the round in which it was made.
        samples: that the class had then, on all vehicles.
        reference: of the method "mpt-x" and others that read departure-time models; None where the class is tracked as
            by "mpt".
        method_state: what a method with questions of its own keeps, as `mpt.tracking.method_state` writes
            it; None where the class is tracked as by "mpt".
    """

    deposit: Deposit
    owners: tuple[str, ...]
    round: int
    since: int
    samples: int
    reference: ReferenceModel | None = None
    method_state: bytes | None = None

    @property
    def departed(self) -> int:
        """The class."""
        return self.deposit.departed

    def waits(self, roster: Roster) -> bool:
        """Whether an owner may be back: it is suspected, or is there and does not count."""
        return any(roster.state(v) in AWAITED for v in self.owners)


@dataclass(frozen=True, eq=False)
class TrackerState:
    """What a `Tracker` knows between two rounds.

    Attributes:
        settings: of the fleet.
        round: the last round that was closed.
        roster: who is there.
        counts: (C,), what each vehicle that is not departed reported last.
        watch: the watched classes of the next request.
        tracked: the classes with a deposit, by class.
        stale_offsets: (d,) by vehicle and class: the offset of its remaining samples in its last answer, see
            `mpt.tracking.stale`; of vehicles that are not departed, and of classes with a deposit.
        held_out: classes whose remaining samples are held out of training.
        approved: of a fleet in shadow mode, the classes that may be held out.
        lacking: by vehicle that is not departed, the rounds of the reference models that it does not have.
        health: of the classes that were reconstructed in the last round, where the method knows.
        outward: the classes that the readout has further out than their prototypes, Eq. (X10): those that nobody trains
            any more and that were reconstructed from cross moments.
        snapshot: the statistics of the last round that somebody answered.
        trusted: by holder of a watched class that is there and does not count, the snapshot that its last trusted
            answer is in.
        orders: how many of the operator's orders have been carried out.
        refusals: how many answers and updates were refused so far, by reason.
        clipped: the vehicles of whose last answer not all counted.
        prototypes: (C, d), the latest; a row of NaN where a class never had one, or is lost.
        made: (C,), the round that each is from; -1 where there is none.
        linear: the readout of a method that gives one; None where prototypes are read out.
        views: of the method "mpt-duo", what readouts of two views are made of.
        span: (k, d) or None, of the next request.
        origin: (d,) or None, of the next request.
        decisions: of the last round.
        problems: of the last round.
    """

    settings: TrackerSettings
    round: int
    prototypes: Floats
    made: Ints
    roster: Roster = field(default_factory=Roster)
    counts: Mapping[str, Ints] = field(default_factory=dict)
    watch: Watch = field(default_factory=Watch)
    tracked: Mapping[int, Tracked] = field(default_factory=dict)
    stale_offsets: Mapping[str, Mapping[int, Floats]] = field(default_factory=dict)
    held_out: tuple[int, ...] = ()
    approved: tuple[int, ...] = ()
    lacking: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    health: Mapping[int, Health] = field(default_factory=dict)
    outward: tuple[int, ...] = ()
    snapshot: Snapshot | None = None
    trusted: Mapping[str, Snapshot] = field(default_factory=dict)
    orders: int = 0
    refusals: Mapping[str, int] = field(default_factory=dict)
    clipped: tuple[str, ...] = ()
    linear: Linear | None = None
    views: Views = field(default_factory=Views)
    span: Floats | None = None
    origin: Floats | None = None
    decisions: tuple[Decision, ...] = ()
    problems: tuple[str, ...] = ()

    @classmethod
    def start(cls, settings: TrackerSettings, round: int) -> "TrackerState":
        """Before the first round, or from `round` on."""
        nothing = np.full((settings.num_classes, settings.dim), np.nan)
        watch = Watch(dict.fromkeys(settings.watch, round + 1), dict.fromkeys(settings.watch, 0))
        return cls(settings, round, nothing, np.full(settings.num_classes, -1), watch=watch)

    @property
    def coverage(self) -> Coverage:
        """Of the classes over the vehicles that are not departed."""
        return Coverage.of(self.counts, self.settings.num_classes)


def to_bytes(state: TrackerState) -> bytes:
    """The state as bytes for `from_bytes`: the names and numbers as JSON, the arrays in the core's envelope."""
    stats = [] if state.snapshot is None else [*_reports(state.snapshot)]
    frame = stats[0] if stats else None
    tracked = [state.tracked[c] for c in sorted(state.tracked)]
    referred = [t.reference for t in tracked if t.reference is not None]
    earlier = {} if state.snapshot is None else state.snapshot.earlier
    stale = [(v, c) for v in sorted(state.stale_offsets) for c in sorted(state.stale_offsets[v])]
    about = _about(state, tracked, frame)
    flags = _SPAN * (state.span is not None) | _ORIGIN * (state.origin is not None) | _REMEMBERED * bool(stale)
    flags |= _CROSS * bool(referred or earlier) | _LINEAR * (state.linear is not None)
    spoken = _spoken(state, tracked)
    flags |= _SPOKEN * bool(spoken) | _VIEWS * bool(state.views)
    writer = Writer(_KIND, flags, "float64")
    writer.block(json.dumps(about).encode())
    writer.block(roll.to_bytes(state.roster.members, state.counts))
    for array in (state.prototypes, state.span, state.origin):
        if array is not None:
            writer.exact(array)
    writer.integers(state.made)
    for one in tracked:
        writer.block(one.deposit.to_bytes())
    if frame is not None:
        writer.exact(frame.origin)
        if frame.span is not None:
            writer.exact(frame.span)
        for report in stats:
            writer.block(report.to_bytes(frame=False))
    for vehicle, c in stale:
        writer.exact(state.stale_offsets[vehicle][c])
    for reference in referred:
        writer.exact(reference.origin)
        writer.exact(reference.weights)
    for number in sorted(earlier):
        writer.integers(earlier[number].counts)
        writer.exact(earlier[number].means)
    for block in spoken:
        writer.block(block)
    if state.linear is not None:
        writer.exact(state.linear.weight)
        writer.exact(state.linear.bias)
    if state.views:
        writer.block(state.views.to_bytes())
    return writer.finish()


def _about(state: TrackerState, tracked: Sequence[Tracked], frame: ClassStatistics | None) -> dict[str, Any]:
    """The names and numbers; `frame` is any of the snapshot's statistics."""
    snapshot = state.snapshot
    stale = [(v, c) for v in sorted(state.stale_offsets) for c in sorted(state.stale_offsets[v])]
    return {
        "settings": dataclasses.asdict(state.settings),
        "round": state.round,
        "forgotten": state.roster.forgotten,
        "ended": state.roster.absences,
        "orders": state.orders,
        "refusals": dict(sorted(state.refusals.items())),
        "clipped": state.clipped,
        "trusted": {v: list(_apart(state)).index(one.round) for v, one in sorted(state.trusted.items())},
        "watch": {
            "since": list(state.watch.since.items()),
            "calm": list(state.watch.calm.items()),
            "crowded": state.watch.crowded,
        },
        "tracked": [
            {"owners": t.owners, "round": t.round, "since": t.since, "samples": int(t.samples)} for t in tracked
        ],
        "kept": [t.method_state is not None for t in tracked],
        "further": 0 if snapshot is None else len(snapshot.further),
        "references": [None if t.reference is None else t.reference.round for t in tracked],
        "earlier": [] if snapshot is None else sorted(snapshot.earlier),
        "lacking": {v: state.lacking[v] for v in sorted(state.lacking)},
        "health": sorted(state.health.items()),
        "outward": state.outward,
        "remembered": stale,
        "held_out": state.held_out,
        "approved": state.approved,
        "snapshot": None
        if snapshot is None
        else {"round": snapshot.round, "rest": snapshot.rest is not None, "holders": sorted(snapshot.holders)},
        "rows": [None if a is None else len(a) for a in (state.span, frame.span if frame else None)],
        "decisions": [dataclasses.astuple(d) for d in state.decisions],
        "problems": state.problems,
    }


def _spoken(state: TrackerState, tracked: Sequence[Tracked]) -> list[bytes]:
    """What a method keeps, and the answers that its `depart` would ask for."""
    blocks = [one.method_state for one in tracked if one.method_state is not None]
    for one in _apart(state).values():
        earlier = {number: tuple(known) for number, known in sorted(one.earlier.items())}
        further = {key: tuple(shared) for key, shared in one.further.items()}
        parts = {"round": one.round, "rest": one.rest, "holders": dict(one.holders), "earlier": earlier}
        blocks.append(method_state.to_bytes({**parts, "further": further}, None))
    for key, shared in sorted(state.snapshot.further.items()) if state.snapshot is not None else ():
        blocks += [key, method_state.to_bytes({"rest": shared.rest, "holders": dict(shared.holders)}, None)]
    return blocks


def _read_spoken(
    reader: Reader, about: Mapping[str, Any], tracked: list[Tracked], snapshot: Snapshot | None
) -> tuple[Snapshot | None, dict[str, Snapshot]]:
    """What `_spoken` gave: into the classes, and into the snapshot, which is given back with the trusted ones."""
    for i, there in enumerate(about["kept"]):
        if there:
            tracked[i] = dataclasses.replace(tracked[i], method_state=reader.block())
    places: Any = about.get("trusted", {})
    if isinstance(places, list):  # an earlier release wrote one for each vehicle
        places = {vehicle: place for place, vehicle in enumerate(places)}
    apart = [_trusted(reader.block()) for _ in range(max(places.values(), default=-1) + 1)]
    trusted = {vehicle: apart[place] for vehicle, place in places.items()}
    further = dict[bytes, Shared]()
    for _ in range(about["further"]):
        key = reader.block()
        further[key] = Shared(**method_state.from_bytes(reader.block(), None))
    return snapshot and dataclasses.replace(snapshot, further=further), trusted


def _apart(state: TrackerState) -> dict[int, Snapshot]:
    """By their round the snapshots that trusted answers are in; there is one of each round."""
    return {state.trusted[vehicle].round: state.trusted[vehicle] for vehicle in sorted(state.trusted)}


def _trusted(block: bytes) -> Snapshot:
    found = method_state.from_bytes(block, None)
    earlier = {number: Earlier(*known) for number, known in found["earlier"].items()}
    further = {key: Shared(*known) for key, known in found["further"].items()}
    return Snapshot(found["round"], found["rest"], found["holders"], earlier, further)


def from_bytes(data: bytes | bytearray | memoryview, chosen: TrackerSettings | None = None) -> TrackerState:
    """What `to_bytes` was called on; settings that an earlier release did not have are as `chosen`.

    Raises:
        FleetError: where the bytes are truncated, altered, of another version or not a tracker's.
    """
    try:
        return _read(Reader(data, _KIND, _SPAN | _ORIGIN | _REMEMBERED | _CROSS | _SPOKEN | _LINEAR | _VIEWS), chosen)
    except FleetError:
        raise
    except StatisticsError as error:
        raise FleetError(str(error)) from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FleetError(f"Tracker bytes: not as this release writes them ({type(error).__name__}: {error})") from error


def _read(reader: Reader, chosen: TrackerSettings | None) -> TrackerState:
    about = json.loads(reader.block())
    if "variant" in about["settings"]:
        raise FleetError("Tracker bytes: of an earlier release, which wrote them in another way; begin a new state")
    newer = {} if chosen is None else dataclasses.asdict(chosen)
    settings = TrackerSettings(**{name: _value(value) for name, value in {**newer, **about["settings"]}.items()})
    c, d = settings.num_classes, settings.dim
    rows, frame_rows = about["rows"]
    if "members" in about:  # an earlier release had the vehicles in here, and their counts further on
        members, counts = {v: Member(*m) for v, m in about["members"].items()}, dict[str, Ints]()
    else:
        members, counts = roll.from_bytes(reader.block(), c)
    prototypes = reader.exact(c, d)
    span = reader.exact(rows, d) if reader.flags & _SPAN else None
    origin = reader.exact(d) if reader.flags & _ORIGIN else None
    made = reader.integers(c)
    counts |= {vehicle: reader.integers(c) for vehicle in about.get("counted", ())}
    tracked = [
        Tracked(Deposit.from_bytes(reader.block()), **{**t, "owners": tuple(t["owners"])}) for t in about["tracked"]
    ]
    snapshot = None
    if about["snapshot"] is not None:
        frame: dict[str, Any] = {"origin": reader.exact(d)}
        frame["span"] = None if frame_rows is None else reader.exact(frame_rows, d)
        rest = ClassStatistics.from_bytes(reader.block(), **frame) if about["snapshot"]["rest"] else None
        holders = {v: ClassStatistics.from_bytes(reader.block(), **frame) for v in about["snapshot"]["holders"]}
        snapshot = Snapshot(about["snapshot"]["round"], rest, holders)
    stale = dict[str, dict[int, Floats]]()
    for vehicle, number in about["remembered"] if reader.flags & _REMEMBERED else ():
        stale.setdefault(vehicle, {})[number] = reader.exact(d)
    if reader.flags & _CROSS:
        for i, number in enumerate(about["references"]):
            if number is not None:
                reference = ReferenceModel(number, reader.exact(d), reader.exact(c))
                tracked[i] = dataclasses.replace(tracked[i], reference=reference)
        earlier = {number: Earlier(reader.integers(c), reader.exact(c, d)) for number in about["earlier"]}
        snapshot = snapshot and dataclasses.replace(snapshot, earlier=earlier)
    trusted = dict[str, Snapshot]()
    if reader.flags & _SPOKEN:
        snapshot, trusted = _read_spoken(reader, about, tracked, snapshot)
    linear = Linear(reader.exact(c, d), reader.exact(c)) if reader.flags & _LINEAR else None
    views = Views.from_bytes(reader.block()) if reader.flags & _VIEWS else Views()
    reader.finish()
    watch = about["watch"]
    return TrackerState(
        settings=settings,
        round=about["round"],
        prototypes=prototypes,
        made=made,
        roster=Roster(members, about.get("forgotten", 0), tuple(about.get("ended", ()))),
        counts=counts,
        watch=Watch(dict(watch["since"]), dict(watch["calm"]), tuple(watch["crowded"])),
        tracked={t.departed: t for t in tracked},
        stale_offsets=stale,
        held_out=tuple(about["held_out"]),
        approved=tuple(about.get("approved", ())),
        lacking={v: tuple(rounds) for v, rounds in about.get("lacking", {}).items()},
        health={number: Health(*known) for number, known in about.get("health", ())},
        outward=tuple(about.get("outward", ())),
        snapshot=snapshot,
        trusted=trusted,
        orders=about.get("orders", 0),
        refusals=about.get("refusals", {}),
        clipped=tuple(about.get("clipped", ())),
        linear=linear,
        views=views,
        span=span,
        origin=origin,
        decisions=tuple(_decision(*entries) for entries in about["decisions"]),
        problems=tuple(about["problems"]),
    )


def _decision(
    round: int, what: str, vehicle: str, classes: list[int], why: str, name: str = "", names: Sequence[str] = ()
) -> Decision:
    return Decision(round, what, vehicle, tuple(classes), why, name, tuple(names))


def _value(value: object) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _reports(snapshot: Snapshot) -> list[ClassStatistics]:
    rest = [] if snapshot.rest is None else [snapshot.rest]
    return rest + [snapshot.holders[v] for v in sorted(snapshot.holders)]
