"""Where a fleet stands, from the last checkpoint of its server: as plain data, and as Prometheus text."""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from mpt.core import NearestClassMean, StatisticsError
from mpt.core.health import Verdict
from mpt.fleet.checkpoint import read_part
from mpt.fleet.log import stamp
from mpt.fleet.orders import read_orders
from mpt.fleet.store import SCORES, TRACKER, Checkpoint, Store, StoreError
from mpt.protocol.evaluation import Evidence
from mpt.tracking import state as states
from mpt.tracking.errors import FleetError
from mpt.tracking.roster import STATES, MemberState
from mpt.tracking.state import Tracked, TrackerState

EVIDENCE = "evidence"
"""The part of a checkpoint that has how vehicles' validation samples were recognised last."""
_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True)
class VehicleStatus:
    """A vehicle.

    Attributes:
        vehicle: its id.
        state: present, late, refused, quarantined, suspected, departed or banned.
        since: the round in which it came into that state.
        seen: the last round in which its answer was accepted.
        samples: that it reported last; None once it has departed.
        name: what it is called, where that is known; else empty.
        why: why its answers do not count, where it is late, refused, quarantined or banned.
        clipped: whether not all of its last answer counted.
    """

    vehicle: str
    state: MemberState
    since: int
    seen: int
    samples: int | None
    name: str = ""
    why: str = ""
    clipped: bool = False


@dataclass(frozen=True)
class TrackedStatus:
    """A class with a deposit.

    Attributes:
        state: "suspected" as long as an owner may return; then "departed".
        held_out: whether its remaining samples are held out of training: those of a departed class are, in shadow mode
            once it is approved.
        owners: the vehicles whose absence the deposit was made for.
        since: the round in which it was made.
        deposit_round: the round whose statistics it was made from.
        samples_then: that the class had.
        remaining: samples of it that were reported in the last round.
        stale: samples of it on suspected vehicles that count as they were when these answered last.
        prototype_round: the round that its latest prototype is from.
        moved: Euclidean distance of its latest prototype from the deposit's.
        moved_mahalanobis: the same under the latest covariance; None where there is none.
        reference_round: of the method "mpt-x": the round whose global model cross moments are made with; else None.
        expected_error: the Mahalanobis distance of its prototype from the true one that is to be expected; None where
            it was not reconstructed in the last round, or in a way that does not know.
        verdict: one of `mpt.core.health.VERDICTS`: that error against the nearest other prototype, and whether the
            remaining samples confirm or contradict it.
    """

    state: MemberState
    held_out: bool
    owners: tuple[str, ...]
    since: int
    deposit_round: int
    samples_then: int
    remaining: int
    stale: int
    prototype_round: int
    moved: float | None
    moved_mahalanobis: float | None
    reference_round: int | None
    expected_error: float | None
    verdict: Verdict | None


@dataclass(frozen=True)
class RecallStatus:
    """How vehicles' validation samples of a class are recognised.

    Attributes:
        right: how many are.
        samples: of how many.
        low, high: Wilson's 95% interval of the share.
    """

    right: int
    samples: int
    low: float
    high: float


@dataclass(frozen=True)
class ClassStatus:
    """A class.

    Attributes:
        number: the class.
        name: its name where the server knows it, else its number.
        samples: on all vehicles that have not departed, as each reported last.
        holder: the vehicle that holds most of it.
        share: how much of it.
        hangs: whether that is at least the watched share.
        watched_since: the first round whose statistics watch it; None where it is not watched.
        tracked: where it has a deposit.
        holder_name: what the holder is called, where that is known; else empty.
        f1: on the server's test samples in the last round; None where it has none of the class.
        approved: in shadow mode, whether it may be held out; the server may have yet to read that.
        recall: on vehicles' validation samples, in the round of the evidence; None where there is none.
    """

    number: int
    name: str
    samples: int
    holder: str | None
    share: float
    hangs: bool
    watched_since: int | None
    tracked: TrackedStatus | None
    holder_name: str = ""
    f1: float | None = None
    approved: bool = False
    recall: RecallStatus | None = None

    @property
    def state(self) -> str:
        """ "trained" without a deposit; with one "suspected" or "departed"."""
        return "trained" if self.tracked is None else self.tracked.state


