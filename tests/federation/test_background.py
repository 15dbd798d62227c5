"""Work beside training."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info

torch = pytest.importorskip("torch", reason="mpt.federation needs torch, which is not installed")

from mpt.federation.background import SMALL, Background, few_threads


def blas_threads():
    np.eye(2) @ np.eye(2)
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_small_products_take_one_thread_inside():
    before = blas_threads()
    with few_threads(4):
        assert set(blas_threads()) == {1}
    assert blas_threads() == before
    with few_threads(SMALL + 1):
        assert blas_threads() == before


def test_results_come_in_the_order_of_the_work():
    with Background(torch.device("cpu"), pieces=3) as background:
        assert background.submit([lambda i=i: i * i for i in range(3)])() == [0, 1, 4]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_on_a_gpu_each_thread_has_its_own_stream_and_errors_come_back():
    device = torch.device("cuda")
    caller = torch.cuda.current_stream(device)
    with Background(device, pieces=8) as background:
        streams = background.submit([lambda: torch.cuda.current_stream(device)] * 8)()
        assert all(stream != caller for stream in streams)
        failing = background.submit([lambda: 1 / 0])
        with pytest.raises(ZeroDivisionError):
            failing()
