"""What several modules of the fleet's tests share."""

import pytest

import mpt


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


@pytest.fixture(scope="module")
def in_float32():
    """Cross moments travel as float32 instead of float16, so that more than three digits can be compared."""
    to_bytes = mpt.CrossStatistics.to_bytes

    def without_halves(stats, *dtype, halves=False, **how):
        return to_bytes(stats, *dtype, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mpt.CrossStatistics, "to_bytes", without_halves)
        yield
