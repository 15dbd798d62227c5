"""Readouts of two views on a fleet, of "mpt-duo": what vehicles are asked, which views there are, and the decision.

A departure's view is of the round that its deposit is from: every class where it was measured then, or where it was
tracked to. The joint moments of Eq. (D2) between two earlier views need no message of their own: they are those that
vehicles reported of the first in the round that became the second.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import scipy.linalg

from mpt.core import ClassStatistics, CrossStatistics, NearestClassMean, StatisticsError
from mpt.core.affine import halves_suffice
from mpt.core.linalg import gram
from mpt.core.two_views import EarlierView, JoinedViews, joint_covariance, kept_views, unit_weights
from mpt.core.validation import Floats, Ints
from mpt.methods import JoiningMethod
from mpt.protocol.cross_request import CrossRequest
from mpt.tracking.book import ENOUGH
from mpt.tracking.settings import TrackerSettings
from mpt.tracking.state import Tracked, TrackerState
from mpt.tracking.views import Views


def joint_requests(state: TrackerState, round: int, origin: Floats) -> dict[int, CrossRequest]:
    """By the round of each earlier view, what is asked for Eq. (D2): all classes that are measured count alike."""
    weights = unit_weights(
        state.settings.num_classes, {*state.watch.classes, *state.tracked, *np.flatnonzero(state.made < 0).tolist()}
    )
    halves = halves_suffice(weights, state.coverage.totals, state.settings.dim)
    origins = {one.reference.round: one.reference.origin for one in state.tracked.values() if one.reference is not None}
    return {
        view.round: CrossRequest(round, view.round, weights, origins[view.round], origin, halves=halves)
        for view in state.views.kept
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
    needed = _referring(tracked)
    kept, moments = tuple(v for v in state.views.kept if v.round in needed), dict[int, CrossStatistics]()
    for view in kept:
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
    """The readout of the current view and all earlier ones, or with the latest alone, and their rounds; None: neither.

    Args:
        settings: the method.
        views: with joint moments.
        stats: everybody's, of the same round.
        current: where the classes are under the current model.
        outward: the classes that are read out further out, Eq. (X10).
        problems: takes a sentence for each way that does not work.
        most: how many earlier views are read; None: all.
    """
    if not views.departed or not isinstance(how := settings.how, JoiningMethod):
        return None
    usable = [view for view in views.kept if view.round in views.moments]
    ways = {len(some): some for some in (usable, usable[-1:]) if some and len(some) <= (most or len(some))}
    for some in ways.values():
        rounds = tuple(view.round for view in some)
        pairs = {(v, w): (rounds[v], rounds[w]) for w in range(len(some)) for v in range(w)}
        between = {places: views.between[pair] for places, pair in pairs.items() if pair in views.between}
        try:
            moments = [views.moments[number] for number in rounds]
            given = current, some, moments, joint_covariance(stats, moments, between)
            fewer = any(_counted(one, one.weights) < _counted(stats, one.weights) for one in moments)
            return _join(how, given, views.departed, outward, problems if fewer else []), rounds
        except StatisticsError as error:
            said = " and ".join(map(str, rounds))
            problems.append(f"the current model and that of round {said} cannot be read together: {error}")
    return None


def _join(
    how: JoiningMethod,
    given: tuple[NearestClassMean, Sequence[EarlierView], Sequence[CrossStatistics], Floats],
    departed: Sequence[int],
    outward: Sequence[int],
    problems: list[str],
) -> JoinedViews:
    """The readout. Where S_x is no covariance, as its blocks are of different samples, the nearest one is in its place.

    S_h is of all vehicles, S_zh of those that have the earlier model; rounding and the gate leave differences, too.
    """
    try:
        return how.join(*given, departed, outward)
    except StatisticsError:
        current, some, moments, whole = given
        made = how.join(current, some, moments, nearest_covariance(whole, 1 + len(some)), departed, outward)
        problems.append("joint moments are of fewer vehicles than the statistics: the nearest covariance is in use")
        return made


def _counted(sums: ClassStatistics | CrossStatistics, weights: Floats) -> int:
    """How many samples there are of classes with a weight (C,)."""
    return int(sums.counts[weights > 0].sum())


def nearest_covariance(whole: Floats, views: int) -> Floats:
    """(V d, V d): a symmetric matrix without its negative eigenvalues, each view in units of its mean variance."""
    variances = whole.diagonal().reshape(views, -1).mean(axis=1)
    units = np.repeat(np.sqrt(np.where(variances > 0, variances, 1.0)), len(whole) // views)
    values, vectors = scipy.linalg.eigh(whole / np.outer(units, units), driver="evd", check_finite=False)
    made = gram((vectors * np.sqrt(np.maximum(values, 0.0))).T)
    return made * np.outer(units, units)


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
    before = {snapshot.round: snapshot for snapshot in state.trusted.values()}
    made = list[EarlierView]()
    for number, classes in sorted(_referring(tracked).items()):
        if number in known:
            rows = known[number].copy()
        else:
            then = (state.prototypes, state.made) if number < round else now
            rows = np.where((then[1] == number)[:, None], then[0], np.nan)
            if np.isnan(rows).all() and number in before:
                rows = before[number].everybody.means
                rows[[c for c in state.tracked if c not in classes]] = np.nan
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


def _last(state: TrackerState) -> int:
    return -1 if state.snapshot is None else state.snapshot.round


def _referring(tracked: Mapping[int, Tracked]) -> dict[int, dict[int, Tracked]]:
    """By the round of each reference model, the classes that are tracked from it."""
    found = dict[int, dict[int, Tracked]]()
    for c, one in sorted(tracked.items()):
        if one.reference is not None:
            found.setdefault(one.reference.round, {})[c] = one
    return found
