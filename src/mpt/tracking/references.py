"""Which reference model each departed class is tracked from, of "mpt-x" and other methods that read one.

A class's reference model is the global model of the round that its deposit is from. At most `most_references` are kept.
Once there are as many, a new deposit shares the latest of them under which the departing prototype is known: all of the
class's samples are in the cross moments of the deposit's round; methods without cross moments share none. Where it is
known under none, the class is tracked as by MPT; no other class is given up for it.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from mpt.core import StatisticsError, class_weights
from mpt.core.validation import Floats
from mpt.tracking.answers import Snapshot
from mpt.tracking.roster import Decision
from mpt.tracking.settings import TrackerSettings
from mpt.tracking.state import ReferenceModel, Tracked


def refer(
    settings: TrackerSettings, tracked: Mapping[int, Tracked], snapshots: Collection[Snapshot | None], round: int
) -> tuple[dict[int, Tracked], list[Decision]]:
    """With a reference model for every deposit of this round that can have one, and what was decided.

    Args:
        settings: the method and the bound.
        tracked: the classes with a deposit.
        snapshots: those that this round's deposits were made from, and others.
        round: the round that is being closed.
    """
    after, decisions = dict(tracked), list[Decision]()
    if not settings.asks.models:
        return after, decisions
    made_from = {snapshot.round: snapshot for snapshot in snapshots if snapshot is not None}
    for c, one in sorted(tracked.items()):
        if one.since != round or (settings.speaks is not None and one.method_state is None):
            continue
        kept = {t.reference.round: t.reference.origin for t in after.values() if t.reference is not None}
        owners = ", ".join(one.owners)
        try:
            after[c], why = _referred(settings, one, made_from[one.round], kept)
        except StatisticsError as error:
            after[c] = replace(one, method_state=None)
            why = f"{error}: it is tracked as by mpt"
            decisions.append(Decision(round, "unreferenced", owners, (c,), why))
        else:
            what = f"cross moments from round {round + 1} on" if settings.asks.cross else "features are compared"
            why = f"{what}, {why}"
            decisions.append(Decision(round, "referenced", owners, (c,), why))
    return after, decisions


def _referred(
    settings: TrackerSettings, one: Tracked, snapshot: Snapshot, kept: Mapping[int, Floats]
) -> tuple[Tracked, str]:
    """With its reference model, and which it is; `kept` are the origins of those there are, by round."""
    c, weights = one.departed, class_weights(one.deposit, settings.num_classes)
    if one.round in kept or len(kept) < settings.most_references:
        origin = snapshot.everybody.overall_mean
        why = f"with the global model of round {one.round}"
        return replace(one, reference=ReferenceModel(one.round, origin, weights)), why
    for number in sorted(kept.keys() & snapshot.earlier.keys(), reverse=True):
        counts, means = snapshot.earlier[number]
        if counts[c] == one.samples:
            shared, reference = replace(one.deposit, anchor=means[c]), ReferenceModel(number, kept[number], weights)
            why = f"with the global model of round {number}, which another class has already"
            return replace(one, deposit=shared, reference=reference), why
    raise StatisticsError(
        f"most_references: {settings.most_references} reference models are kept already"
        f"{', under none of which its prototype is known' if settings.asks.cross else ''}"
    )
