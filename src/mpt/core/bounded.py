"""Reports of many vehicles, each of which moves what they add up to by a bounded amount: Eq. (G1) to (G4)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from mpt.base.credit import MOST_SAMPLES, believed, usual
from mpt.core.agreement import Agreement, Deviations, agree, compare, strays
from mpt.core.equations import DEFAULT_COV_RIDGE, outside
from mpt.core.errors import StatisticsError
from mpt.core.health import whiten
from mpt.core.influence import (
    HOLDERS,
    MOST_ENERGY,
    MOST_SPREAD,
    capped_remaining,
    direction_share,
    half_way,
    known_spread,
    no_majority,
    spread_share,
)
from mpt.core.linalg import dot, gram, triangular
from mpt.core.rounding import regular_factor, rounding_level, without_rounding
from mpt.core.statistics import ClassStatistics
from mpt.core.validation import Floats, Ints

_PROBES = 4


@dataclass(frozen=True, eq=False)
class Clip:
    """What of a vehicle's report does not count.

    Attributes:
        share: of its samples, Eq. (G1).
        whole: the classes that are watched, of which all its samples count: somebody may hold nearly all of them.
        spread: the factor for its scatter about its class means, Eq. (G2).
        longest: a sample's squared length about its class mean, at most.
        means: (d,) by class, about which its samples count as if they were there, Eq. (G3) and (G4).
        times: by class, how many times its bound the mean was off that it has reported.
        most: by departed class, so many of its samples count, Eq. (G1).
    """

    share: float = 1.0
    whole: frozenset[int] = frozenset()
    spread: float = 1.0
    longest: float = np.inf
    means: Mapping[int, Floats] = field(default_factory=dict)
    times: Mapping[int, float] = field(default_factory=dict)
    most: Mapping[int, int] = field(default_factory=dict)

    def counts(self, counts: Ints) -> Ints:
        """(C,): the samples that count, of those that it has reported; at least one of each class."""
        kept, whole = counting(counts, self.share), list(self.whole)
        kept[whole] = counts[whole]
        for c, most in self.most.items():
            kept[c] = min(int(kept[c]), most)
        return kept


@dataclass(frozen=True, eq=False)
class Consensus:
    """What a report is compared with, from at least three vehicles' reports of the same round.

    Attributes:
        samples: of all vehicles.
        typical: what is usual of one.
        spread: the median vehicle's samples' squared length about their class means.
        doubt: what of it may be rounding.
        energy: its scatter's, in whitened units.
        free: degrees of freedom behind the covariance.
        means: where the means agree.
        probes: (d, p), directions in which scatters are compared; None where the reports have none.
        origin: (d,), that of the reports.
        remaining: by departed class, so many samples of it count of one more vehicle.
    """

    samples: float
    typical: float
    spread: float
    doubt: float
    energy: float
    free: float
    means: Agreement
    probes: Floats | None
    origin: Floats
    remaining: Mapping[int, int] = field(default_factory=dict)


class Bounded(NamedTuple):
    """Reports that may be merged, in the order in which they came, and what of each did not count: None, or a `Clip`.

    `consensus` is None where there were fewer than three reports, and nothing to compare them with.
    """

    reports: tuple[ClassStatistics, ...]
    clips: tuple[Clip | None, ...]
    consensus: Consensus | None


def bounded(
    reports: Sequence[ClassStatistics],
    *,
    departed: Collection[int] = (),
    owners: Collection[tuple[int, int]] = (),
    cov_ridge: float = DEFAULT_COV_RIDGE,
) -> Bounded:
    """Bound what each of several reports of one round adds to their sum. They are known to merge.

    A class's means are compared where at least three vehicles have samples of it.

    Args:
        reports: one a vehicle, of the same round and request.
        departed: classes whose owner has gone: of the samples that remain no vehicle has a majority.
        owners: the places of reports, each with a departed class of which that vehicle may have a majority: it has
            returned.
        cov_ridge: lambda_Sigma of Eq. (3).

    Raises:
        StatisticsError: reports that do not merge; nothing else, whatever is in them.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> def report(shift):
        ...     return ClassStatistics.from_features(rng.normal(size=(40, 3)) + shift, np.arange(40) % 2, 2)
        >>> made = bounded([report(0), report(0), report(0), report(1000)])
        >>> bool(np.abs(sum(made.reports).means).max() < 1)
        True
    """
    several = tuple(reports)
    if len(several) < HOLDERS:
        return Bounded(several, (None,) * len(several), None)
    stacked = _Stacked.of(several)
    middle, doubt, (typical,) = _median(stacked.spreads), half_way(stacked.doubts), usual(stacked.samples)
    stacked = stacked.known(middle, doubt)
    shares = np.minimum(no_majority(stacked.samples) / np.maximum(stacked.samples, 1), _credits(stacked, typical))
    factor, free = _factor(several, stacked, shares * (spread_share(stacked.spreads, middle) >= 1), cov_ridge)
    probes = None if factor is None else probes_for(stacked.counts, factor)
    energies = _energies(several, stacked, factor, probes)
    found = agree(*stacked.counting(shares), factor, stacked.counts)
    samples, origin = float(stacked.samples.sum()), several[0].origin
    remaining = {c: _for_one_more(stacked.counts[:, c]) for c in departed}
    agreed = Consensus(
        samples, typical, middle, doubt, _median(energies), free, found.agreement, probes, origin, remaining
    )
    most = _most(stacked.counts, departed, owners)
    whole = frozenset(several[0].watched) - frozenset(departed)
    clips = _clips(several, stacked, agreed, energies, found, most, shares, whole, among=True)
    made = tuple(r if clip is None else clipped(r, clip) for r, clip in zip(several, clips, strict=True))
    return Bounded(made, clips, agreed)


def clip_of(report: ClassStatistics, agreed: Consensus, *, departed: Collection[int] = ()) -> Clip | None:
    """What of one more report does not count, beside those that the consensus is from; None where all of it does."""
    stacked = _Stacked.of((report,)).known(agreed.spread, agreed.doubt)
    shares = np.minimum(agreed.samples / np.maximum(stacked.samples, 1), _credits(stacked, agreed.typical))
    energies = _energies((report,), stacked, agreed.means.factor, agreed.probes)
    found = compare(*stacked.counting(shares), agreed.means, stacked.counts)
    most = {c: n for c, n in agreed.remaining.items() if c in departed and 0 < n < report.counts[c]}
    whole = frozenset(report.watched) - frozenset(departed)
    return _clips((report,), stacked, agreed, energies, found, [most], shares, whole, among=False)[0]


def clipped(report: ClassStatistics, clip: Clip) -> ClassStatistics:
    """The report as it counts: sums that some samples could have given."""
    n, basis, counts = report.counts, report.span_basis, clip.counts(report.counts)
    means = report.sums / np.maximum(n, 1)[:, None]
    moved = means.copy()
    for c, mean in clip.means.items():
        moved[c] = mean - report.origin
    far, far_moved = (np.sum(outside(rows, basis) ** 2, axis=1) for rows in (means, moved))
    about = np.maximum(report.squares - n * far, 0.0) * clip.spread * counts / np.maximum(n, 1)
    about = np.minimum(about, np.where(counts > 0, clip.longest, 0.0) * np.maximum(counts, 1))
    scatter = None
    if report.scatter is not None:
        pooled = report.reference_classes
        within = within_of(report) * (clip.spread * counts[pooled].sum() / max(int(n[pooled].sum()), 1))
        scatter = within + gram(moved[pooled] * np.sqrt(counts[pooled])[:, None])
        if report.span is None and about[pooled].sum() > 0:
            about[pooled] *= np.trace(within) / about[pooled].sum()
    squares = about + counts * far_moved
    return replace(report, counts=counts, sums=moved * counts[:, None], squares=squares, scatter=scatter)


def counting(counts: Ints, shares: Floats | float) -> Ints:
    """Counts of which shares count, of each class at least one sample."""
    return np.where(counts > 0, np.maximum(np.floor(counts * shares), 1), 0).astype(np.int64)


def within_of(report: ClassStatistics) -> Floats:
    """(d, d): a report's scatter about its own class means."""
    assert report.scatter is not None
    pooled = report.reference_classes
    within = report.scatter - gram(report.sums[pooled] / np.sqrt(report.counts[pooled])[:, None])
    rounded = within.diagonal() <= 0
    within[rounded], within[:, rounded] = 0.0, 0.0
    return within


