r"""Cross moments of many vehicles, each of which moves the map that they give by a bounded amount: Eq. (G5).

Their sums of h are those of the statistics, whose means are bounded there (`mpt.core.bounded`); their means of z are
compared with each other likewise. Where either of the two was far off, both count as those of the others: what is moved
on one side alone would be a movement of features that nobody has seen. About the class means, W_zz = sum of a z z^T and
W_zh = sum of a z h^T, it is W_zh = W_zz A + noise on every vehicle, A the map that all have in common: a vehicle whose
W_zh is far from that has the common map in place of its own. Where all classes count alike, W_zz is read as a
covariance, Eq. (D2), and no direction of it may stand out, as in Eq. (G2).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.linalg

from mpt.core.affine import map_ridge
from mpt.core.agreement import Agreement, Deviations, agree, compare, strays
from mpt.core.bounded import Clip, Consensus, energies, probes_for
from mpt.core.cross import CrossStatistics
from mpt.core.errors import StatisticsError
from mpt.core.health import whiten
from mpt.core.influence import (
    HOLDERS,
    MOST_ENERGY,
    Known,
    direction_share,
    half_way,
    known_spread,
    redescending,
    spread_share,
)
from mpt.core.linalg import dot, gram
from mpt.core.rounding import regular_factor, rounding_level
from mpt.core.validation import Floats, Ints

MOST_RESIDUAL = 3.0
"""Times the median vehicle's: how far W_zh may be from W_zz A, squared, before it counts by less, Eq. (G5)."""
_PASSES = 3


class CrossClip(NamedTuple):
    """What of a vehicle's cross moments does not count.

    Attributes:
        spread: the factor for W_zz and W_zh, as in Eq. (G2).
        times: by class, how many times its bound the mean was off under the reference model.
        residual: the share of W_zh - W_zz A that counts.
        means: (d,) by class that has nobody to be compared with, the mean of z that counts.
    """

    spread: float
    times: dict[int, float]
    residual: float
    means: Mapping[int, Floats] = {}


@dataclass(frozen=True, eq=False)
class CrossConsensus:
    """What cross moments are compared with.

    Attributes:
        spread: the median vehicle's samples' squared length about their class means, under the reference model.
        doubt: what of it may be rounding.
        means: where the means under it agree.
        now: where those under the current model do, about `origin` (d,).
        moments: (d, d) twice: L of W_zz, with a ridge, and W_zh of the vehicles that agree, which give the common map.
        probes: (d, p), directions of h in which W_zh are compared, and their images (d, p) under the common map.
        residual: the median vehicle's distance from it, squared, a sample and dimension.
        across: (d, p), directions of z in which W_zz are compared; None where classes do not count alike.
        energy: the median vehicle's of W_zz, see `energies`.
        free: degrees of freedom behind the covariance of z.
    """

    spread: float
    doubt: float
    means: Agreement
    now: Agreement
    origin: Floats
    moments: tuple[Floats, Floats]
    probes: tuple[Floats, Floats]
    residual: float
    across: Floats | None
    energy: float
    free: float


class BoundedCross(NamedTuple):
    """Cross moments that may be merged, what of each did not count, and what they were compared with, if anything."""

    reports: tuple[CrossStatistics, ...]
    clips: tuple[CrossClip | None, ...]
    consensus: CrossConsensus | None


