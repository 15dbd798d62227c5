"""Hostile vehicles on the bench: `mpt run --attack shift@3`, or one's own, `--attack mine.py:Lie(by=2)@3`.

An attack is a class with any of the functions of `Attack`; one that is built in is a class here and a line in
`ATTACKS`. Who lies is a vehicle's number, several with a plus between (two that lie together), or a word:

    holder       the first vehicle with remaining samples of the rare class, which is who lies where nobody is named
    bystander    the first without any
    owner        the one that departs
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from mpt.base.extensions import Builtin, Extensions
from mpt.core.validation import Ints
from mpt.federation.attacks.reports import Counts, Cross, Edge, Outlier, Parting, Scatter, Shift, Stretch, Swap
from mpt.federation.attacks.scene import HOOKS, Attack, AttackError, Scene, lies_about
from mpt.federation.attacks.updates import Boost, Flip, Little, WrongLabels, Zero

__all__ = ["ATTACKS", "HOOKS", "Attack", "AttackError", "Scene", "find_attacks", "lies_about", "spec_of"]

_WHO = re.compile(r"(?P<spec>.+?)@(?P<who>holder|bystander|owner|\d+(\+\d+)*)", re.DOTALL)

ATTACKS: Extensions[Attack] = Extensions(
    "attack",
    {
        "shift": Builtin(Shift, "its rare samples lie far off towards another class; by=20"),
        "scale": Builtin(Stretch, "all its features are longer; by=100"),
        "outlier": Builtin(Outlier, "one of its samples lies at 1e17; at=1e17"),
        "scatter": Builtin(Scatter, "a scatter with one huge direction; size=1e6"),
        "counts": Builtin(Counts, "its samples count many times, and rare ones are shifted; by=1000, shift=2"),
        "swap": Builtin(Swap, "the rare class and the next one are swapped in its reports"),
        "cross": Builtin(Cross, "cross moments of no map, with right sums; by=1"),
        "wrong-labels": Builtin(WrongLabels, "it trains on wrong labels"),
        "flip": Builtin(Flip, "its update goes backwards; by=1"),
        "boost": Builtin(Boost, "its update goes further; by=10"),
        "zero": Builtin(Zero, "zero weights, weighed by 2^31 samples; samples=2147483647"),
        "parting": Builtin(Parting, "a departing vehicle lies in its last report; by=3, for @owner"),
        "edge": Builtin(Edge, "its rare samples lie as far off as the gate lets pass; times=0.99, draw=None"),
        "little": Builtin(Little, "its update is off by as much as honest ones are; z=1"),
    },
    AttackError,
)


def spec_of(text: str) -> str:
    """What a text such as `shift(by=5)@3` names, without who lies."""
    found = _WHO.fullmatch(text.strip())
    return found["spec"] if found else text


def find_attacks(texts: tuple[str, ...], labels: Mapping[int, Ints], owner: int, rare: int) -> dict[int, Attack]:
    """The attacks by vehicle.

    Args:
        texts: as they were written.
        labels: (n,) of each vehicle's samples.
        owner: the vehicle that departs.
        rare: the class that it takes with it.
    """
    found = dict[int, Attack]()
    for text in texts:
        made: Any = ATTACKS.find(spec_of(text))
        if not any(lies_about(made, hook) for hook in HOOKS):
            raise AttackError(f"attack: {text} lies about nothing, should have one of {', '.join(HOOKS)}")
        for vehicle in _who(text, labels, owner, rare):
            if vehicle in found:
                raise AttackError(f"attack: vehicle {vehicle} has two attacks, should have one")
            found[vehicle] = made
    return found


def _who(text: str, labels: Mapping[int, Ints], owner: int, rare: int) -> list[int]:
    found = _WHO.fullmatch(text.strip())
    word = found["who"] if found else "holder"
    if word == "owner":
        return [owner]
    if word in ("holder", "bystander"):
        held = {v: int(np.sum(mine == rare)) for v, mine in sorted(labels.items()) if v != owner}
        chosen = [v for v, count in held.items() if (count > 0) == (word == "holder")]
        if not chosen:
            what = "has" if word == "holder" else "is without"
            raise AttackError(f"attack: {text}, but no vehicle {what} remaining samples, should name one: shift@3")
        return chosen[:1]
    vehicles = [int(number) for number in word.split("+")]
    unknown = [v for v in vehicles if v not in labels]
    if unknown:
        raise AttackError(f"attack: {text}, but there is no vehicle {unknown[0]}, should be from 0 to {max(labels)}")
    return vehicles
