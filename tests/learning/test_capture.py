import gc
from contextlib import contextmanager

import pytest

torch = pytest.importorskip("torch")

from mpt.learning.capture import capturing


def test_nothing_is_collected_during_a_capture(monkeypatch):
    seen = []

    @contextmanager
    def graph(*given, **options):
        seen.append((given, options, gc.isenabled()))
        yield

    monkeypatch.setattr(torch.cuda, "graph", graph)
    with capturing("graph", pool=3):
        assert not gc.isenabled()
    assert gc.isenabled()
    assert seen == [(("graph",), {"capture_error_mode": "thread_local", "pool": 3}, False)]


def test_collection_goes_on_after_a_capture_that_failed(monkeypatch):
    @contextmanager
    def graph(*_, **__):
        yield

    monkeypatch.setattr(torch.cuda, "graph", graph)
    with pytest.raises(RuntimeError, match="capture"), capturing("graph"):
        raise RuntimeError("capture")
    assert gc.isenabled()
