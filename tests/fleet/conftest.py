"""What several modules of the fleet's tests share."""

import pytest


@pytest.fixture(scope="module")
def dataset():
    """Eight classes of drawn road objects."""
    load = pytest.importorskip("mpt.data", reason="the extra sim is not installed").load
    return load("road?train=40&test=20", image_size=28)


@pytest.fixture(scope="module")
def one_thread():
    """Torch's operations use one thread."""
    threads = pytest.importorskip("mpt.learning.threads", reason="the extra sim is not installed")
    with threads.with_threads(1):
        yield
