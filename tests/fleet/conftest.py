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
    torch = pytest.importorskip("torch", reason="the extra sim is not installed")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
