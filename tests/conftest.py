"""Settings for all tests."""

import os
import signal
from collections import Counter
from importlib.util import find_spec

import pytest
from hypothesis import settings

import mpt

settings.register_profile("mpt", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("mpt")

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts pytest in the background has it ignored

if find_spec("torch") is not None:
    import torch

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported, and torch may import it at any time


@pytest.fixture(scope="module")
def two_threads():
    """Torch uses two threads, however many the quick tests have been given."""
    threads = pytest.importorskip("mpt.learning.threads", reason="the extra sim is not installed")
    with threads.with_threads(2):
        yield


@pytest.fixture(scope="module")
def in_float32():
    """Cross moments travel as float32 instead of float16, so that more than three digits can be compared."""
    to_bytes = mpt.CrossStatistics.to_bytes

    def without_halves(stats, *dtype, halves=False, **how):
        return to_bytes(stats, *dtype, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mpt.CrossStatistics, "to_bytes", without_halves)
        yield


def pytest_collection_modifyitems(items):
    """Files with the most slow tests come first, so that processes side by side, a file each, end at about one time."""
    minutes = Counter()
    for item in items:
        minutes[item.path] += sum(mark.kwargs.get("minutes", 0.3) for mark in item.iter_markers("slow"))
    items.sort(key=lambda item: -minutes[item.path])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """What a test printed may have file names that are no text; xdist carries text alone from its workers."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report
