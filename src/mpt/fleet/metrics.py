"""A fleet's status in Prometheus' text format.

Series are stable: their labels never change for a vehicle or a class, and a class has all of its series in every round,
deposit or not. What is one of several is a series for each, 0 or 1; a number that there is not is NaN.
"""

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

from mpt.core.health import VERDICTS
from mpt.fleet.status import ClassStatus, Status, TrackedStatus, VehicleStatus
from mpt.tracking.refusals import OTHERWISE, REASONS
from mpt.tracking.roster import STATES

Sample = tuple[dict[str, str], float]
CLASS_STATES = ("trained", "suspected", "departed")
"""Of a class: without a deposit; with one, whose vehicle may return; with one, whose vehicle has departed."""


def prometheus(status: Status) -> str:
    """The status as text, one gauge after the other."""
    return "".join((*_fleet(status), *_vehicles(status), *_classes(status), *_scores(status), *_evidence(status)))


def _fleet(status: Status) -> list[str]:
    when: list[Sample] = [] if status.time is None else [({}, datetime.fromisoformat(status.time).timestamp())]
    states = [v.state for v in status.vehicles]
    return [
        _gauge("round", "Last finished round.", [({}, status.round)]),
        _gauge(
            "last_round_timestamp_seconds",
            "When the last finished round was checkpointed, in seconds since 1970.",
            when,
        ),
        _gauge("vehicles", "Vehicles by state.", [({"state": s}, states.count(s)) for s in STATES]),
        _gauge("shadow", "Whether only approved classes are held out of training.", [({}, int(status.shadow))]),
        _gauge("problems", "Problems in the last finished round.", [({}, len(status.problems))]),
        _gauge(
            "refusals_total",
            "Replies that were refused since the fleet began, by reason.",
            [({"reason": r}, status.refusals.get(r, 0)) for r in (*REASONS, OTHERWISE)],
            kind="counter",
        ),
    ]


def _vehicles(status: Status) -> list[str]:
    def each(value: Callable[[VehicleStatus], float]) -> list[Sample]:
        return [({"vehicle": v.vehicle}, value(v)) for v in status.vehicles]

    return [
        _gauge(
            "vehicle_info",
            "What a vehicle is called; empty where that is not known.",
            [({"vehicle": v.vehicle, "name": v.name}, 1) for v in status.vehicles],
        ),
        _gauge(
            "vehicle_state",
            "Whether that is a vehicle's state.",
            [({"vehicle": v.vehicle, "state": s}, int(v.state == s)) for v in status.vehicles for s in STATES],
        ),
        _gauge("vehicle_since_round", "Round in which a vehicle came into its state.", each(lambda v: v.since)),
        _gauge(
            "vehicle_clipped",
            "Whether not all of a vehicle's last answer counted.",
            each(lambda v: int(v.clipped)),
        ),
        _gauge("vehicle_seen_round", "Last round in which a vehicle answered.", each(lambda v: v.seen)),
    ]


def _classes(status: Status) -> list[str]:
    def each(value: Callable[[ClassStatus], float]) -> list[Sample]:
        return [({"class": c.name}, value(c)) for c in status.classes]

    def by(label: str, values: tuple[str, ...], value: Callable[[TrackedStatus | None, str], float]) -> list[Sample]:
        return [({"class": c.name, label: one}, value(c.tracked, one)) for c in status.classes for one in values]

    def state(t: TrackedStatus | None, one: str) -> int:
        return int(("trained" if t is None else t.state) == one)

    def remaining(t: TrackedStatus | None, one: str) -> int:
        return 0 if t is None else t.remaining if one == "reported" else t.stale

    def moved(t: TrackedStatus | None, one: str) -> float:
        return _number(None if t is None else t.moved if one == "euclidean" else t.moved_mahalanobis)

    return [
        _gauge("class_samples", "Samples of a class on vehicles that have not departed.", each(lambda c: c.samples)),
        _gauge("class_largest_share", "Largest share of a class that one vehicle holds.", each(lambda c: c.share)),
        _gauge("class_watched", "Whether a class is watched.", each(lambda c: int(c.watched_since is not None))),
        _gauge("class_state", "Whether that is a class's state.", by("state", CLASS_STATES, state)),
        _gauge(
            "class_held_out",
            "Whether the remaining samples of a class are held out of training.",
            each(lambda c: int(c.tracked is not None and c.tracked.held_out)),
        ),
        _gauge("class_approved", "In shadow mode, whether a class is approved.", each(lambda c: int(c.approved))),
        _gauge(
            "class_deposited_round",
            "Round in which the deposit of a class was made; 0 where there is none.",
            each(lambda c: 0 if c.tracked is None else c.tracked.since),
        ),
        _gauge(
            "class_remaining_samples",
            "Samples of a tracked class, reported in the last round or remembered of suspected vehicles.",
            by("known", ("reported", "stale"), remaining),
        ),
        _gauge(
            "prototype_moved",
            "Distance of a tracked prototype from its deposit.",
            by("metric", ("euclidean", "mahalanobis"), moved),
        ),
        _gauge(
            "class_expected_error",
            "Mahalanobis distance of a tracked prototype from the true one that is to be expected.",
            each(lambda c: _number(None if c.tracked is None else c.tracked.expected_error)),
        ),
        _gauge(
            "class_verdict",
            "Whether that is the verdict on a tracked prototype.",
            by("verdict", VERDICTS, lambda t, one: int(t is not None and t.verdict == one)),
        ),
    ]


def _scores(status: Status) -> list[str]:
    """Where the server has test samples."""
    if status.accuracy is None:
        return []
    return [
        _gauge("accuracy", "Of the readout on the server's test samples.", [({}, status.accuracy)]),
        _gauge(
            "class_f1",
            "F1 of a class on the server's test samples.",
            [({"class": c.name}, _number(c.f1)) for c in status.classes],
        ),
    ]


def _evidence(status: Status) -> list[str]:
    """Where vehicles have evaluated."""
    if status.evidence_round is None:
        return []
    told = [(c.name, c.recall) for c in status.classes if c.recall is not None]
    ends = [(name, end, getattr(found, end)) for name, found in told for end in ("low", "high")]
    return [
        _gauge("evidence_round", "Round whose readout vehicles have evaluated last.", [({}, status.evidence_round)]),
        _gauge("evidence_vehicles", "Vehicles that have evaluated it.", [({}, status.evidence_vehicles)]),
        _gauge(
            "class_recall",
            "Share of vehicles' validation samples of a class that the readout recognises.",
            [({"class": name}, r.right / r.samples if r.samples else math.nan) for name, r in told],
        ),
        _gauge(
            "class_recall_interval",
            "Ends of the 95% interval of a class's recall.",
            [({"class": name, "end": end}, value) for name, end, value in ends],
        ),
        _gauge(
            "class_validation_samples",
            "Validation samples of a class on the vehicles that have evaluated.",
            [({"class": name}, found.samples) for name, found in told],
        ),
    ]


def _gauge(name: str, text: str, samples: list[Sample], kind: str = "gauge") -> str:
    lines = [f"# HELP mpt_fleet_{name} {text}", f"# TYPE mpt_fleet_{name} {kind}"]
    for labels, value in samples:
        inside = ",".join(f'{key}="{_escaped(str(label))}"' for key, label in labels.items())
        shown = "NaN" if math.isnan(value) else repr(value)
        lines.append(f"mpt_fleet_{name}{f'{{{inside}}}' if inside else ''} {shown}")
    return "\n".join(lines) + "\n" if samples else ""


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
