"""What a round says of its vehicles and reconstructions: who was clipped, what verdicts are new, who disagrees."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from mpt.core.health import OUTSIDE, Health
from mpt.core.validation import Floats
from mpt.tracking.answers import Taken
from mpt.tracking.prototypes import Current
from mpt.tracking.roster import Decision, line
from mpt.tracking.state import Tracked, TrackerState


def newly_clipped(state: TrackerState, taken: Taken, round: int) -> tuple[Decision, ...]:
    """Of the vehicles that were not clipped in the round before."""
    new = sorted(taken.clipped.keys() - set(state.clipped))
    return tuple(Decision(round, "clipped", v, taken.clipped[v].classes, line(taken.clipped[v].why)) for v in new)


def doubting(now: Current) -> Current:
    """The round's prototypes, none of which is called good: what was learned is in doubt."""
    made = {
        c: replace(one, verdict="unconfirmed") if one.verdict == "good" else one
        for c, one in now.reconstructions.items()
    }
    return replace(now, reconstructions=made)


def health_of(now: Current) -> dict[int, Health]:
    """By class that was reconstructed, what is to be expected of it, where the method knows."""
    return {
        c: Health(float(made.expected_error), made.verdict, made.contradiction, made.reach)
        for c, made in sorted(now.reconstructions.items())
        if made.expected_error is not None and made.verdict is not None
    }


def verdicts(
    state: TrackerState,
    health: Mapping[int, Health],
    taken: Taken,
    now: Current,
    tracked: Mapping[int, Tracked],
    round: int,
) -> tuple[Decision, ...]:
    """The verdicts that are others than the round before; what is unconfirmed is not worse than what is good."""
    decisions = list[Decision]()
    for c, known in health.items():
        before = state.health[c].verdict if c in state.health else "good"
        if known.verdict == before or {known.verdict, before} == {"good", "unconfirmed"}:
            continue
        why, who = f"{known.verdict}, an error of {known.expected_error:.2g} is expected", ""
        if known.contradiction is None and known.reach is not None and known.reach > OUTSIDE:
            why += (
                f": no sample remains, and the class lies {known.reach**0.5:.2g} times as far out as the samples "
                "that the map is fitted to"
            )
        if known.verdict == "disputed":
            who = ", ".join(far_off(taken, c, now.forecasts[c])) if c in now.forecasts else ""
            owners = ", ".join(tracked[c].owners) or "others"
            why = (
                f"disputed: the remaining samples and the forecast from the deposit of {owners} contradict each other, "
                f"{known.contradiction:.2g} times what is expected; the samples that are furthest off are named"
            )
        decisions.append(Decision(round, "verdict", who, (c,), why))
    return tuple(decisions)


def far_off(taken: Taken, c: int, forecast: Floats, most: int = 3) -> list[str]:
    """The vehicles whose samples of a class lie furthest from its forecast (d,), for what their number explains."""
    if taken.snapshot is None:
        return []
    origin = taken.snapshot.everybody.origin
    far = dict[str, float]()
    for vehicle, rows in taken.watched.items():
        n = int(taken.counts[vehicle][c])
        if c in rows and n:
            far[vehicle] = float(np.sqrt(n) * np.linalg.norm(rows[c] + origin - forecast))
    return sorted(sorted(far, key=lambda v: (-far[v], v))[:most])