def bounded_cross(
    reports: Sequence[CrossStatistics], clips: Sequence[Clip | None], agreed: Consensus | None
) -> BoundedCross:
    """Bound what each of several vehicles' cross moments adds to their sum.

    Args:
        reports: one a vehicle, of the same request.
        clips: of the same vehicles' statistics.
        agreed: of the statistics; None where there was nothing to compare with.
    """
    several = tuple(reports)
    if len(several) < HOLDERS or agreed is None or agreed.probes is None:
        made = tuple(_moved(r, clip) for r, clip in zip(several, clips, strict=True))
        return BoundedCross(made, (None,) * len(made), None)
    stacked = _Stacked.of(several)
    spread, doubt = _median(stacked.spreads), half_way(stacked.doubts)
    stacked = stacked.known(spread, doubt)
    usual = spread_share(stacked.spreads, spread) >= 1
    common = _Common.of(several, stacked, usual)
    if common is None:
        made = tuple(_moved(r, clip) for r, clip in zip(several, clips, strict=True))
        return BoundedCross(made, (None,) * len(made), None)
    found = agree(stacked.counts, stacked.earlier, common.factor)
    far, images = _residuals(several, stacked, common, agreed.probes)
    for _ in range(_PASSES):
        near = usual & (far <= MOST_RESIDUAL * _median(far[usual]))
        if near.sum() == common.vehicles or not near.any():
            break
        again = _Common.of(several, stacked, near)
        if again is None:
            break
        common = again
        far, images = _residuals(several, stacked, common, agreed.probes)
    across = probes_for(stacked.counts, common.factor) if stacked.alike else None
    consensus = CrossConsensus(
        spread=spread,
        doubt=doubt,
        means=found.agreement,
        now=agreed.means,
        origin=agreed.origin,
        moments=common.moments,
        probes=(agreed.probes, images),
        residual=_median(far),
        across=across,
        energy=0.0 if across is None else _median(stacked.energies(several, common.factor, across)),
        free=float(stacked.free[usual].sum()),
    )
    cuts = _cuts(several, stacked, found, far, consensus, among=True)
    cross_map = _map(consensus) if any(cut is not None and cut.residual < 1 for cut in cuts) else None
    made = tuple(_moved(r, clip, cut, consensus, cross_map) for r, clip, cut in zip(several, clips, cuts, strict=True))
    return BoundedCross(made, cuts, consensus)


def bounded_more(
    report: CrossStatistics, clip: Clip | None, consensus: CrossConsensus | None
) -> tuple[CrossStatistics, CrossClip | None]:
    """One more vehicle's cross moments as they count, beside those that the consensus is from."""
    if consensus is None:
        return _moved(report, clip), None
    stacked = _Stacked.of((report,)).known(consensus.spread, consensus.doubt)
    found = compare(stacked.counts, stacked.earlier, consensus.means)
    probes, images = consensus.probes
    factor = consensus.means.factor
    assert factor is not None
    far = _distances((report,), stacked, probes, images, factor)
    (cut,) = _cuts((report,), stacked, found, far, consensus, among=False)
    cross_map = _map(consensus) if cut is not None and cut.residual < 1 else None
    return _moved(report, clip, cut, consensus, cross_map), cut


def _cuts(
    reports: Sequence[CrossStatistics],
    stacked: "_Stacked",
    found: Deviations,
    far: Floats,
    consensus: CrossConsensus,
    *,
    among: bool,
) -> tuple[CrossClip | None, ...]:
    """What of each report does not count; `among`: the consensus is from these very reports."""
    spreads = _spreads(reports, stacked, consensus, among=among)
    most, off = MOST_RESIDUAL * consensus.residual, found.far
    ratios = np.sqrt(far / most) if most > 0 else np.zeros_like(far)
    kept = np.where(ratios > 1, redescending(ratios), 1.0)
    made: list[CrossClip | None] = [None] * len(spreads)
    lone = strays(stacked.counts, stacked.earlier, consensus.means)
    for v in {*np.flatnonzero((spreads < 1) | (kept < 1) | off.any(axis=1)).tolist(), *lone}:
        times = {c: float(found.times[:, v, c].max()) for c in np.flatnonzero(off[v]).tolist()}
        alone = lone.get(v, {})
        times |= {c: by for c, (_, by) in alone.items()}
        made[v] = CrossClip(float(spreads[v]), times, float(kept[v]), {c: mean for c, (mean, _) in alone.items()})
    return tuple(made)


def _spreads(
    reports: Sequence[CrossStatistics], stacked: "_Stacked", consensus: CrossConsensus, *, among: bool
) -> Floats:
    """(V,): Eq. (G2), the factors for W_zz and W_zh."""
    shares, factor = spread_share(stacked.spreads, consensus.spread), consensus.means.factor
    if consensus.across is None or factor is None:
        return shares
    wild = stacked.energies(reports, factor, consensus.across) * shares**2 > MOST_ENERGY * consensus.energy
    for v in np.flatnonzero(wild).tolist():
        mine = float(stacked.free[v])
        others = consensus.free - (mine if among and shares[v] >= 1 else 0.0)
        shares[v] *= direction_share(shares[v] * _within(reports[v])[0], mine, others, factor)
    return shares


