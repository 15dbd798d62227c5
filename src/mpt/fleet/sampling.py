"""Who is asked in a round, where not everybody is: a share, drawn anew in every round, the same after a restart."""

from collections.abc import Collection

from mpt.base.generators import numpy_generator


def drawn(nodes: Collection[str], share: float, *, least: int, seed: int, purpose: str, round: int) -> set[str]:
    """A share of the nodes, at least so many of them; all of them where the share is 1.

    Example:
        >>> len(drawn([str(i) for i in range(3000)], 0.02, least=2, seed=0, purpose="report", round=1))
        60
    """
    if share >= 1:
        return set(nodes)
    ordered = sorted(nodes)
    count = min(len(ordered), max(least, int(share * len(ordered) + 0.5)))
    chosen = numpy_generator(seed, f"asked to {purpose}", round).permutation(len(ordered))[:count]
    return {ordered[i] for i in chosen}
