"""Tests of a comparison, against SciPy's own, written-out definitions, simulation and published numbers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import chi2, norm, t, ttest_1samp, ttest_ind

from mpt.base.seeds import Series
from mpt.runs.pooling import Stratum, pooled
from mpt.runs.significance import holm, holm_where_tested, smallest_detectable, stratified_t_test, t_test

P = st.lists(st.floats(0, 1), min_size=1, max_size=12)
ROWS = (Series("mpt-x", "mahalanobis"), Series("mpt", "mahalanobis"))
MORE = (Series("frozen", "mahalanobis"), Series("mpt", "mahalanobis"))


def test_a_paired_test_is_scipys():
    for n in (2, 3, 5, 40):
        values = np.random.default_rng(n).normal(0.3, 1, n)
        ours, theirs = t_test(values.tolist()), ttest_1samp(values, 0)
        low, high = theirs.confidence_interval(0.95)
        assert ours.n == n
        assert ours.p == pytest.approx(theirs.pvalue, rel=1e-9)
        assert (ours.mean - ours.half, ours.mean + ours.half) == pytest.approx((low, high), rel=1e-9)
        assert ours.clear == (theirs.pvalue < 0.05) == (low > 0 or high < 0)


def test_where_there_is_no_test_there_is_none():
    one = t_test([0.2])
    assert (one.n, one.mean, one.half, one.p, one.smallest, one.clear) == (1, 0.2, None, None, None, False)
    equal = t_test([0.1 + 0.2, 0.3, 0.3])  # equal but for rounding
    assert (equal.half, equal.p, equal.smallest, equal.clear) == (0.0, None, None, False)
    nothing = t_test([0.0, 0.0, 0.0])
    assert (nothing.p, nothing.smallest, nothing.clear) == (1.0, None, False)


def test_holm_has_the_known_numbers():
    """The example of R's `p.adjust(p, "holm")`, by hand: 4 x .01, 3 x .02, 2 x .03, 1 x .04, none below one before."""
    assert holm([0.01, 0.02, 0.03, 0.04]) == pytest.approx([0.04, 0.06, 0.06, 0.06])
    assert holm([0.04, 0.001, 0.5, 0.012]) == pytest.approx([0.08, 0.004, 0.5, 0.036])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []
    assert holm_where_tested([0.03, None, 0.01]) == [0.03, None, 0.02]


@given(P, st.floats(0.001, 0.5))
def test_holm_rejects_what_its_stepwise_rule_rejects(p, level):
    """The procedure of the paper: from the smallest on, until one is above level / (number that is left)."""
    rejected = set()
    for rank, i in enumerate(sorted(range(len(p)), key=lambda k: p[k])):
        if (len(p) - rank) * p[i] > level:
            break
        rejected.add(i)
    adjusted = holm(p)
    assert {i for i, value in enumerate(adjusted) if value <= level} == rejected
    assert all(value >= raw for value, raw in zip(adjusted, p, strict=True))


def test_the_smallest_difference_is_that_of_known_tables():
    """Pairs needed for 80% power at 5%, two-sided, of Cohen's large, medium and small effects: 15, 34 and 199."""
    for size, n in ((0.8, 15), (0.5, 34), (0.2, 199)):
        assert smallest_detectable(1 / math.sqrt(n), n - 1) <= size < smallest_detectable((n - 1) ** -0.5, n - 2)
    assert smallest_detectable(1.0, 1e6) == pytest.approx(norm.ppf(0.975) + norm.ppf(0.8), abs=1e-4)


@pytest.mark.parametrize("n", [2, 3, 5, 26])
def test_its_power_is_80_percent_by_definition(n):
    """Over the chi-square v of the deviation: |Z + shift| > c sqrt(v / df), Z standard normal, both tails."""
    df = n - 1
    shift, c = smallest_detectable(1.0, df), t.ppf(0.975, df)

    def found(v):
        bound = c * math.sqrt(v / df)
        return (norm.sf(bound - shift) + norm.cdf(-bound - shift)) * chi2.pdf(v, df)

    assert quad(found, 0, 1)[0] + quad(found, 1, math.inf)[0] == pytest.approx(0.8, abs=1e-5)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_difference_of_that_size_is_found_in_four_of_five_cases(n):
    rng = np.random.default_rng(n)
    true = smallest_detectable(1 / math.sqrt(n), n - 1)
    values = rng.standard_normal((200_000, n)) + true
    statistic = values.mean(axis=1) / values.std(axis=1, ddof=1) * math.sqrt(n)
    assert (np.abs(statistic) > t.ppf(0.975, n - 1)).mean() == pytest.approx(0.8, abs=0.004)