@dataclass(frozen=True, eq=False)
class _Stacked:
    """Several reports as arrays.

    Attributes:
        counts: (V, C).
        sums: (V, C, d), about the origin.
        pooled: (K,), the classes that are not watched.
        samples: (V,).
        free: (V,), degrees of freedom about the class means, of the pooled classes.
        spreads: (V,), squared length of a sample about its class mean, NaN without such degrees.
        doubts: (V,), what of such a length may be rounding of the scatter.
    """

    counts: Ints
    sums: Floats
    pooled: Ints
    samples: Ints
    free: Floats
    spreads: Floats
    doubts: Floats

    def known(self, spread: float, doubt: float) -> "_Stacked":
        """With an infinite spread where rounding hides it, given the median vehicle's."""
        return replace(self, spreads=known_spread(self.spreads, self.doubts, (spread, doubt)))

    @property
    def dim(self) -> int:
        return int(self.sums.shape[2])

    def counting(self, shares: Floats) -> tuple[Ints, Floats]:
        """Counts and sums, of which shares (V,) count: a claim of many samples makes no mean more certain."""
        kept = counting(self.counts, shares[:, None])
        return kept, self.sums * (kept / np.maximum(self.counts, 1))[:, :, None]

    @classmethod
    def of(cls, reports: Sequence[ClassStatistics]) -> "_Stacked":
        first = reports[0]
        counts, sums = np.array([r.counts for r in reports]), np.array([r.sums for r in reports])
        pooled = np.array([c for c in range(first.num_classes) if c not in first.watched], dtype=np.int64)
        far = sums
        if first.scatter is None and first.span is not None:
            far = outside(sums.reshape(-1, first.dim), first.span_basis).reshape(sums.shape)
        lengths = np.einsum("vcd,vcd->vc", far, far) / np.maximum(counts, 1)
        whole = np.array([r.squares[pooled].sum() if r.scatter is None else r.scatter.trace() for r in reports])
        about = whole - lengths[:, pooled].sum(axis=1)
        free = (counts - (counts > 0))[:, pooled].sum(axis=1).astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            spreads = np.where(free > 0, np.maximum(about, 0.0) / free, np.nan)
        levels = [0.0 if r.scatter is None else rounding_level(int(r.counts.sum()), r.narrow) for r in reports]
        doubts = 2 * first.dim * np.array(levels) * whole / np.maximum(counts[:, pooled].sum(axis=1), 1)
        return cls(counts, sums, pooled, counts.sum(axis=1), free, spreads, doubts)


