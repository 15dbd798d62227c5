"""What of a claim is believed: medians over a list with one line a sample, and the three parts of the curve."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpt.base.credit import ABSURD, MOST_SAMPLES, believed, usual

claims = st.lists(st.integers(0, 60), min_size=1, max_size=25)


def sample_by_sample(samples, column):
    """The lower median of a column over all samples of the vehicles that are not left out."""
    having = sorted((n, place) for place, n in enumerate(samples) if n > 0)
    kept = having[: max(len(having) - math.ceil(math.sqrt(len(having)) / 3), 1)]
    lines = sorted(value for n, place in kept for value in [column[place]] * n)
    return float(lines[(len(lines) - 1) // 2]) if lines else 0.0


@given(samples=claims, seed=st.integers(0, 2**32 - 1))
def test_what_is_usual_is_the_median_over_samples(samples, seed):
    column = np.random.default_rng(seed).integers(0, 9, len(samples)).tolist()
    assert usual(samples, column) == (sample_by_sample(samples, samples), sample_by_sample(samples, column))


@given(crowd=st.integers(0, 60), seed=st.integers(0, 2**32 - 1))
def test_neither_a_crowd_with_a_sample_each_nor_a_few_with_a_billion_make_what_is_usual(crowd, seed):
    rng = np.random.default_rng(seed)
    honest = rng.integers(80, 121, 12).tolist()
    few = math.ceil(math.sqrt(12 + crowd) / 3)
    claimed = rng.permutation([*honest, *[1] * crowd, *[10**9] * few])
    (found,) = usual(claimed)
    assert 80 <= found <= 120


def test_one_liar_more_than_are_left_out_would_make_what_is_usual():
    assert usual([100] * 14 + [10**9] * 2) == (100.0,)
    assert usual([100] * 14 + [10**9] * 3) == (1e9,)


@pytest.mark.parametrize("samples", [[], [0, 0, 0]])
def test_nothing_is_usual_where_nobody_has_samples(samples):
    assert usual(samples, samples) == (0.0, 0.0)


def test_who_has_no_samples_does_not_count():
    assert usual([0, 0, 0, 0, 7, 7]) == usual([7, 7]) == (7.0,)
    assert usual([5]) == (5.0,)


@pytest.mark.parametrize("most", [1.0, MOST_SAMPLES, 20.0])
def test_the_curve_is_flat_up_to_half_of_absurd_and_falls_to_what_is_usual(most):
    """Through the four corners: straight in between, as np.interp has it."""
    middle = 4.0
    corners = [0.0, most * middle, ABSURD / 2 * middle, ABSURD * middle, 1e6]
    heights = [0.0, most * middle, most * middle, middle, middle]
    for claim in np.concatenate([np.linspace(0.1, 2 * ABSURD * middle, 200), [1e5, 1e6]]):
        expected = np.interp(claim, corners, heights)
        assert claim * believed(claim, middle, most) == pytest.approx(expected)


@given(claim=st.floats(0, 1e12), middle=st.floats(1e-6, 1e6), most=st.floats(1, ABSURD / 2), unit=st.floats(1e-3, 1e3))
def test_no_claim_counts_as_more_than_so_many_times_the_usual_one(claim, middle, most, unit):
    share = believed(claim, middle, most)
    assert 0 <= share <= 1
    assert claim * share <= most * middle * (1 + 1e-12)
    assert share == 1 or claim * share >= middle * (1 - 1e-12)
    assert believed(unit * claim, unit * middle, most) == pytest.approx(share, rel=1e-9)


@given(claim=st.floats(0.1, 1e4), most=st.floats(1, ABSURD / 2))
def test_what_counts_of_a_claim_is_continuous(claim, most):
    """No slope is steeper than that of the fall, (most - 1) / (ABSURD / 2), or than 1."""
    step = 1e-3 * claim
    before, after = (x * believed(x, 1.0, most) for x in (claim, claim + step))
    assert abs(after - before) <= step * (1 + 1e-9) + 1e-12


def test_where_nothing_is_usual_no_claim_counts():
    assert believed(1.0, 0.0, 3.0) == 0.0
    assert believed(0.0, 0.0, 3.0) == 1.0
