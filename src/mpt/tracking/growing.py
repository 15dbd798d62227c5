"""A fleet in which classes appear: its state with more of them, and answers with theirs in other places."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpt.core import ClassStatistics, CrossStatistics, StatisticsError
from mpt.core.validation import Ints, read_only
from mpt.protocol.question import Question, packed, parts
from mpt.tracking.answers import Earlier, Snapshot
from mpt.tracking.settings import TrackerSettings
from mpt.tracking.state import Tracked, TrackerState
from mpt.tracking.views import Views


def with_classes(state: TrackerState, settings: TrackerSettings) -> TrackerState:
    """The state of a fleet that has more classes, behind those that there are; nobody has a sample of them yet.

    Args:
        state: of a fleet whose method has no questions of its own.
        settings: with more classes, and the same in all that a state depends on.
    """
    more = settings.num_classes - state.settings.num_classes
    if not more:
        return replace(state, settings=settings)
    snapshots = {id(one): _grown(one, more) for one in (state.snapshot, *state.trusted.values()) if one is not None}
    return replace(
        state,
        settings=settings,
        prototypes=_more(state.prototypes, more, np.nan),
        made=_more(state.made, more, -1),
        counts={vehicle: _more(counts, more) for vehicle, counts in state.counts.items()},
        tracked={c: _with_weights(one, more) for c, one in state.tracked.items()},
        snapshot=state.snapshot and snapshots[id(state.snapshot)],
        trusted={vehicle: snapshots[id(one)] for vehicle, one in state.trusted.items()},
        views=_seen_by(state.views, more),
    )


def moved(answer: bytes, question: Question, places: Ints, num_classes: int, dim: int) -> bytes:
    """An answer with its classes elsewhere.

    Args:
        answer: to the question.
        question: as the device had it; its watched classes keep their places.
        places: (k,), where the first k classes go; the others should have no samples.
        num_classes: that there are then.
        dim: d.
    """
    reported, moments, _ = parts(answer)
    stats = _placed(question.statistics.read(reported, dim), places, num_classes)
    cross = {c: _placed_cross(question.cross[c].read(part, {}), places, num_classes) for c, part in moments.items()}
    return packed(stats.to_bytes(frame=False), {c: one.to_bytes(frame=False) for c, one in cross.items()})


def _placed(stats: ClassStatistics, places: Ints, num_classes: int) -> ClassStatistics:
    if stats.counts[len(places) :].any():
        raise StatisticsError("answer: samples of a class without a label")
    counts, sums, squares = (_spread(a, places, num_classes) for a in (stats.counts, stats.sums, stats.squares))
    return replace(stats, counts=counts, sums=sums, squares=squares)


def _placed_cross(moments: CrossStatistics, places: Ints, num_classes: int) -> CrossStatistics:
    arrays = (moments.counts, moments.earlier, moments.sums, moments.weights)
    counts, earlier, sums, weights = (_spread(array, places, num_classes) for array in arrays)
    return replace(moments, counts=counts, earlier=earlier, sums=sums, weights=weights)


def _spread(array: NDArray[Any], places: Ints, num_classes: int) -> NDArray[Any]:
    """(C, ...): zero but in these places, where the first rows of `array` are."""
    wide = np.zeros((num_classes, *array.shape[1:]), dtype=array.dtype)
    wide[places] = array[: len(places)]
    return wide


def _more(array: NDArray[Any], more: int, value: float = 0) -> NDArray[Any]:
    rows = np.full((more, *array.shape[1:]), value, dtype=array.dtype)
    return read_only(np.concatenate([array, rows]))


def _grown(snapshot: Snapshot, more: int) -> Snapshot:
    rest = None if snapshot.rest is None else _widened(snapshot.rest, more)
    holders = {vehicle: _widened(stats, more) for vehicle, stats in snapshot.holders.items()}
    earlier = {
        number: Earlier(_more(one.counts, more), _more(one.means, more, np.nan))
        for number, one in snapshot.earlier.items()
    }
    return replace(snapshot, rest=rest, holders=holders, earlier=earlier)


def _widened(stats: ClassStatistics, more: int) -> ClassStatistics:
    return _placed(stats, np.arange(stats.num_classes), stats.num_classes + more)


def _seen_by(views: Views, more: int) -> Views:
    """The earlier views, which do not know the new classes."""

    def wide(moments: CrossStatistics) -> CrossStatistics:
        return _placed_cross(moments, np.arange(moments.num_classes), moments.num_classes + more)

    return replace(
        views,
        kept=tuple(replace(view, prototypes=_more(view.prototypes, more, np.nan)) for view in views.kept),
        moments={number: wide(one) for number, one in views.moments.items()},
        between={pair: wide(one) for pair, one in views.between.items()},
    )


def _with_weights(one: Tracked, more: int) -> Tracked:
    if one.reference is None:
        return one
    return replace(one, reference=replace(one.reference, weights=_more(one.reference.weights, more)))
