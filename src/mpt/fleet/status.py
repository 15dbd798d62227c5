"""Where a fleet stands, from the last checkpoint of its server: as plain data, and as Prometheus text."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, get_args

import numpy as np

from mpt.core import NearestClassMean, StatisticsError
from mpt.core.health import Verdict
from mpt.fleet import state as states
from mpt.fleet.log import stamp
from mpt.fleet.roster import STATES, State
from mpt.fleet.state import Tracked, TrackerState
from mpt.fleet.store import TRACKER, Checkpoint, Store, StoreError


@dataclass(frozen=True)
class VehicleStatus:
    """A vehicle.

    Attributes:
        vehicle: its id.
        state: present, suspected or departed.
        since: the round in which it came into that state.
        seen: the last round in which it answered.
        samples: that it reported last; None once it has departed.
    """

    vehicle: str
    state: State
    since: int
    seen: int
    samples: int | None


@dataclass(frozen=True)
class TrackedStatus:
    """A class with a deposit.

    Attributes:
        state: "suspected" as long as an owner may return; then "departed", its remaining samples held out.
        owners: the vehicles whose absence the deposit was made for.
        since: the round in which it was made.
        deposit_round: the round whose statistics it was made from.
        samples_then: that the class had.
        remaining: samples of it that were reported in the last round.
        remembered: samples of it on suspected vehicles that count as they were when these answered last.
        prototype_round: the round that its latest prototype is from.
        moved: Euclidean distance of its latest prototype from the deposit's.
        moved_mahalanobis: the same under the latest covariance; None where there is none.
        reference_round: in the variant "cross": the round whose global model cross moments are made with; else None.
        expected_error: the Mahalanobis distance of its prototype from the true one that is to be expected; None where
            it was not reconstructed in the last round, or in a way that does not know.
        verdict: "good", "degraded" or "lost": that error against the nearest other prototype.
    """

    state: State
    owners: tuple[str, ...]
    since: int
    deposit_round: int
    samples_then: int
    remaining: int
    remembered: int
    prototype_round: int
    moved: float | None
    moved_mahalanobis: float | None
    reference_round: int | None
    expected_error: float | None
    verdict: Verdict | None


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
    """

    number: int
    name: str
    samples: int
    holder: str | None
    share: float
    hangs: bool
    watched_since: int | None
    tracked: TrackedStatus | None


@dataclass(frozen=True)
class Status:
    """A fleet after its last finished round.

    Attributes:
        round: that round.
        time: when it was checkpointed, as the logs write it; None where the checkpoint does not say.
        watch_share: from which share on a class hangs on one vehicle.
        vehicles, classes: all that are known.
        problems: of that round, a sentence each.
    """

    round: int
    time: str | None
    watch_share: float
    vehicles: tuple[VehicleStatus, ...]
    classes: tuple[ClassStatus, ...]
    problems: tuple[str, ...]

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
        raise StoreError("store: has no whole checkpoint, should be where a fleet's server keeps its state")
    if TRACKER not in checkpoint.payload:
        parts = ", ".join(sorted(checkpoint.payload)) or "nothing"
        raise StoreError(f"store: round {checkpoint.round} has {parts}, should have {TRACKER!r}")
    return status_of(states.from_bytes(checkpoint.payload[TRACKER]), _names(checkpoint), checkpoint.time)


def _names(checkpoint: Checkpoint) -> tuple[str, ...]:
    """The classes' names, where a server app has written them."""
    key = json.loads(checkpoint.payload.get("key", b"{}"))
    return tuple(map(str, key.get("class_names", ())))


def status_of(state: TrackerState, names: Sequence[str] = (), time: float | None = None) -> Status:
    """The status of a tracker's state; `names` are those of its classes, `time` is its checkpoint's."""
    when = None if time is None else stamp(datetime.fromtimestamp(time, UTC))
    known = names if len(names) == state.settings.num_classes else [str(c) for c in range(state.settings.num_classes)]
    spread, share = state.spread, state.settings.watch_share
    vehicles = [
        VehicleStatus(v, m.state, m.since, m.seen, int(state.counts[v].sum()) if v in state.counts else None)
        for v, m in sorted(state.roster.members.items(), key=lambda item: (STATES.index(item[1].state), item[0]))
    ]
    classes = [
        ClassStatus(
            c,
            known[c],
            int(spread.totals[c]),
            spread.holder(c),
            float(spread.largest[c]),
            bool(spread.largest[c] >= share),
            state.watch.since.get(c),
            _tracked(state, state.tracked[c]) if c in state.tracked else None,
        )
        for c in range(state.settings.num_classes)
    ]
    return Status(state.round, when, share, tuple(vehicles), tuple(classes), state.problems)