def test_the_stratified_test_is_welchs_of_two_cells():
    """The mean of d and of -e, over two cells, is half the difference of the means of d and e: Welch's t-test."""
    rng = np.random.default_rng(1)
    one, other = rng.normal(0.5, 1, 5), rng.normal(0, 3, 3)
    ours, theirs = stratified_t_test([one, -other]), ttest_ind(one, other, equal_var=False)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-9)
    assert ours.n == 8
    low, high = theirs.confidence_interval(0.95)
    assert (ours.mean - ours.half, ours.mean + ours.half) == pytest.approx((low / 2, high / 2), rel=1e-9)
    assert ours.smallest == pytest.approx(smallest_detectable(*_error_and_df(one, other)), rel=1e-9)


def _error_and_df(one, other):
    v, w = one.var(ddof=1) / len(one), other.var(ddof=1) / len(other)
    return math.sqrt(v + w) / 2, (v + w) ** 2 / (v**2 / (len(one) - 1) + w**2 / (len(other) - 1))


def test_cells_are_pooled_by_cell_by_task_and_by_seed():
    rng = np.random.default_rng(2)
    cells = [("truck", rng.normal(0.1, 0.02, 5)), ("truck", rng.normal(0.12, 0.02, 3)), ("cat", rng.normal(0, 0.02, 4))]
    single = [("dog", np.array([0.4]))]
    made = pooled({ROWS: [Stratum(task, values.tolist()) for task, values in (*cells, *single)]})
    assert [one.over for one in made] == ["cells", "tasks", "seeds"]
    by_cell, by_task, by_seed = made
    means = [values.mean() for _, values in (*cells, *single)]
    assert (by_cell.cells, by_cell.test.n) == (4, 4)
    assert by_cell.test.p == pytest.approx(ttest_1samp(means, 0).pvalue, rel=1e-9)
    assert by_cell.test.mean == pytest.approx(np.mean(means))
    tasks = [np.mean(means[:2]), *means[2:]]
    assert by_task.test.n == 3
    assert by_task.test.p == pytest.approx(ttest_1samp(tasks, 0).pvalue, rel=1e-9)
    assert (by_seed.cells, by_seed.test.n) == (3, 12)  # the cell of one seed has no deviation
    assert by_seed.test == stratified_t_test([values for _, values in cells])
    assert [one.holm for one in made] == [one.test.p for one in made]


def test_pooled_tests_are_corrected_for_methods_each_kind_by_itself():
    rng = np.random.default_rng(3)
    strata = {
        rows: [Stratum(task, rng.normal(shift, 0.1, 3).tolist()) for task in "aabbc"]
        for rows, shift in ((ROWS, 0.1), (MORE, 0.05))
    }
    made = pooled(strata)
    assert [one.rows for one in made] == [ROWS] * 3 + [MORE] * 3
    for unit in ("cells", "tasks", "seeds"):
        mine = [one for one in made if one.over == unit]
        assert [one.holm for one in mine] == holm([one.test.p for one in mine])


def test_what_one_cell_alone_has_is_not_pooled():
    assert pooled({ROWS: [Stratum("a", [0.1, 0.2])]}) == ()
    apart = pooled({ROWS: [Stratum("a", [0.1]), Stratum("b", [0.2])]})  # each a task, of one seed
    assert [one.over for one in apart] == ["cells"]
    alike = pooled({ROWS: [Stratum("a", [0.1, 0.3]), Stratum("a", [0.2, 0.3])]})
    assert [(one.over, one.test.n, one.test.p is None) for one in alike] == [
        ("cells", 2, False),
        ("tasks", 1, True),
        ("seeds", 4, False),
    ]


def test_a_test_without_a_number_is_in_no_family():
    assert holm_where_tested([float("nan"), 0.01, None, 0.04]) == [None, 0.02, None, 0.04]
