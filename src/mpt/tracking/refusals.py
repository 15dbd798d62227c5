"""Refusals by reason, for counters: a few words that never name a vehicle."""

from collections import Counter
from collections.abc import Iterable, Mapping

REASONS: dict[str, tuple[str, ...]] = {
    "excluded": ("it is banned", "it is quarantined"),
    "round": ("of round", "for round", "another round", "question of the round"),
    "frame": ("another span", "another origin", "other weights", "another weights", "another earlier_origin"),
    "size": ("should be at most", " bytes, should have", "second reply", "second answer"),
    "not-finite": ("NaN", "infinite", "finite", "plain image"),
    "shape": ("of shape", "(classes, dimension)", "missing", "not one of its entries", "asked for", "should be an"),
    "format": ("truncated", "altered", "do not begin", "no .npy", "cannot be read", "has no mpt", "left over"),
}
"""By reason, what its sentences have in them; the first that fits counts."""
OTHERWISE = "impossible"
"""What no samples could give."""


def reason_of(why: str) -> str:
    """The reason of a refusal.

    Example:
        >>> reason_of("answer: made with another span than the request's")
        'frame'
        >>> reason_of("answer: the scatter has negative eigenvalues, no samples give such a one")
        'impossible'
    """
    return next((reason for reason, parts in REASONS.items() if any(part in why for part in parts)), OTHERWISE)


def counted(before: Mapping[str, int], whys: Iterable[str]) -> dict[str, int]:
    """Refusals so far by reason, with these."""
    return dict(Counter(before) + Counter(map(reason_of, whys)))
