"""What a claim of samples is worth: to be watched, to be deposited, and beside another's."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from mpt.tracking.coverage import Coverage, besides_largest, credible, grown

COUNTS = st.lists(st.lists(st.integers(0, 10**6), min_size=3, max_size=3), min_size=1, max_size=7)


@given(COUNTS)
def test_what_there_is_besides_the_one_that_claims_most(rows):
    found = besides_largest({str(v): np.array(row) for v, row in enumerate(rows)}, map(str, range(len(rows))))
    for v, mine in enumerate(rows):
        others = rows[:v] + rows[v + 1 :]
        claimed = [max((row[c] for row in others), default=0) for c in range(3)]
        assert found[str(v)].tolist() == [mine[c] + sum(row[c] for row in others) - claimed[c] for c in range(3)]


@given(COUNTS)
def test_a_class_has_at_most_three_times_the_median_class_without_the_largest_vehicle(rows):
    counts = {str(v): np.array(row) for v, row in enumerate(rows)}
    totals = np.sum(rows, axis=0)
    there = sorted((row for row in rows if sum(row)), key=sum)
    known = [sum(row[c] for row in (there[:-1] if len(there) > 3 else there)) for c in range(3)]
    known = sorted(n for n in known if n)
    found = credible(totals, counts)
    if not known:
        assert_array_equal(found, totals)
        return
    middle = known[len(known) // 2] if len(known) % 2 else (known[len(known) // 2 - 1] + known[len(known) // 2]) / 2
    assert found.tolist() == [min(int(n), int(3 * middle)) for n in totals]


def test_one_claim_does_not_make_a_class_credible():
    """Of a class that others have enough of, a claim of a million counts as three times what is usual."""
    counts = {v: np.array([20, 20, 20]) for v in "abcd"} | {"x": np.array([10**6, 0, 0])}
    assert credible(np.sum(list(counts.values()), axis=0), counts).tolist() == [240, 80, 80]


@given(COUNTS, COUNTS)
def test_a_vehicle_has_at_most_twice_what_it_had_and_some_more(before, now):
    known = {str(v): np.array(row) for v, row in enumerate(before)}
    there = Coverage.of({str(v): np.array(row) for v, row in enumerate(now)}, 3)
    some = [n for row in now for n in row if n]
    more = int(np.median(some)) if some else 0
    for place, row in enumerate(now):
        had = before[place] if place < len(before) else None
        expected = [n if had is None else min(n, 2 * had[c] + more) for c, n in enumerate(row)]
        assert grown(known, there).counts[place].tolist() == expected


def test_a_claim_becomes_a_holding_by_and_by():
    """One that suddenly says it has a thousand times as much doubles from round to round."""
    known, seen = {v: np.array([20, 20]) for v in "abc"}, []
    said = {"a": np.array([20_000, 20]), "b": known["b"], "c": known["c"]}
    for _ in range(4):
        coverage = grown(known, Coverage.of(said, 2))
        known = dict(zip(coverage.vehicles, coverage.counts, strict=True))
        seen.append(int(known["a"][0]))
    assert seen == [60, 140, 300, 620]


def test_what_is_credible_does_not_depend_on_the_order_in_which_vehicles_came():
    """Two are as large, and a resumed server knows them in the order of their ids."""
    counts = {"b": [9, 1, 0], "a": [1, 0, 9], "d": [0, 2, 1], "c": [1, 1, 1]}
    counts = {v: np.array(mine) for v, mine in counts.items()}
    totals = np.sum(list(counts.values()), axis=0) * 100
    sorted_by_id = {v: counts[v] for v in sorted(counts)}
    assert_array_equal(credible(totals, counts), credible(totals, sorted_by_id))
    assert_array_equal(credible(totals, dict(reversed(counts.items()))), credible(totals, sorted_by_id))