@dataclass(frozen=True)
class Status:
    """A fleet after its last finished round.

    Attributes:
        round: that round.
        time: when it was checkpointed, as the logs write it; None where the checkpoint does not say.
        watch_share: from which share on a class hangs on one vehicle.
        vehicles, classes: all that are known.
        problems: of that round, a sentence each.
        accuracy: on the server's test samples; None where it has none.
        shadow: whether nothing is held out of training but what was approved.
        refusals: how many replies were refused since the fleet began, by reason.
        forgotten: how many vehicles departed so long ago that nothing is known of them.
        evidence_round: whose readout vehicles have evaluated last; None where they never have.
        evidence_vehicles: how many of them.
    """

    round: int
    time: str | None
    watch_share: float
    vehicles: tuple[VehicleStatus, ...]
    classes: tuple[ClassStatus, ...]
    problems: tuple[str, ...]
    accuracy: float | None = None
    shadow: bool = False
    refusals: Mapping[str, int] = field(default_factory=dict)
    forgotten: int = 0
    evidence_round: int | None = None
    evidence_vehicles: int = 0

    @property
    def unapproved(self) -> tuple[str, ...]:
        """In shadow mode, the classes that have departed and are not approved."""
        gone = [c for c in self.classes if c.tracked is not None and c.tracked.state == "departed"]
        return tuple(c.name for c in gone if self.shadow and not c.approved)

    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def read_status(store: Store) -> Status:
    """The status in a store's last whole checkpoint.

    Raises:
        StoreError: where there is none, or none of a fleet's server.
    """
    checkpoint = store.latest()
    if checkpoint is None:
        raise StoreError("store: no round has finished here yet; it should be where a fleet's server keeps its state")
    if TRACKER not in checkpoint.payload:
        parts = ", ".join(sorted(checkpoint.payload)) or "nothing"
        raise StoreError(f"store: round {checkpoint.round} has {parts}, should have {TRACKER!r}")

    def shown(data: bytes) -> Status:
        state, names, scores = states.from_bytes(data), _names(checkpoint), _scores(checkpoint)
        evidence = evidence_in(checkpoint, state.settings.num_classes)
        return status_of(state, names, checkpoint.time, scores, _approved(store), evidence)

    return read_part(checkpoint, TRACKER, shown)


def _approved(store: Store) -> tuple[int, ...]:
    """The classes that were approved beside the state; none where that cannot be read, which the server says."""
    try:
        return tuple(int(one.subject) for one in read_orders(store) if one.what == "approve")
    except FleetError:
        return ()


def _names(checkpoint: Checkpoint) -> tuple[str, ...]:
    """The classes' names, where a server app has written them."""
    return tuple(map(str, _object(checkpoint.payload.get("key", b"")).get("class_names", ())))


def _scores(checkpoint: Checkpoint) -> dict[str, Any]:
    """Accuracy and each class's F1, those that are numbers."""
    found = _object(checkpoint.payload.get(SCORES, b""))
    f1 = found.get("f1")
    return {
        "accuracy": _number(found.get("accuracy")),
        "f1": {name: _number(value) for name, value in f1.items()} if isinstance(f1, dict) else {},
    }


def evidence_in(checkpoint: Checkpoint, num_classes: int) -> Evidence | None:
    """How validation samples were recognised last; None where that cannot be read, since nothing hangs on it."""
    try:
        return Evidence.from_bytes(checkpoint.payload.get(EVIDENCE, b""), num_classes)
    except StatisticsError:
        return None


