"""Earlier views: what is known of the classes under the models of departures; the covariance of all views, Eq. (D2).

Notation as in `mpt.core.two_views`, which reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from mpt.core import validation as check
from mpt.core.cross import CrossStatistics
from mpt.core.errors import StatisticsError
from mpt.core.statistics import ClassStatistics
from mpt.core.validation import Floats
from mpt.core.value import Value

MOST_EARLIER = 2
"""Earlier views at a time: each is a model on every vehicle, and a forward pass for every image."""

DEFAULT_JOINT_RIDGE = 0.01
"""lambda of Eq. (D3). Smaller than `DEFAULT_COV_RIDGE`: there it hides what one view tells beyond the other."""

FEW_RIDGE = 0.1
"""Times V d / N: lambda of Eq. (D3) where that is more. With few samples the other classes pay for a smaller one."""


@dataclass(frozen=True, eq=False, repr=False)
class EarlierView(Value):
    """What is known of the classes under the model of a departure's round; nothing of it changes.

    Attributes:
        round: of the departure, whose global model it is.
        departed: the classes that departed then.
        prototypes: (C, d), as measured in that round; of a class that had departed earlier, where it was tracked to;
            a row of NaN for a class that nobody had: the view does not know it.
    """

    round: int
    departed: tuple[int, ...]
    prototypes: Floats

    def __post_init__(self) -> None:
        given = check.as_array(self.prototypes, "prototypes")
        check.check_shape(given, "prototypes", (None, None))
        prototypes = np.array(given, dtype=np.float64)
        missing = np.asarray(np.isnan(prototypes).all(axis=1))
        check.check_finite(np.where(missing[:, None], 0.0, prototypes), "prototypes")
        departed = tuple(sorted(check.as_classes(self.departed, "departed", len(prototypes))))
        if missing[list(departed)].any():
            raise StatisticsError(
                f"prototypes: departed class {departed} has none, should be measured at its departure"
            )
        object.__setattr__(self, "round", check.as_int(self.round, "round", least=0))
        object.__setattr__(self, "departed", departed)
        object.__setattr__(self, "prototypes", check.read_only(prototypes))

    @classmethod
    def of(
        cls,
        stats: ClassStatistics,
        departed: int | Iterable[int],
        round: int,
        tracked: Mapping[int, ArrayLike] | None = None,
    ) -> EarlierView:
        """From the last statistics with the departing vehicle.

        Args:
            stats: of all vehicles.
            departed: the class or classes that depart.
            round: of these statistics.
            tracked: (d,) by class, where those are now that had departed before.
        """
        means = stats.means
        for c, prototype in (tracked or {}).items():
            means[c] = check.as_floats(prototype, f"tracked[{c}]", (stats.dim,))
        classes = check.as_classes(departed, "departed", stats.num_classes)
        return cls(round, classes, means)

    @property
    def known(self) -> NDArray[np.bool_]:
        """(C,): the classes that the view may speak about."""
        return ~np.isnan(self.prototypes[:, 0])

    def without(self, classes: Iterable[int]) -> EarlierView:
        """The same, which knows nothing of these classes."""
        left_out = set(classes)
        rows = self.prototypes.copy()
        rows[sorted(left_out)] = np.nan
        return EarlierView(self.round, tuple(c for c in self.departed if c not in left_out), rows)

    def __repr__(self) -> str:
        return f"<EarlierView: of round {self.round}, departed={self.departed}, knows {self.known.sum()} classes>"


def kept_views(
    views: Sequence[EarlierView], departed: Iterable[int], most: int = MOST_EARLIER
) -> tuple[EarlierView, ...]:
    """The views that are kept, in the order of their rounds.

    One goes when none of its classes is departed any more, and the oldest when there are more than `most`. A class
    whose own view has gone is known to the later ones by where it was tracked to.

    Args:
        views: those so far, and a new one.
        departed: the classes that are departed now.
        most: how many models a vehicle keeps.
    """
    gone = set(departed)
    needed = {view.round: view for view in views if gone.intersection(view.departed)}
    return tuple(needed[number] for number in sorted(needed))[-most:] if most else ()


def joint_covariance(
    stats: ClassStatistics,
    crosses: Sequence[CrossStatistics],
    between: Mapping[tuple[int, int], CrossStatistics] | None = None,
) -> Floats:
    r"""Eq. (D2): the pooled within-class covariance of the views side by side, from sums. (V d, V d)

        S_x = [[S_h, S_zh^T], [S_zh, S_z]],   S_z = W_z / (N - K),   S_zh = W_zh / (N - K),

    W_z and W_zh as `CrossStatistics.within` has them of classes that count alike, S_h as `covariance()` of `stats`.
    With two earlier views there is a row and a column more, and moments between the two, which never change. Where
    blocks are of different samples it need not be a covariance; `join_views` then takes the nearest one.

    Args:
        stats: of the current round, with a scatter.
        crosses: for each earlier view the cross moments with the current one.
        between: for views v < w, 0 the first earlier one, cross moments of z_v as `earlier` and of z_w as current.
    """
    whole, d = separate_covariances(stats, crosses).copy(), stats.dim
    for v, cross in enumerate(crosses, 1):
        mine, with_current = slice(v * d, (v + 1) * d), cross.within[1] / freedom(cross)
        whole[mine, :d], whole[:d, mine] = with_current, with_current.T
    for v in range(len(crosses)):
        for w in range(v + 1, len(crosses)):
            found = (between or {}).get((v, w))
            if found is None:
                raise StatisticsError(f"between: no cross moments of the earlier views {v} and {w}, should be there")
            _check_alike(found, stats)
            block = found.within[1] / freedom(found)
            rows, columns = slice((v + 1) * d, (v + 2) * d), slice((w + 1) * d, (w + 2) * d)
            whole[rows, columns], whole[columns, rows] = block, block.T
    return check.read_only((whole + whole.T) / 2)


def separate_covariances(stats: ClassStatistics, crosses: Sequence[CrossStatistics]) -> Floats:
    """S_x of Eq. (D2) with nothing between the views, which is all that Eq. (D4) needs. (V d, V d)

    Args:
        stats: of the current round, with a scatter.
        crosses: as of `joint_covariance`.
    """
    if not 1 <= len(crosses) <= MOST_EARLIER:
        raise StatisticsError(f"crosses: of {len(crosses)} earlier views, should be of 1 to {MOST_EARLIER}")
    for cross in crosses:
        _check_alike(cross, stats)
    own = (cross.within[0] / freedom(cross) for cross in crosses)
    return check.read_only(scipy.linalg.block_diag(stats.shared_covariance, *own))


def joint_ridge(crosses: Sequence[CrossStatistics], least: float = DEFAULT_JOINT_RIDGE) -> float:
    """lambda of Eq. (D3): max(`least`, 0.1 V d / N), V d dimensions learnt from N samples beyond their means."""
    samples = min(freedom(cross) for cross in crosses)
    return max(least, FEW_RIDGE * (1 + len(crosses)) * crosses[0].dim / max(samples, 1))


def unit_weights(num_classes: int, left_out: Iterable[int]) -> Floats:
    """(C,): of cross moments for Eq. (D2): one for each class, zero for those that are departed or watched."""
    weights = np.ones(check.as_int(num_classes, "num_classes", least=1))
    weights[list(check.as_classes(left_out, "left_out", num_classes))] = 0.0
    return check.read_only(weights)


def _check_alike(cross: CrossStatistics, stats: ClassStatistics) -> None:
    if (cross.num_classes, cross.dim) != (stats.num_classes, stats.dim):
        mine, theirs = f"({cross.num_classes}, {cross.dim})", f"({stats.num_classes}, {stats.dim})"
        raise StatisticsError(f"cross: (classes, dimension) are {mine}, but those of the statistics are {theirs}")
    counted = cross.weights[cross.weights > 0]
    if not counted.size or np.any(counted != 1):
        raise StatisticsError("cross: classes count differently, should be made with unit_weights")
    if freedom(cross) < 1:
        raise StatisticsError("cross: no more samples than classes, a joint covariance needs more")


def freedom(cross: CrossStatistics) -> int:
    """N - K, of the classes that count."""
    counts = cross.counts[cross.weights > 0]
    return int(counts.sum() - np.count_nonzero(counts))
