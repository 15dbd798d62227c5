import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpt.federation.partition import PartitionError, PartitionRequest, by_vehicle, concentrate

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(5), 200))


@given(
    seed=st.integers(0, 2**32 - 1),
    vehicles=st.integers(2, 12),
    remaining=st.sampled_from([0.0, 0.004, 0.01, 0.02, 0.1, 0.5]),
    dirichlet=st.sampled_from([None, 0.1, 1.0]),
)
def test_every_sample_is_held_once_and_the_remaining_fraction_is_exact(seed, vehicles, remaining, dirichlet):
    rng = np.random.default_rng(seed)
    parts = concentrate(PartitionRequest(LABELS, 3, vehicles, remaining, rng, dirichlet))
    held = np.concatenate(list(parts.indices.values()))
    np.testing.assert_array_equal(np.sort(held), np.arange(1000))
    expected = max(round(remaining * 200), 1) if remaining else 0
    counts = {v: np.bincount(LABELS[held], minlength=5) for v, held in parts.indices.items()}
    assert sum(c[3] for v, c in counts.items() if v != parts.owner) == expected == parts.remaining
    assert counts[parts.owner][3] == 200 - expected
    if dirichlet is None:
        for c in (0, 1, 2, 4):
            shares = [count[c] for count in counts.values()]
            assert max(shares) - min(shares) <= 1
    stay = [counts[v][3] for v in counts if v != parts.owner]
    assert max(stay) - min(stay) <= 1


def test_it_comes_from_the_generator_alone():
    def indices(seed):
        return concentrate(PartitionRequest(LABELS, 3, 4, 0.1, np.random.default_rng(seed))).indices

    assert all(np.array_equal(indices(1)[v], indices(1)[v]) for v in range(4))
    assert not all(np.array_equal(indices(1)[v], indices(2)[v]) for v in range(4))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vehicles": 1}, "vehicles: 1, should be at least 2"),
        ({"remaining": 1.0}, "remaining: 1.0, should be at least 0 and below 1"),
        ({"remaining": 0.999}, "too few to leave 99.90% behind"),
        ({"dirichlet": 0}, "dirichlet: 0, should be above 0"),
        ({"rare": 9}, "rare: class 9 has no samples"),
    ],
)
def test_what_cannot_be_is_said(change, message):
    options = {"rare": 3, "vehicles": 4, "remaining": 0.1, "rng": np.random.default_rng(0), **change}
    with pytest.raises(PartitionError, match=message):
        concentrate(PartitionRequest(LABELS, **options))


def recorded(rare, names):
    """All samples where they were recorded; how many vehicles there should be does not count."""
    return PartitionRequest(LABELS, rare, 9, 0.1, np.random.default_rng(0), recorded_by=names)


def test_samples_stay_with_the_vehicles_that_recorded_them():
    rng = np.random.default_rng(3)
    vehicles = np.array(["n015", "n003", "n008"])[rng.integers(0, 3, 1000)]
    vehicles[(LABELS == 3) & (vehicles == "n008")] = "n003"
    parts = by_vehicle(recorded(3, vehicles))
    assert parts.names == ("n003", "n008", "n015")
    for v, name in enumerate(parts.names):
        assert parts.indices[v].tolist() == [i for i in range(1000) if vehicles[i] == name]
    assert parts.owner == 0
    assert parts.remaining == sum(1 for i in range(1000) if LABELS[i] == 3 and vehicles[i] == "n015") > 0


def test_recordings_of_one_vehicle_or_without_the_class_cannot_be_left_by_it():
    with pytest.raises(PartitionError, match="all samples are of vehicle 'n003', should be of at least 2"):
        by_vehicle(recorded(3, np.full(1000, "n003")))
    with pytest.raises(PartitionError, match="rare: class 9 has no samples"):
        by_vehicle(recorded(9, np.array(["a", "b"] * 500)))
