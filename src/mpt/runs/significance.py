"""Paired tests of a comparison: Student's t, Holm's correction, pooling over cells, and what a test could have shown.

A difference of two rows on one seed is one number d. A cell gives n of them, one a seed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.optimize import brentq
from scipy.stats import nct, t

from mpt.base.seeds import stat

LEVEL = 0.05
"""Of every test, two-sided; intervals are those of 1 - LEVEL."""

POWER = 0.8
"""With which the smallest detectable difference is detected."""

_ROUNDING = 1e-12
"""Figures are fractions: a standard error below this is that of equal numbers."""


@dataclass(frozen=True)
class TTest:
    """A mean difference, and whether it can be told from zero.

    Attributes:
        n: how many units it is over: seeds, cells or tasks.
        mean: of the differences.
        half: half the width of the mean's 95% interval; None for a single unit.
        p: two-sided p-value of "the true mean is zero"; None where there is no test, which is of a single unit, and of
            differences that are all the same. Where these are all zero it is 1.
        smallest: the smallest true difference that such a test detects (`smallest_detectable`); None as `p`, and where
            the differences do not vary.
    """

    n: int
    mean: float
    half: float | None = None
    p: float | None = None
    smallest: float | None = None

    @property
    def clear(self) -> bool:
        """Whether p < 0.05, which is where the interval leaves out zero."""
        return self.p is not None and self.p < LEVEL


def t_test(differences: Sequence[float]) -> TTest:
    """The paired t-test: t = mean(d) / (s / sqrt(n)) with n - 1 degrees of freedom, s the deviation of d (ddof = 1)."""
    n, (mean, deviation) = len(differences), stat(differences)
    return TTest(n, mean) if deviation is None else _of_error(n, mean, deviation / math.sqrt(n), n - 1)


def stratified_t_test(strata: Sequence[Sequence[float]]) -> TTest:
    """Of the mean over these very cells: only seeds vary, cells do not.

    With d_c the mean, s_c the deviation and n_c the seeds of cell c of C:

        mean = sum_c d_c / C,   error^2 = sum_c s_c^2 / n_c / C^2,

    and by Welch and Satterthwaite (sum_c v_c)^2 / (sum_c v_c^2 / (n_c - 1)) degrees of freedom, v_c = s_c^2 / n_c. A
    cell of one seed has no deviation, so each has two or more. `n` is the number of all seeds.

    References:
        F. E. Satterthwaite: An approximate distribution of estimates of variance components. Biometrics Bulletin 2,
        1946.
    """
    seeds = np.array([len(values) for values in strata])
    means = [float(np.mean(values)) for values in strata]
    squares = np.array([np.var(values, ddof=1) for values in strata]) / seeds
    total, spread = float(squares.sum()), float((squares**2 / (seeds - 1)).sum())
    df = total**2 / spread if spread else 1.0
    return _of_error(int(seeds.sum()), float(np.mean(means)), math.sqrt(total) / len(strata), df)


def holm(p: Sequence[float]) -> list[float]:
    """Adjusted p-values of a family of m tests; those below a level keep the chance of any false one below it.

    In ascending order p_(1) <= ... <= p_(m):  adjusted_(i) = max over j <= i of min(1, (m - j + 1) p_(j)).  The tests
    need not be independent.

    References:
        S. Holm: A simple sequentially rejective multiple test procedure. Scandinavian Journal of Statistics 6, 1979.

    Example:
        >>> [round(value, 6) for value in holm([0.01, 0.04, 0.03, 0.005])]
        [0.03, 0.06, 0.06, 0.02]
    """
    adjusted, highest = [0.0] * len(p), 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=lambda k: p[k])):
        highest = max(highest, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = highest
    return adjusted


def holm_where_tested(p: Sequence[float | None]) -> list[float | None]:
    """The same where some have no test: these are not in the family, and are None."""
    tested = [value is not None and not math.isnan(value) for value in p]
    adjusted = iter(holm([value for value, there in zip(p, tested, strict=True) if there and value is not None]))
    return [next(adjusted) if there else None for there in tested]


def smallest_detectable(error: float, df: float) -> float:
    """The true difference that a t-test finds in 80% of all cases, at 5% and two-sided.

    A paired test over n seeds whose differences have the deviation s has error = s / sqrt(n) and df = n - 1. If the
    true difference is delta, its t has the noncentral t-distribution about delta / error; delta is where 80% of that
    lies above the critical value of the central one. A smaller difference may be there and not be found.

    It follows from the spread of the differences, not from their mean. That spread is itself estimated from few seeds,
    so this is an order of magnitude. It holds for a single test; Holm's correction asks for more.

    Example:
        >>> round(smallest_detectable(1 / math.sqrt(5), df=4), 3)  # five seeds, in units of their deviation
        1.682
    """
    return _noncentrality(df) * error


@cache
def _noncentrality(df: float) -> float:
    """Of the t whose upper tail beyond the critical value is POWER; the lower one, under 1e-5 there, is left out."""
    critical = float(t.ppf(1 - LEVEL / 2, df))
    return float(brentq(lambda shift: float(nct.sf(critical, df, shift)) - POWER, critical / 2, 2 * critical + 2))


def _of_error(n: int, mean: float, error: float, df: float) -> TTest:
    """From a mean, its standard error and the degrees of freedom."""
    if error <= _ROUNDING:
        return TTest(n, mean, 0.0, 1.0 if abs(mean) <= _ROUNDING else None)
    half = float(t.ppf(1 - LEVEL / 2, df)) * error
    return TTest(n, mean, half, float(2 * t.sf(abs(mean) / error, df)), smallest_detectable(error, df))
