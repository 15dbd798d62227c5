"""Which reference model each departed class is tracked from, in the variant "cross".

A class's reference model is the global model of the round that its deposit is from. At most `most_references` are kept.
Once there are as many, a new deposit shares the latest of them under which the departing prototype is known: all of the
class's samples are in the cross moments of the deposit's round. Where it is known under none, the class is tracked as
in the variant "mpt"; no other class is given up for it.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from mpt.core import class_weights
from mpt.fleet.answers import Snapshot
from mpt.fleet.roster import Decision
from mpt.fleet.settings import Settings
from mpt.fleet.state import Reference, Tracked


def refer(
    settings: Settings, tracked: Mapping[int, Tracked], snapshots: Collection[Snapshot | None], round: int
) -> tuple[dict[int, Tracked], list[Decision]]:
    """With a reference model for every deposit of this round that can have one, and what was decided.

    Args:
        settings: the variant and the bound.
        tracked: the classes with a deposit.
        snapshots: those that this round's deposits were made from, and others.
        round: the round that is being closed.
    """
    after, decisions = dict(tracked), list[Decision]()
    if settings.variant != "cross":
        return after, decisions
    made_from = {snapshot.round: snapshot for snapshot in snapshots if snapshot is not None}
    for c, one in sorted(tracked.items()):
        if one.since != round:
            continue
        kept = {t.reference.round for t in after.values() if t.reference is not None}
        after[c] = _referred(settings, one, made_from[one.round], kept)
        decisions.append(_said(settings, after[c], round))
    return after, decisions


def _referred(settings: Settings, one: Tracked, snapshot: Snapshot, kept: Collection[int]) -> Tracked:
    weights = class_weights(one.deposit, settings.num_classes)
    if one.round in kept or len(kept) < settings.most_references:
        return replace(one, reference=Reference(one.round, snapshot.everybody.overall_mean, weights))
    for number in sorted(snapshot.earlier.keys() & kept, reverse=True):
        counts, means = snapshot.earlier[number]
        if counts[one.departed] == one.samples:
            shared = replace(one.deposit, anchor=means[one.departed])
            return replace(one, deposit=shared, reference=Reference(number, means[one.departed], weights))
    return one


def _said(settings: Settings, one: Tracked, round: int) -> Decision:
    owners = ", ".join(one.owners)
    if one.reference is None:
        why = (
            f"{settings.most_references} reference models are kept already, under none of which its prototype is "
            "known: it is tracked as in the variant mpt"
        )
        return Decision(round, "unreferenced", owners, (one.departed,), why)
    shared = "" if one.deposit.anchor is None else ", which another class has already"
    why = f"cross moments from round {round + 1} on, with the global model of round {one.reference.round}{shared}"
    return Decision(round, "referenced", owners, (one.departed,), why)