def _factor(
    reports: Sequence[ClassStatistics], stacked: _Stacked, shares: Floats, cov_ridge: float
) -> tuple[Floats | None, float]:
    """L of the pooled covariance, in which vehicles count by shares (V,), and its degrees of freedom; None without."""
    counting = np.flatnonzero((shares > 0) & (stacked.free > 0)).tolist()
    free = float((shares * stacked.free)[counting].sum())
    if reports[0].scatter is None or free <= 0:
        return None, free
    n = np.maximum(stacked.counts[counting][:, stacked.pooled], 1)
    rows = stacked.sums[counting][:, stacked.pooled] * np.sqrt(shares[counting][:, None] / n)[:, :, None]
    whole = np.zeros((stacked.dim, stacked.dim))
    for place in counting:
        scatter = reports[place].scatter
        assert scatter is not None
        whole += scatter if shares[place] >= 1 else shares[place] * scatter
    within = whole - gram(rows.reshape(-1, stacked.dim))
    level = rounding_level(int(stacked.samples.sum()), any(report.narrow for report in reports))
    without_rounding(within, whole.diagonal(), level, ridge=cov_ridge)
    if not np.trace(within) > 0:
        return None, free
    try:
        return regular_factor(within / free, cov_ridge, "covariance"), free
    except StatisticsError:
        return None, free


def probes_for(counts: Ints, factor: Floats) -> Floats:
    """(d, p): L^-T x for random x. They are drawn from counts (V, C): no vehicle knows the fleet's beforehand."""
    drawn = np.random.default_rng(counts.sum(axis=0)).standard_normal((len(factor), _PROBES))
    return triangular(factor, drawn, transposed=True)


