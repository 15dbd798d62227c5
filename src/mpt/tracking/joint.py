"""Readouts of two views on a fleet, of "mpt-duo": what vehicles are asked, which views there are, and the decision.

A departure's view is of the round that its deposit is from: every class where it was measured then, or where it was
tracked to. The joint moments of Eq. (D2) between two earlier views need no message of their own: they are those that
vehicles reported of the first in the round that became the second. Where there are none, the view that knows most of
the departed classes is read alone, and vehicles are asked for its moments only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from mpt.core import ClassStatistics, CrossStatistics, NearestClassMean, StatisticsError
from mpt.core.affine import halves_suffice
from mpt.core.two_views import EarlierView, JoinedViews, kept_views, unit_weights
from mpt.core.validation import Floats, Ints
from mpt.methods import JoiningMethod
from mpt.protocol.cross_request import CrossRequest
from mpt.tracking.book import ENOUGH
from mpt.tracking.settings import TrackerSettings
from mpt.tracking.state import Tracked, TrackerState
from mpt.tracking.views import Views, telling


def joint_requests(state: TrackerState, round: int, origin: Floats) -> dict[int, CrossRequest]:
    """By the round of each earlier view, what is asked for Eq. (D2): all classes that are measured count alike."""
    weights = unit_weights(
        state.settings.num_classes, {*state.watch.classes, *state.tracked, *np.flatnonzero(state.made < 0).tolist()}
    )
    halves = halves_suffice(weights, state.coverage.totals, state.settings.dim)
    origins = {one.reference.round: one.reference.origin for one in state.tracked.values() if one.reference is not None}
    return {
        view.round: CrossRequest(round, view.round, weights, origins[view.round], origin, halves=halves)
        for view in _read(state.settings, state.views)
        if view.round in origins and weights.any()
    }


def heard(
    state: TrackerState,
    tracked: Mapping[int, Tracked],
    joint: Mapping[int, CrossStatistics],
    stats: ClassStatistics,
    departed: Sequence[int],
    problems: list[str],
) -> Views:
    """The views that are still needed, with this round's joint moments, where they are of most samples.

    Args:
        state: before the round.
        tracked: the classes with a deposit after it.
        joint: by the round of a view, the merged joint moments.
        stats: everybody's.
        departed: the classes that are reconstructed in this round.
        problems: takes a sentence for each view that is not read.
    """
    needed, moments = _referring(tracked), dict[int, CrossStatistics]()
    kept = tuple(view for view in state.views.kept if view.round in needed)
    for view in (view for view in _read(state.settings, state.views) if view in kept):
        there, found = 0, joint.get(view.round)
        counted = np.delete(stats.counts, sorted({*stats.watched, *tracked})).sum()
        if found is not None:
            there, counted = (_counted(one, found.weights) for one in (found, stats))
        if found is not None and there >= ENOUGH * counted:
            moments[view.round] = found
        else:
            problems.append(
                f"the model of round {view.round} is not read in this round: joint moments of {there} of {counted} "
                f"samples, should be of {ENOUGH:.0%}; the other vehicles do not have it"
            )
    return Views(kept, moments, state.views.between, tuple(departed) if moments else ())


def joined(
    settings: TrackerSettings,
    views: Views,
    stats: ClassStatistics,
    current: NearestClassMean,
    outward: Sequence[int],
    problems: list[str],
    most: int | None = None,
) -> tuple[JoinedViews, tuple[int, ...]] | None:
    """The readout of the current view and the earlier ones that have moments, and their rounds; None: of none.

    Args:
        settings: the method.
        views: with joint moments.
        stats: everybody's, of the same round.
        current: where the classes are under the current model.
        outward: the classes that are read out further out, Eq. (X10).
        problems: takes a sentence where they cannot be read.
        most: how many earlier views are read; None: all.
    """
    some = [view for view in _read(settings, views) if view.round in views.moments]
    if not some or not views.departed or not isinstance(how := settings.how, JoiningMethod):
        return None
    some = some if most is None or len(some) <= most else [telling(some)]
    rounds = tuple(view.round for view in some)
    pairs = {(v, w): (rounds[v], rounds[w]) for w in range(len(some)) for v in range(w)}
    between = {places: views.between[pair] for places, pair in pairs.items() if pair in views.between}
    moments = [views.moments[number] for number in rounds]
    try:
        return how.join(current, stats, some, moments, between, views.departed, outward), rounds
    except StatisticsError as error:
        said = " and ".join(map(str, rounds))
        problems.append(f"the current model and that of round {said} cannot be read together: {error}")
        return None


def _read(settings: TrackerSettings, views: Views) -> tuple[EarlierView, ...]:
    """The views that vehicles are asked about, and that are read."""
    if not views.kept or not isinstance(how := settings.how, JoiningMethod):
        return ()
    return views.together(how.between)


def _counted(sums: ClassStatistics | CrossStatistics, weights: Floats) -> int:
    """How many samples there are of classes with a weight (C,)."""
    return int(sums.counts[weights > 0].sum())


def views_after(
    state: TrackerState,
    tracked: Mapping[int, Tracked],
    views: Views,
    now: tuple[Floats, Ints],
    round: int,
) -> Views:
    """With a view of every departure whose model vehicles keep from now on, and what is known between it and others.

    Args:
        state: before the round.
        tracked: the classes with a deposit after it.
        views: those of before the departures of this round.
        now: (C, d), the prototypes after the round, and (C,) the round that each is from.
        round: the round that is closed.
    """
    if not state.settings.asks.joint:
        return views
    known, between = {view.round: view.prototypes for view in views.kept}, dict(views.between)
    before, made = _referring(state.tracked), list[EarlierView]()
    for number, classes in sorted(_referring(tracked).items()):
        if number in known:
            rows = known[number].copy()
        elif number in before:
            continue  # it has gone already, for later ones
        else:
            rows = _known_in(state, number, now if number == round else (state.prototypes, state.made))
            last = views.moments if number == round else state.views.moments if number == _last(state) else {}
            between |= {(v, number): moments for v, moments in last.items() if v < number}
        for c, one in classes.items():
            rows[c] = one.deposit.prototype if one.deposit.anchor is None else one.deposit.anchor
        made.append(EarlierView(number, tuple(classes), rows))
    kept = kept_views(made, tracked)
    rounds = {view.round for view in kept}
    return replace(
        views,
        kept=kept,
        moments={number: one for number, one in views.moments.items() if number in rounds},
        between={pair: one for pair, one in between.items() if rounds.issuperset(pair)},
    )


def newly_apart(settings: TrackerSettings, before: Views, after: Views) -> tuple[str, ...]:
    """A sentence where views have come that cannot be read together."""
    read = _read(settings, after)
    if len(read) == len(after.kept) or {view.round for view in after.kept} <= {view.round for view in before.kept}:
        return ()
    (one,), first, second = read, *(view.round for view in after.kept)
    return (
        f"the models of rounds {first} and {second} are not read together: there are no joint moments between them; "
        f"that of round {one.round} is read",
    )


def _known_in(state: TrackerState, number: int, last: tuple[Floats, Ints]) -> Floats:
    """(C, d): where the classes were in a round: measured, or tracked to; NaN where it is not known any more.

    Args:
        state: before the round that is closed, with the snapshots of earlier ones.
        number: the round that is asked about.
        last: the prototypes of this round or the one before, and the round that each is from.
    """
    older = {snapshot.round: snapshot for snapshot in state.trusted.values() if snapshot.round < _last(state)}
    if number not in older:
        return np.where((last[1] == number)[:, None], last[0], np.nan)
    then, carries = older[number].everybody, state.settings.carries
    rows = then.means
    rows[[c for c, one in state.tracked.items() if not carries(int(then.counts[c]), one.samples)]] = np.nan
    return rows


def _last(state: TrackerState) -> int:
    return -1 if state.snapshot is None else state.snapshot.round


def _referring(tracked: Mapping[int, Tracked]) -> dict[int, dict[int, Tracked]]:
    """By the round of each reference model, the classes that are tracked from it."""
    found = dict[int, dict[int, Tracked]]()
    for c, one in sorted(tracked.items()):
        if one.reference is not None:
            found.setdefault(one.reference.round, {})[c] = one
    return found
