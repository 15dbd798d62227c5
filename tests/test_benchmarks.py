"""The benchmarks of the fleet's server in small: what a further vehicle costs it, and that nobody honest is refused."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mpt.tracking.intake import Intake

HERE = Path(__file__).parents[1] / "benchmarks"
LITE = "mpt-lite:one-message"


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def flat():
    yield from loaded("flat_cost")


@pytest.fixture(scope="module")
def honest():
    pytest.importorskip("torch", reason="the extra sim is not installed")
    pytest.importorskip("sklearn", reason="it brings the digits")
    yield from loaded("honest_fleet")


@pytest.mark.parametrize("method", ["mpt", LITE])
def test_a_further_vehicle_costs_less_than_a_thousand_bytes(flat, method):
    outcome, _ = flat.a_further_vehicle(flat.Case(method, 16, 2048))
    assert 100 < outcome < flat.LIMIT_BYTES == 1000


def test_whole_answers_that_were_kept_would_be_seen(flat, monkeypatch):
    kept, add = [], Intake._add

    def keeping(self, vehicle, read):
        kept.append(read)
        add(self, vehicle, read)

    monkeypatch.setattr(Intake, "_add", keeping)
    outcome, _ = flat.a_further_vehicle(flat.Case(LITE, 16, 1024))
    assert outcome > flat.LIMIT_BYTES


def test_those_that_left_long_ago_cost_nothing(flat):
    found = [flat.the_departed(LITE, 16, rounds, 100, repeats=21) for rounds in (12, 24)]
    assert [gone for *_, gone in found] == [1206, 2406]
    few, many = (state for _, _, state, _ in found)
    assert many < 1.05 * few
    assert many < flat.LIMIT_STATE
    assert all(after <= flat.LIMIT_TIMES * before for before, after, *_ in found)


def small(honest, partition, method):
    return honest.Case(partition, method, vehicles=6, rounds=4, joining=2, leaving=3, per_class=12)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mpt", LITE, "mpt-x"])
@pytest.mark.parametrize("partition", ["even", "dirichlet", "concentrate", "vehicle"])
def test_nobody_honest_is_refused(honest, partition, method):
    case = small(honest, partition, method)
    seen = honest.run(case)
    assert (seen.refusals, dict(seen.wrong), seen.whys) == ({}, {}, [])
    assert seen.answers == honest.expected(case)
    assert len(seen.departed) == 1


def test_whoever_is_refused_would_be_seen(honest, monkeypatch):
    report = honest.Vehicle._report

    def altered(self, ask):
        told = report(self, ask)
        return told[:-1] + bytes([told[-1] ^ 1]) if self.name == "1" else told

    monkeypatch.setattr(honest.Vehicle, "_report", altered)
    case = replace(small(honest, "even", "mpt"), rounds=2)
    seen = honest.run(case)
    assert seen.refusals == {"format": 2}
    assert seen.wrong["refused"] == 2
    assert "altered" in seen.whys[0]