def _energies(
    reports: Sequence[ClassStatistics], stacked: _Stacked, factor: Floats | None, probes: Floats | None
) -> Floats:
    """(V,): `energies` of the scatters; NaN where there are none."""
    if factor is None or probes is None:
        return np.full(len(reports), np.nan)
    scatters = [report.scatter for report in reports if report.scatter is not None]
    pooled = stacked.pooled
    return energies(scatters, stacked.sums[:, pooled], stacked.counts[:, pooled], stacked.free, factor, probes)


def energies(
    moments: Sequence[Floats], sums: Floats, counts: Ints, free: Floats, factor: Floats, probes: Floats
) -> Floats:
    """(V,): estimates of |C_v|_F^2 / (1 + d / n), C_v a vehicle's covariance in whitened units; NaN where it has none.

    n samples of one covariance have that many times more of it by chance.

    Args:
        moments: (d, d) of each vehicle, about the origin.
        sums: (V, K, d), of each class.
        counts: (V, K).
        free: (V,), n.
        factor: L (d, d).
        probes: (d, p), of `probes_for`.
    """
    made, d = -(sums @ probes / np.maximum(counts, 1)[:, :, None]).transpose(0, 2, 1) @ sums, len(factor)
    for place, one in enumerate(moments):
        made[place] += dot(one, probes).T
    lengths = np.sum(whiten(made.reshape(-1, d), factor) ** 2, axis=1).reshape(len(moments), -1).mean(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(free > 0, lengths / free**2 / (1 + d / free), np.nan)


def _clips(
    reports: Sequence[ClassStatistics],
    stacked: _Stacked,
    agreed: Consensus,
    energies: Floats,
    found: Deviations,
    most: Sequence[Mapping[int, int]],
    shares: Floats,
    whole: frozenset[int],
    *,
    among: bool,
) -> tuple[Clip | None, ...]:
    """A clip for each report of which not all counts; `among`: the consensus is from these very reports."""
    spreads = spread_share(stacked.spreads, agreed.spread)
    wild, far = energies * spreads**2 > MOST_ENERGY * agreed.energy, found.far
    lone = strays(stacked.counts, stacked.sums, agreed.means)
    some = wild | (shares < 1) | (spreads < 1) | far.any(axis=1)
    some |= np.array([bool(kept) or v in lone for v, kept in enumerate(most)])
    made: list[Clip | None] = [None] * len(reports)
    for v in np.flatnonzero(some).tolist():
        report, spread = reports[v], float(spreads[v])
        if wild[v] and agreed.means.factor is not None:
            mine = shares[v] * stacked.free[v]
            others = agreed.free - (mine if among and spreads[v] >= 1 else 0.0)
            scatter = spread * shares[v] * within_of(report)
            spread *= direction_share(scatter, mine, others, agreed.means.factor)
        classes = np.flatnonzero(far[v]).tolist()
        alone = lone.get(v, {})
        if shares[v] >= 1 and spread >= 1 and not classes and not most[v] and not alone:
            continue
        means = {c: found.counting(v, c) + report.origin for c in classes}
        means |= {c: mean + report.origin for c, (mean, _) in alone.items()}
        times = {c: float(found.times[:, v, c].max()) for c in classes} | {c: by for c, (_, by) in alone.items()}
        made[v] = Clip(float(shares[v]), whole, spread, MOST_SPREAD * agreed.spread, means, times, most[v])
    return tuple(made)


def _most(counts: Ints, departed: Collection[int], owners: Collection[tuple[int, int]]) -> list[dict[int, int]]:
    """By vehicle and departed class, how many samples count, where it has more, Eq. (G1)."""
    found: list[dict[int, int]] = [{} for _ in counts]
    for c in departed:
        kept = capped_remaining(counts[:, c])
        for v in np.flatnonzero(kept < counts[:, c]).tolist():
            if (v, c) not in owners:
                found[v][c] = int(kept[v])
    return found


def _for_one_more(counts: Ints) -> int:
    """How many samples count of a vehicle with very many of them, beside others that have counts (V,)."""
    whole = int(counts.sum())
    return int(capped_remaining(np.append(counts, whole + 1))[-1]) if whole else 0


def _credits(stacked: _Stacked, typical: float) -> Floats:
    """(V,): the share of each vehicle's samples that is believed, given what is usual."""
    return np.array([believed(float(n), typical, MOST_SAMPLES) for n in stacked.samples])


def _median(values: Floats) -> float:
    known = values[np.isfinite(values)]
    known = known[known > 0] if np.any(known > 0) else known
    return half_way(known)