def _moved(
    report: CrossStatistics,
    clip: Clip | None,
    cut: CrossClip | None = None,
    consensus: CrossConsensus | None = None,
    cross_map: Floats | None = None,
) -> CrossStatistics:
    """The report as it counts."""
    if clip is None and cut is None:
        return report
    clip, cut = clip or Clip(), cut or CrossClip(1.0, {}, 1.0)
    n, counts = report.counts, clip.counts(report.counts)
    z, h = (sums / np.maximum(n, 1)[:, None] for sums in (report.earlier, report.sums))
    for c in {*clip.means, *cut.times}:
        if consensus is not None and np.isfinite([consensus.means.centres[c, 0], consensus.now.centres[c, 0]]).all():
            z[c], h[c] = consensus.means.centre(c), consensus.now.centre(c) + consensus.origin - report.origin
            continue
        if c in clip.means:
            h[c] = clip.means[c] - report.origin
        if c in cut.means:
            z[c] = cut.means[c]
    seen = np.flatnonzero((n > 0) & (report.weights > 0))
    kept = cut.spread * counts[seen].sum() / max(int(n[seen].sum()), 1)
    within, within_cross = (kept * part for part in _within(report))
    if cross_map is not None and cut.residual < 1:
        common = dot(within, cross_map)
        within_cross = common + cut.residual * (within_cross - common)
    root = np.sqrt(report.weights[seen] * counts[seen])[:, None]
    products, cross = within + gram(z[seen] * root), within_cross + dot((z[seen] * root).T, h[seen] * root)
    earlier, sums = z * counts[:, None], h * counts[:, None]
    return replace(report, counts=counts, earlier=earlier, sums=sums, gram=products, cross=cross)


def _within(report: CrossStatistics) -> tuple[Floats, Floats]:
    """W_zz and W_zh, about the vehicle's own class means."""
    seen = (report.counts > 0) & (report.weights > 0)
    scale = np.sqrt(report.weights[seen] / report.counts[seen])[:, None]
    z, h = scale * report.earlier[seen], scale * report.sums[seen]
    within, within_cross = report.gram - gram(z), report.cross - dot(z.T, h)
    rounded = within.diagonal() <= 0
    within[rounded], within[:, rounded], within_cross[rounded] = 0.0, 0.0, 0.0
    return within, within_cross


@dataclass(frozen=True, eq=False)
class _Stacked:
    """Several vehicles' cross moments as arrays.

    Attributes:
        counts: (V, C).
        earlier, sums: (V, C, d).
        weights: (C,).
        spreads: (V,), weighted squared length of a sample about its class mean under the reference model.
        doubts: (V,), what of such a length may be rounding of W_zz.
        free: (V,), degrees of freedom about the class means, weighted.
        noise: (V,), sum of a^2 over samples, what the noise of W_zh grows with.
    """

    counts: Ints
    earlier: Floats
    sums: Floats
    weights: Floats
    spreads: Floats
    doubts: Floats
    free: Floats
    noise: Floats

    @property
    def alike(self) -> bool:
        """Whether all classes that count do so alike, as for Eq. (D2)."""
        return bool(np.isin(self.weights, (0.0, 1.0)).all())

    def energies(self, reports: Sequence[CrossStatistics], factor: Floats, probes: Floats) -> Floats:
        """(V,): of W_zz, where classes count alike."""
        seen, grams = self.weights > 0, [report.gram for report in reports]
        return energies(grams, self.earlier[:, seen], self.counts[:, seen], self.free, factor, probes)

    def known(self, spread: float, doubt: float) -> "_Stacked":
        """With an infinite spread where rounding hides it, given the median vehicle's."""
        return replace(self, spreads=known_spread(self.spreads, self.doubts, (spread, doubt)))

    @classmethod
    def of(cls, reports: Sequence[CrossStatistics]) -> "_Stacked":
        counts, a = np.array([r.counts for r in reports]), reports[0].weights
        earlier, sums = np.array([r.earlier for r in reports]), np.array([r.sums for r in reports])
        n = np.maximum(counts, 1)
        lengths = np.einsum("vcd,vcd->vc", earlier, earlier) / n
        whole = np.array([r.gram.trace() for r in reports])
        about = whole - (a * lengths).sum(axis=1)
        free = (a * (counts - (counts > 0))).sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            spreads = np.where(free > 0, np.maximum(about, 0.0) / free, np.nan)
        levels = [rounding_level(int(r.counts.sum()), r.narrow) for r in reports]
        doubts = 2 * earlier.shape[2] * np.array(levels) * whole / np.maximum((a * counts).sum(axis=1), 1e-300)
        return cls(counts, earlier, sums, a, spreads, doubts, free, (a**2 * counts).sum(axis=1))


