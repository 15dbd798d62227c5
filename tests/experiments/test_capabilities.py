import numpy as np
import pytest

pytest.importorskip("pydantic", reason="the extra sim is not installed")

from mpt.experiments.capabilities import capabilities
from mpt.experiments.paper import TABLE1
from mpt.methods import find_method

SAME = ("fedavg", "ccvr", "frozen", "oracle", "mpt")
"""Methods that are as the paper has them; the others are federated here."""


def test_methods_that_are_the_papers_get_its_marks():
    assert {name: capabilities(find_method(name)).marks for name in SAME} == {name: TABLE1[name] for name in SAME}


def test_who_looks_at_samples_twice_is_seen():
    twice = {name for name in TABLE1 if capabilities(find_method(name)).embeds_twice}
    assert twice == {"sdc", "ldc"}


class Leaky:
    """Sends every feature, and looks at the test samples."""

    name, training, trains = "leaky", "held-out", True

    def depart(self, now):
        return None

    def track(self, kept, now):
        rows = list(now.ask(b"", lambda question, local: local.features.tobytes()))
        now.reference("test")
        return None, np.frombuffer(b"".join(rows)).reshape(-1, 10).mean(axis=0)


class Storing(Leaky):
    def track(self, kept, now):
        return None, np.frombuffer(b"".join(now.ask(b"", lambda q, local: local.features.tobytes())))[:10]


def test_a_method_that_sends_samples_or_is_told_the_truth_is_found_out():
    assert capabilities(Leaky()).marks == (True, False, False, False)
    assert capabilities(Storing()).marks == (False, True, False, False)
