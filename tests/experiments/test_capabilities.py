import numpy as np

from mpt.experiments.capabilities import capabilities
from mpt.experiments.paper import TABLE1
from mpt.methods import find_method
from mpt.protocol import on_vehicle

SAME = ("fedavg", "ccvr", "frozen", "oracle", "mpt")
"""Methods that are as the paper has them; the others are federated here."""


def test_methods_that_are_the_papers_get_its_marks():
    assert {name: capabilities(find_method(name)).marks for name in SAME} == {name: TABLE1[name] for name in SAME}


def test_who_looks_at_samples_twice_is_seen():
    twice = {name for name in TABLE1 if capabilities(find_method(name)).embeds_twice}
    assert twice == {"sdc", "ldc"}


class Storing:
    """Asks for every sample, one by one."""

    name, training, trains = "storing", "held-out", True

    def depart(self, context):
        return None

    def track(self, state, context):
        count = int(context.report(context.request(scatter=False)).counts.sum())
        rows = [context.total(self.sample, number=np.array(float(i)))["feature"] for i in range(count)]
        return None, np.mean(rows, axis=0)

    @on_vehicle(feature=("d",))
    def sample(self, asked, local):
        i = int(asked["number"])
        return {"feature": local.features[i] if i < len(local.features) else np.zeros(local.features.shape[1])}


class Leaky(Storing):
    """Looks at the test samples as well."""

    def track(self, state, context):
        context.oracle("test")
        return super().track(state, context)


def test_a_method_that_sends_samples_or_is_told_the_truth_is_found_out():
    assert capabilities(Leaky()).marks == (True, False, False, False)
    assert capabilities(Storing()).marks == (False, True, False, False)
