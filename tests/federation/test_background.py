"""Work beside training."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="mpt.federation needs torch, which is not installed")

from threadpoolctl import threadpool_info

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


def test_on_a_cpu_work_is_done_at_once():
    done = []
    with Background(torch.device("cpu")) as background:
        result = background.submit(lambda: done.append(1) or 7)
        assert done == [1]
        assert result() == 7


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_on_a_gpu_work_has_a_stream_of_its_own_and_errors_come_back():
    device = torch.device("cuda")
    with Background(device) as background:
        assert background.submit(lambda: torch.cuda.current_stream(device))() != torch.cuda.current_stream(device)
        failing = background.submit(lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            failing()
