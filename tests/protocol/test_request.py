import numpy as np
import pytest

import mpt
from mpt.protocol.request import StatisticsRequest

RNG = np.random.default_rng(0)
FEATURES, LABELS = RNG.standard_normal((50, 6)) + 3, RNG.integers(0, 4, 50)
SPAN, ORIGIN = RNG.standard_normal((2, 6)), RNG.standard_normal(6)
REQUESTS = [
    StatisticsRequest(7, 4),
    StatisticsRequest(7, 4, (3, 1), (1,)),
    StatisticsRequest(7, 4, (3,), span=SPAN, scatter=False),
    StatisticsRequest(7, 4, (3,), origin=ORIGIN),
    StatisticsRequest(7, 4, (3,), (3,), span=SPAN, origin=ORIGIN),
]


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_travels_and_is_answered(request_):
    received = StatisticsRequest.from_bytes(request_.to_bytes())
    assert received == request_
    stats = request_.read(received.answer(FEATURES, LABELS))
    options = {
        "watched": request_.watched,
        "span": request_.span,
        "origin": request_.origin,
        "scatter": request_.scatter,
    }
    expected = mpt.ClassStatistics.from_features(FEATURES, LABELS, 4, **options)
    np.testing.assert_allclose(stats.means, expected.means, rtol=1e-6)
    np.testing.assert_allclose(stats.squares, expected.squares, rtol=1e-6)
    assert (stats.scatter is None) == (expected.scatter is None)


def test_answers_are_float64_where_float32_would_lose_the_covariance():
    request_ = StatisticsRequest(7, 4)
    near, far = request_.answer(FEATURES, LABELS), request_.answer(FEATURES + 1000, LABELS)
    expected = mpt.ClassStatistics.from_features(FEATURES, LABELS, 4).covariance()
    np.testing.assert_allclose(request_.read(far).covariance(), expected, atol=1e-8)
    reals = 4 * 6 + 4 + 6 * 7 // 2
    assert len(far) - len(near) == 4 * reals


def test_answers_to_another_request_are_refused():
    asked = REQUESTS[4]
    other = StatisticsRequest(7, 4, (3,), span=SPAN + 1, origin=ORIGIN)
    with pytest.raises(mpt.StatisticsError, match="another span"):
        asked.read(other.answer(FEATURES, LABELS))
    with pytest.raises(mpt.StatisticsError, match=r"watched \(\); asked for 4 and \(1, 3\)"):
        REQUESTS[1].read(REQUESTS[0].answer(FEATURES, LABELS))
    with pytest.raises(mpt.StatisticsError, match="StatisticsRequest bytes"):
        StatisticsRequest.from_bytes(REQUESTS[0].to_bytes()[:-1])
    with pytest.raises(mpt.StatisticsError, match="span: dimension 6, but the origin has 2"):
        StatisticsRequest(1, 4, span=SPAN, origin=np.zeros(2))
