"""Where the class means of several vehicles agree, and how far off each one is: Eq. (G3) for a whole fleet at once."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mpt.core.health import whiten
from mpt.core.influence import (
    HOLDERS,
    Known,
    bounds,
    chance,
    geometric_median,
    half_way,
    median_samples,
    middle,
    redescending,
)
from mpt.core.linalg import dot, row_space, svd
from mpt.core.validation import Floats, Ints

FAR = 100.0
"""Times as far from their middle as the furthest of the classes that are compared: no other class lies beyond."""

_PASSES = 3
_FREE = 4
"""Dimensions in which features that are not whitened vary, at least: a few directions have most of their variance."""


@dataclass(frozen=True, eq=False)
class Agreement:
    """Where the means of some vehicles agree.

    What decides between classes lies in the directions between their means, few of the d; there a deviation is judged
    apart from what it is in all others, in which chance alone makes it longer.

    Attributes:
        counts: (C,), samples of each class.
        centres: (C, d), whitened; rows of NaN below three holders.
        basis: (d, k), orthonormal, of the directions between the centres.
        scales: s of Eq. (G3), within the basis and beyond.
        factor: L (d, d); None: nothing is whitened.
    """

    counts: Ints
    centres: Floats
    basis: Floats
    scales: tuple[float, float]
    factor: Floats | None

    def centre(self, c: int) -> Floats:
        """(d,): of one class, not whitened."""
        return self.centres[c] if self.factor is None else dot(self.factor, self.centres[c])

    @cached_property
    def everywhere(self) -> tuple[Floats, float]:
        """The middle (d,) of the centres, whitened, and how far from there any mean may lie; infinite below three."""
        rows = self.centres[np.isfinite(self.centres[:, 0])]
        if len(rows) < HOLDERS:
            return np.zeros(self.centres.shape[1]), np.inf
        centre: Floats = rows.mean(axis=0)
        reach = float(np.linalg.norm(rows - centre, axis=1).max())
        least = 0.0 if self.factor is None else np.sqrt(len(centre))
        return centre, FAR * max(reach, least) or np.inf

    def whitened(self, counts: Ints, sums: Floats) -> Floats:
        """(V, C, d): the whitened means of counts (V, C) and sums (V, C, d); zeros where there are no samples."""
        rows = (sums / np.maximum(counts, 1)[:, :, None]).reshape(-1, sums.shape[2])
        return (rows if self.factor is None else whiten(rows, self.factor)).reshape(sums.shape)


@dataclass(frozen=True, eq=False)
class Deviations:
    """How far the means of V vehicles are off.

    Attributes:
        agreement: from what.
        away: (V, C, d), whitened; zeros where it is not known.
        times: (2, V, C), how many times its bound each is long, within the basis and beyond.
    """

    agreement: Agreement
    away: Floats
    times: Floats

    @property
    def far(self) -> Known:
        """(V, C): whether a mean lies beyond its bound."""
        return np.asarray(np.any(self.times > 1, axis=0))

    def counting(self, v: int, c: int) -> Floats:
        """(d,): the mean of a class that counts, in place of the one that vehicle v has reported, Eq. (G4)."""
        agreed, away, kept = self.agreement, self.away[v, c], redescending(self.times[:, v, c])
        within = dot(agreed.basis, dot(agreed.basis.T, away)) if agreed.basis.size else np.zeros_like(away)
        point = agreed.centres[c] + kept[0] * within + kept[1] * (away - within)
        return point if agreed.factor is None else dot(agreed.factor, point)


def agree(counts: Ints, sums: Floats, factor: Floats | None, claimed: Ints | None = None) -> Deviations:
    """Compare the means of several vehicles with each other, in classes of which at least three have samples.

    A centre is the mean over all vehicles, and each is compared with that of the others. Where one lies far off, they
    are compared with the point where most of them agree, which many with few samples each know less well than one
    with many knows its own mean, and the centre is the mean of those that are near it.

    Args:
        counts: (V, C).
        sums: (V, C, d).
        factor: L (d, d), or None.
        claimed: (V, C), where vehicles claim more than that: who claims many samples is held to it.
    """
    claimed = counts if claimed is None else claimed
    whole = counts.sum(axis=0)
    known = (counts > 0) & (np.count_nonzero(counts, axis=0) >= HOLDERS)
    variance = np.where(known, chance(claimed, np.maximum(whole - counts, 1)), 1.0)
    nothing = Agreement(whole, np.full(sums.shape[1:], np.nan), np.zeros((sums.shape[2], 0)), (0.0, 0.0), factor)
    points = nothing.whitened(counts, sums)
    centres = np.einsum("vc,vcd->cd", counts / np.maximum(whole, 1), points)
    centres[~known.any(axis=0)] = np.nan
    others = np.where(known, whole / np.maximum(whole - counts, 1), 0.0)
    voted, most = np.zeros(len(whole), dtype=bool), _robust_scales(points, known, variance)
    for _ in range(_PASSES):
        basis = _between(centres)
        away = points - np.where(np.isnan(centres), 0.0, centres)
        away *= np.where(voted & known, 1.0, others)[:, :, None]
        squares = _squares(away, basis)
        scales = [min(s, least) for s, least in zip(_scales(squares, variance, known, basis), most, strict=True)]
        agreed = Agreement(whole, centres, basis, (scales[0], scales[1]), factor)
        found = Deviations(agreed, away, _times(squares, variance, known, agreed))
        new = found.far.any(axis=0) & ~voted
        if not new.any():
            break
        centres = centres.copy()
        for c in np.flatnonzero(new).tolist():
            holding = np.flatnonzero(counts[:, c])
            centres[c] = geometric_median(points[holding, c], counts[holding, c])
            variance[holding, c] = chance(claimed[holding, c], np.array(median_samples(counts[holding, c])))
        voted |= new
    if not voted.any():
        return found
    centres = found.agreement.centres.copy()
    for c in np.flatnonzero(voted).tolist():
        near = np.where(found.far[:, c], 0, counts[:, c])
        if near.any():
            centres[c] = dot(near / near.sum(), points[:, c])
    return replace(found, agreement=replace(found.agreement, centres=centres))


def _robust_scales(points: Floats, known: Known, variance: Floats) -> tuple[float, float]:
    """s about the medians of every coordinate, which one vehicle does not move: with few vehicles, a lie that moves the
    means makes everybody look far off, and itself usual."""
    if not known.any():
        return 0.0, 0.0
    everybody, centres = known.all(axis=0), np.full(points.shape[1:], np.nan)
    centres[everybody] = middle(points[:, everybody])
    for c in np.flatnonzero(known.any(axis=0) & ~everybody).tolist():
        centres[c] = middle(points[known[:, c], c])
    away, basis = points - centres, _between(centres)
    if not everybody.all():
        away[~known] = 0.0
    return _scales(_squares(away, basis), variance, known, basis)


def compare(counts: Ints, sums: Floats, agreed: Agreement, claimed: Ints | None = None) -> Deviations:
    """Compare the means of vehicles with where others agree; the arguments are those of `agree`."""
    claimed = counts if claimed is None else claimed
    known = (counts > 0) & np.isfinite(agreed.centres[:, 0])
    variance = np.where(known, chance(claimed, agreed.counts), 1.0)
    away = np.where(known[:, :, None], agreed.whitened(counts, sums) - np.nan_to_num(agreed.centres), 0.0)
    return Deviations(agreed, away, _times(_squares(away, agreed.basis), variance, known, agreed))


def strays(counts: Ints, sums: Floats, agreed: Agreement) -> dict[int, dict[int, tuple[Floats, float]]]:
    """Means of classes that are not compared, as fewer than three vehicles have them, and that lie beyond all others.

    Args:
        counts: (V, C).
        sums: (V, C, d).
        agreed: where those that are compared agree.

    Returns:
        By vehicle and class the mean (d,) at the bound, which counts in its place, and how many times that it was off.
    """
    found = dict[int, dict[int, tuple[Floats, float]]]()
    alone = (counts > 0) & ~np.isfinite(agreed.centres[:, 0])
    centre, most = agreed.everywhere if alone.any() else (np.zeros(0), np.inf)
    if not np.isfinite(most):
        return found
    points = sums[alone] / counts[alone][:, None]
    away = (points if agreed.factor is None else whiten(points, agreed.factor)) - centre
    times = np.linalg.norm(away, axis=1) / most
    for (v, c), way, by in zip(np.argwhere(alone).tolist(), away, times.tolist(), strict=True):
        if by > 1:
            point = centre + way / by
            found.setdefault(v, {})[c] = (point if agreed.factor is None else dot(agreed.factor, point)), by
    return found


def _between(centres: Floats) -> Floats:
    """(d, k): an orthonormal basis of the directions between centres (C, d)."""
    rows = centres[np.isfinite(centres[:, 0])]
    if len(rows) < 2:
        return np.zeros((centres.shape[1], 0))
    between = rows - rows.mean(axis=0)
    found = row_space(between[:-1])
    if found is not None:
        return found
    _, scale, right = svd(between)
    kept = scale > 1e-9 * scale[0]
    return np.ascontiguousarray(right[kept].T)


def _squares(away: Floats, basis: Floats) -> Floats:
    """(2, V, C): |x|^2 within the basis and beyond."""
    along = away @ basis
    within, whole = np.einsum("vck,vck->vc", along, along), np.einsum("vcd,vcd->vc", away, away)
    return np.stack([within, np.maximum(whole - within, 0.0)])


def _scales(squares: Floats, variance: Floats, known: Known, basis: Floats) -> tuple[float, float]:
    """s of Eq. (G3), within the basis and beyond: medians of |x|^2 / (k (1/n_v + 1/n_o))."""
    d, k = basis.shape
    within, beyond = squares[:, known] / variance[known]
    return _median(within) / max(k, 1), _median(beyond) / max(d - k, 1)


def _times(squares: Floats, variance: Floats, known: Known, agreed: Agreement) -> Floats:
    """(2, V, C): how many times its bound a deviation is long; zero where it is not known, or there is no bound."""
    (d, k), found = agreed.basis.shape, np.zeros_like(squares)
    for part, dimensions, scale in zip((0, 1), (k, d - k), agreed.scales, strict=True):
        if dimensions and scale > 0:
            tail = dimensions if agreed.factor is not None else min(dimensions, _FREE)
            most = bounds(squares[part], scale * dimensions * variance, known, tail)
            found[part] = np.where(known, np.sqrt(squares[part] / most), 0.0)
    return found


def _median(values: Floats) -> float:
    known = values[values > 0]
    return half_way(known)
