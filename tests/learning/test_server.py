"""The server's optimisers against their formulas, and the schedules."""

import math

import pytest

torch = pytest.importorskip("torch", reason="mpt.learning needs torch, which is not installed")

from mpt.learning import LearningError
from mpt.learning.server import BETA2, TAU, stepped
from mpt.learning.settings import SCHEDULES, ServerSettings

START = {"w": torch.tensor([1.0, -2.0]), "running_mean": torch.tensor([5.0])}
MEANS = [
    {"w": torch.tensor([1.5, -2.0]), "running_mean": torch.tensor([6.0])},
    {"w": torch.tensor([2.0, -4.0]), "running_mean": torch.tensor([7.0])},
]


def two_rounds(settings):
    state, moments = dict(START), {}
    for mean in MEANS:
        state, moments = stepped(state, mean, moments, ["w"], settings)
    return state, moments


def test_the_average_itself_keeps_nothing_and_is_the_mean():
    state, moments = two_rounds(ServerSettings())
    assert torch.equal(state["w"], MEANS[1]["w"])
    assert moments == {}


def test_a_smaller_step_goes_part_of_the_way_and_leaves_running_statistics_the_means():
    state, _ = stepped(START, MEANS[0], {}, ["w"], ServerSettings(server_lr=0.5))
    assert state["w"].tolist() == [1.25, -2.0]
    assert state["running_mean"].item() == 6.0
    assert START["w"].tolist() == [1.0, -2.0]


def test_momentum_is_fedavgm():
    state, moments = two_rounds(ServerSettings(server="momentum", server_momentum=0.5, server_lr=0.1))
    first = 0.1 * 0.5
    velocity = 0.5 * 0.5 + (2.0 - (1 + first))
    assert moments["w"][0].item() == pytest.approx(velocity)
    assert state["w"][0].item() == pytest.approx(1 + first + 0.1 * velocity)


def test_adam_is_fedadam():
    state, moments = two_rounds(ServerSettings(server="adam", server_lr=0.01))
    m, v, w = 0.0, 0.0, 1.0
    for mean in (1.5, 2.0):
        gap = mean - w
        m, v = 0.9 * m + 0.1 * gap, BETA2 * v + (1 - BETA2) * gap**2
        w += 0.01 * m / (math.sqrt(v) + TAU)
    assert state["w"][0].item() == pytest.approx(w, rel=1e-5)
    assert moments["w^2"][0].item() == pytest.approx(v, rel=1e-5)


def test_adams_step_is_smaller_unless_said():
    assert [ServerSettings(server=name).lr for name in ("average", "momentum", "adam")] == [1.0, 1.0, 0.01]
    with pytest.raises(LearningError, match="server: 'sgd', should be average, momentum or adam"):
        ServerSettings(server="sgd")


@pytest.mark.parametrize(("name", "rounds"), [("constant", {1: 1, 100: 1}), ("cosine", {1: 1, 51: 0.5, 100: 0.000247}),
                                              ("step", {50: 1, 51: 0.1, 75: 0.1, 76: 0.01})])  # fmt: skip
def test_schedules(name, rounds):
    assert {n: SCHEDULES[name].share(n, 100) for n in rounds} == pytest.approx(rounds, abs=1e-6)