def _object(data: bytes) -> dict[str, Any]:
    """A JSON object; empty where the bytes are something else, since nothing of a fleet hangs on it."""
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def status_of(
    state: TrackerState,
    names: Sequence[str] = (),
    time: float | None = None,
    scores: Mapping[str, Any] = _NOTHING,
    approved: Collection[int] = (),
    evidence: Evidence | None = None,
) -> Status:
    """The status of a tracker's state.

    Args:
        state: the tracker's.
        names: of its classes, where its settings have none.
        time: when it was checkpointed, in seconds since 1970.
        scores: accuracy and F1 by class, where the server has test samples.
        approved: classes that were approved and that the state may not have yet.
        evidence: how vehicles' validation samples were recognised last.
    """
    when = None if time is None else stamp(datetime.fromtimestamp(time, UTC))
    count = state.settings.num_classes
    known = names if len(names) == count else [state.settings.name_of(c) for c in range(count)]
    coverage, share, f1 = state.coverage, state.settings.watch_share, scores.get("f1", {})
    clipped = set(state.clipped)
    vehicles = [
        VehicleStatus(v, m.state, m.since, m.seen, _samples(state, v), m.name, m.why, v in clipped)
        for v, m in sorted(state.roster.members.items(), key=lambda item: (STATES.index(item[1].state), item[0]))
    ]
    classes = [
        ClassStatus(
            c,
            known[c],
            int(coverage.totals[c]),
            coverage.holder(c),
            float(coverage.largest[c]),
            bool(coverage.largest[c] >= share),
            state.watch.since.get(c),
            _tracked(state, state.tracked[c]) if c in state.tracked else None,
            state.roster.name(coverage.holder(c) or ""),
            f1.get(known[c]),
            state.settings.shadow and (c in state.approved or c in approved),
            None if evidence is None else RecallStatus(*evidence.recall(c)),
        )
        for c in range(count)
    ]
    return Status(
        state.round,
        when,
        share,
        tuple(vehicles),
        tuple(classes),
        state.problems,
        scores.get("accuracy"),
        state.settings.shadow,
        dict(state.refusals),
        state.roster.forgotten,
        None if evidence is None else evidence.round,
        0 if evidence is None else evidence.vehicles,
    )


def _samples(state: TrackerState, vehicle: str) -> int | None:
    return int(state.counts[vehicle].sum()) if vehicle in state.counts else None


def _tracked(state: TrackerState, one: Tracked) -> TrackedStatus:
    c, now = one.departed, state.prototypes[one.departed]
    known = bool(np.isfinite(now).all())
    health = state.health.get(c)
    silent = [v for v in state.roster.having("suspected", "late") if c in state.stale_offsets.get(v, {})]
    return TrackedStatus(
        state="suspected" if one.waits(state.roster) else "departed",
        held_out=c in state.held_out,
        owners=one.owners,
        since=one.since,
        deposit_round=one.round,
        samples_then=one.samples,
        remaining=sum(int(state.counts[v][c]) for v in state.roster.having("present")),
        stale=sum(int(state.counts[v][c]) for v in silent),
        prototype_round=int(state.made[c]),
        moved=float(np.linalg.norm(now - one.deposit.prototype)) if known else None,
        moved_mahalanobis=_mahalanobis(state, one) if known else None,
        reference_round=None if one.reference is None else one.reference.round,
        expected_error=None if health is None else health.expected_error,
        verdict=None if health is None else health.verdict,
    )


def _mahalanobis(state: TrackerState, one: Tracked) -> float | None:
    """sqrt((mu_t - mu)^T S~_t^-1 (mu_t - mu)), mu the deposit's prototype, mu_t the latest."""
    if state.snapshot is None or not state.settings.scatter:
        return None
    try:
        covariance = state.snapshot.everybody.covariance()
        there = NearestClassMean(one.deposit.prototype[None], covariance, cov_ridge=state.settings.cov_ridge)
        return float(there.distances(state.prototypes[[one.departed]])[0, 0])
    except StatisticsError:
        return None
