"""Who is asked in a round, where not everybody is: a share, drawn anew in every round and attempt."""

from collections.abc import Collection

from mpt.base.generators import numpy_generator


def drawn(
    nodes: Collection[str], share: float, *, seed: int, purpose: str, round: int, least: int = 1, attempt: int = 1
) -> set[str]:
    """A share of the nodes, at least so many of them; all of them where the share is 1. The same after a restart.

    Example:
        >>> len(drawn([str(i) for i in range(3000)], 0.02, seed=0, purpose="report", round=1))
        60
    """
    if share >= 1:
        return set(nodes)
    ordered = sorted(nodes)
    count = min(len(ordered), max(least, int(share * len(ordered) + 0.5)))
    chosen = numpy_generator(seed, f"asked to {purpose}", round, attempt).permutation(len(ordered))[:count]
    return {ordered[i] for i in chosen}


def asked_in(
    there: Collection[str], gone: Collection[str], share: float, *, seed: int, round: int, least: int, attempt: int = 1
) -> set[str]:
    """Who is asked to report: a share of those who may be there, and of those who departed, whose absence goes on.

    Nobody is asked in the place of one that departed: their draw is one of their own.
    """
    asked = drawn(there, share, seed=seed, purpose="report", round=round, least=least, attempt=attempt)
    return asked | drawn(gone, share, seed=seed, purpose="report, departed", round=round, least=0)
