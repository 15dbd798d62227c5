"""Statistics of many vehicles at once are those of each one alone."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from mpt.federation import grouped
from mpt.protocol.cross_request import CrossRequest
from mpt.protocol.request import StatisticsRequest

RNG = np.random.default_rng(0)
CLASSES, D = 4, 6
HELD = {3: 7, 5: 1, 8: 12}
FEATURES = {v: RNG.standard_normal((n, D)) + 1 for v, n in HELD.items()}
LABELS = {v: RNG.integers(0, CLASSES, n) for v, n in HELD.items()}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scatter": False},
        {"unit": True, "scatter": False},
        {"origin": np.full(D, 0.5)},
        {"span": RNG.standard_normal((2, D)), "watched": (1, 3)},
        {"watched": (0, 1, 2, 3)},
    ],
)
def test_as_each_alone(options):
    request = StatisticsRequest(1, CLASSES, **options)
    groups = grouped.group(list(HELD), [torch.from_numpy(LABELS[v]) for v in HELD], CLASSES)
    made = grouped.statistics(torch.from_numpy(np.concatenate(list(FEATURES.values()))), groups, request)
    assert list(made) == list(HELD)
    for vehicle, stats in made.items():
        alone = request.read(request.answer(FEATURES[vehicle], LABELS[vehicle]))
        together = request.read(request.send(stats))
        np.testing.assert_array_equal(together.counts, alone.counts)
        np.testing.assert_allclose(together.sums, alone.sums, atol=1e-6)
        np.testing.assert_allclose(together.squares, alone.squares, atol=1e-5)
        if request.scatter:
            np.testing.assert_allclose(together.scatter, alone.scatter, atol=1e-5)


def test_cross_moments_as_each_alone():
    earlier = {v: h @ RNG.standard_normal((D, D)) for v, h in FEATURES.items()}
    request = CrossRequest(4, 2, np.array([1.0, 0.5, 0.0, 2.0]), np.full(D, 0.3), np.full(D, 0.5))
    groups = grouped.group(list(HELD), [torch.from_numpy(LABELS[v]) for v in HELD], CLASSES)
    both = (torch.from_numpy(np.concatenate(list(h.values()))) for h in (earlier, FEATURES))
    made = grouped.cross_statistics(*both, groups, request)
    assert list(made) == list(HELD)
    for vehicle, stats in made.items():
        alone = request.read(request.answer(earlier[vehicle], FEATURES[vehicle], LABELS[vehicle]), {})
        together = request.read(request.send(stats), {})
        np.testing.assert_array_equal(together.counts, alone.counts)
        for name in ("earlier", "sums", "gram"):
            np.testing.assert_allclose(getattr(together, name), getattr(alone, name), atol=1e-4)
        np.testing.assert_allclose(together.cross, alone.cross, rtol=2e-3, atol=0.02)


def test_chunks_stay_small_and_keep_the_order(monkeypatch):
    monkeypatch.setattr(grouped, "ENTRIES", 400)
    made = grouped.chunks(range(10), [5] * 10, num_classes=2, dim=10)
    assert [v for chunk in made for v in chunk] == list(range(10))
    assert len(made) > 1
    assert all(len(chunk) * 10 * 10 <= 400 and len(chunk) * 2 * 5 * len(chunk) <= 400 for chunk in made)