def _tracked(state: TrackerState, one: Tracked) -> TrackedStatus:
    c, now = one.departed, state.prototypes[one.departed]
    known = bool(np.isfinite(now).all())
    health = state.health.get(c)
    suspected = [v for v in state.roster.having("suspected") if c in state.remembered.get(v, {})]
    return TrackedStatus(
        state="departed" if c in state.held_out else "suspected",
        owners=one.owners,
        since=one.since,
        deposit_round=one.round,
        samples_then=one.samples,
        remaining=sum(int(state.counts[v][c]) for v in state.roster.having("present")),
        remembered=sum(int(state.counts[v][c]) for v in suspected),
        prototype_round=int(state.made[c]),
        moved=float(np.linalg.norm(now - one.deposit.prototype)) if known else None,
        moved_mahalanobis=_mahalanobis(state, one) if known else None,
        reference_round=None if one.reference is None else one.reference.round,
        expected_error=None if health is None else health.expected_error,
        verdict=None if health is None else health.verdict,
    )


def _mahalanobis(state: TrackerState, one: Tracked) -> float | None:
    """sqrt((mu_t - mu)^T S~_t^-1 (mu_t - mu)), mu the deposit's prototype, mu_t the latest."""
    if state.snapshot is None or state.settings.variant == "lite":
        return None
    try:
        covariance = state.snapshot.everybody.covariance()
        there = NearestClassMean(one.deposit.prototype[None], covariance, cov_ridge=state.settings.cov_ridge)
        return float(there.distances(state.prototypes[[one.departed]])[0, 0])
    except StatisticsError:
        return None


def prometheus(status: Status) -> str:
    """The status in Prometheus' text format, one gauge after the other."""
    states_of = [v.state for v in status.vehicles]
    tracked = [(c, c.tracked) for c in status.classes if c.tracked is not None]
    moved = [
        ({"class": c.name, "metric": metric}, distance)
        for c, t in tracked
        for metric, distance in (("euclidean", t.moved), ("mahalanobis", t.moved_mahalanobis))
        if distance is not None
    ]
    return "".join(
        (
            _gauge("round", "Last finished round.", [({}, status.round)]),
            _gauge(
                "last_round_timestamp_seconds",
                "When the last finished round was checkpointed, in seconds since 1970.",
                [] if status.time is None else [({}, datetime.fromisoformat(status.time).timestamp())],
            ),
            _gauge("vehicles", "Vehicles by state.", [({"state": s}, states_of.count(s)) for s in STATES]),
            _gauge(
                "vehicle_since_round",
                "Round in which a vehicle came into its state.",
                [({"vehicle": v.vehicle, "state": v.state}, v.since) for v in status.vehicles],
            ),
            _gauge(
                "vehicle_seen_round",
                "Last round in which a vehicle answered.",
                [({"vehicle": v.vehicle}, v.seen) for v in status.vehicles],
            ),
            _gauge(
                "class_samples",
                "Samples of a class on vehicles that have not departed.",
                [({"class": c.name}, c.samples) for c in status.classes],
            ),
            _gauge(
                "class_largest_share",
                "Largest share of a class that one vehicle holds.",
                [({"class": c.name, "vehicle": c.holder}, c.share) for c in status.classes if c.holder is not None],
            ),
            _gauge(
                "class_watched",
                "Whether a class is watched.",
                [({"class": c.name}, int(c.watched_since is not None)) for c in status.classes],
            ),
            _gauge(
                "class_deposited_round",
                "Round in which the deposit of a class was made.",
                [({"class": c.name, "state": t.state}, t.since) for c, t in tracked],
            ),
            _gauge(
                "class_remaining_samples",
                "Samples of a tracked class, reported in the last round or remembered of suspected vehicles.",
                [
                    ({"class": c.name, "known": known}, samples)
                    for c, t in tracked
                    for known, samples in (("reported", t.remaining), ("remembered", t.remembered))
                ],
            ),
            _gauge("prototype_moved", "Distance of a tracked prototype from its deposit.", moved),
            _gauge(
                "class_expected_error",
                "Mahalanobis distance of a tracked prototype from the true one that is to be expected.",
                [({"class": c.name}, t.expected_error) for c, t in tracked if t.expected_error is not None],
            ),
            _gauge(
                "class_verdict",
                "Whether that is the verdict on a tracked prototype.",
                [
                    ({"class": c.name, "verdict": verdict}, int(t.verdict == verdict))
                    for c, t in tracked
                    if t.verdict is not None
                    for verdict in get_args(Verdict)
                ],
            ),
            _gauge("problems", "Problems in the last finished round.", [({}, len(status.problems))]),
        )
    )


def _gauge(name: str, text: str, samples: list[tuple[dict[str, Any], float]]) -> str:
    lines = [f"# HELP mpt_fleet_{name} {text}", f"# TYPE mpt_fleet_{name} gauge"]
    for labels, value in samples:
        inside = ",".join(f'{key}="{_escaped(str(label))}"' for key, label in labels.items())
        lines.append(f"mpt_fleet_{name}{f'{{{inside}}}' if inside else ''} {value!r}")
    return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