@dataclass(frozen=True, eq=False)
class _Common:
    """What some vehicles have in common: L of W_zz with a ridge and W_zh, and L of the covariance of z."""

    vehicles: int
    moments: tuple[Floats, Floats]
    factor: Floats

    @classmethod
    def of(cls, reports: Sequence[CrossStatistics], stacked: _Stacked, chosen: Known) -> "_Common | None":
        some = [r for r, there in zip(reports, chosen, strict=True) if there]
        if not some:
            return None
        a, each = stacked.weights, stacked.counts[chosen]
        counts = each.sum(axis=0)
        seen = (counts > 0) & (a > 0)
        scale = np.sqrt(a / np.maximum(each, 1))[:, :, None]
        z, h = ((scale * sums[chosen]).reshape(-1, sums.shape[2]) for sums in (stacked.earlier, stacked.sums))
        within = _total([r.gram for r in some]) - gram(z)
        if not seen.any() or not np.trace(within) > 0:
            return None
        cross = _total([r.cross for r in some]) - dot(z.T, h)
        ridge = max(map_ridge(a[seen], counts[seen], len(within)), 1e-6)
        free = float((a * counts).sum())
        try:
            solved, factor = regular_factor(within, ridge, "gram"), regular_factor(within / free, 0.1, "gram")
        except StatisticsError:
            return None
        return cls(len(some), (solved, cross), factor)

    def images(self, probes: Floats) -> Floats:
        """(d, p): A x for each of the probes."""
        return _solved(self.moments, dot(self.moments[1], probes))


def _map(consensus: CrossConsensus) -> Floats:
    """(d, d): the common map."""
    return _solved(consensus.moments, consensus.moments[1])


def _solved(moments: tuple[Floats, Floats], columns: Floats) -> Floats:
    """(d, n): W_zz^-1 columns, with the ridge; A of W_zh."""
    return np.asarray(scipy.linalg.cho_solve((moments[0], True), columns, check_finite=False))


def _residuals(
    reports: Sequence[CrossStatistics], stacked: _Stacked, common: _Common, probes: Floats
) -> tuple[Floats, Floats]:
    """`_distances` from a common map, and the images of the probes under it."""
    images = common.images(probes)
    return _distances(reports, stacked, probes, images, common.factor), images


def _distances(
    reports: Sequence[CrossStatistics], stacked: _Stacked, probes: Floats, images: Floats, factor: Floats
) -> Floats:
    """(V,): |L^-1 (W_zh x - W_zz A x)|^2 over the probes x, for each sample and dimension."""
    a = stacked.weights / np.maximum(stacked.counts, 1)
    z, h = stacked.earlier, stacked.sums
    made = np.zeros((len(reports), probes.shape[1], probes.shape[0]))
    along = a[:, :, None] * (h @ probes - z @ images)
    for v, report in enumerate(reports):
        made[v] = (dot(report.cross, probes) - dot(report.gram, images)).T
    made -= along.transpose(0, 2, 1) @ z
    lengths = np.sum(whiten(made.reshape(-1, probes.shape[0]), factor) ** 2, axis=1).reshape(len(reports), -1)
    return np.asarray(lengths.mean(axis=1) / probes.shape[0] / np.maximum(stacked.noise, 1e-300))


def _total(matrices: Sequence[Floats]) -> Floats:
    """Their sum, without a stack of all of them."""
    whole = matrices[0].copy()
    for one in matrices[1:]:
        whole += one
    return whole


def _median(values: Floats) -> float:
    known = values[np.isfinite(values)]
    known = known[known > 0]
    return half_way(known)
