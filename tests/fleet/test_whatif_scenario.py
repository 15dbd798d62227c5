"""What a scenario would lose, before any training."""

import json
from importlib import import_module

import numpy as np
import pytest

from mpt.fleet import FleetError
from mpt.fleet.whatif_scenario import default_classes, forecast, parse_classes
from mpt.scenario import PlanError, Scenario, find_scenario, present_when, read_scenario, write_presence

COUNTS = """vehicle,class,count
a,truck,90
b,truck,10
b,car,50
c,car,50
"""


def scenario_of(folder, text):
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return read_scenario(path)


@pytest.fixture
def three(tmp_path):
    """Vehicles a, b, c over six days; a is away on the third and fourth, and from the sixth on; b on the fourth."""
    there = np.array([[1, 1, 1], [1, 1, 1], [0, 1, 1], [0, 0, 1], [1, 1, 1], [0, 1, 1]], dtype=np.bool_)
    days = ["mon", "tue", "wed", "thu", "fri", "sat"]
    write_presence(present_when(("a", "b", "c"), there, labels=days), tmp_path / "stays.csv")
    return scenario_of(tmp_path, '[presence]\nkind = "file"\npath = "stays.csv"\n[holdings]\nholders = { truck = "a" }')


def test_each_absence_has_its_rounds_its_vehicle_and_its_end(three):
    found = forecast(three, classes=("car", "truck"))
    assert [(one.first, one.last, one.back, one.labels) for one in found.absences] == [
        (3, 4, 5, ("wed", "thu")),
        (6, 6, None, ("sat", "sat")),
    ]
    assert {(one.name, one.vehicle, one.held, one.announced) for one in found.absences} == {("truck", "a", 0.98, False)}
    assert [one.stays for one in found.absences] == [0.02, 0.02]
    assert (found.lost, found.pairs) == (("truck",), 3)


def test_counts_in_place_of_shares(three, tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text(COUNTS, encoding="utf-8")
    found = forecast(three, counts=path)
    assert found.names == ("car", "truck")
    assert [(one.name, one.held, one.stays) for one in found.absences] == [("truck", 0.9, 0.1)] * 2
    few = forecast(three, counts=path, carry_share=0.05)
    assert [(one.first, one.last, one.stays) for one in few.absences] == [(4, 4, 0.0)]  # b, too, is away then
    assert forecast(three, counts=path, watch_share=0.95).absences == ()
    path.write_text(COUNTS + "d,car,1\n", encoding="utf-8")
    with pytest.raises(FleetError, match="vehicle 'd' is none of the scenario's, should be one of a, b, c"):
        forecast(three, counts=path)
    with pytest.raises(FleetError, match="classes: given beside"):
        forecast(three, counts=path, classes=("a", "b"))


@pytest.mark.parametrize("name", ["parking-lot", "delivery-fleet", "charging-hub", "workplace"])
def test_pairs_are_those_of_a_definition_written_out(name):
    scenario, share = find_scenario(name), 0.25
    found = forecast(scenario, seed=3, carry_share=share)
    played = scenario.play(3, found.names)
    expected = set()
    for c, holder in enumerate(played.shares.argmax(axis=0)):
        for r in range(played.presence.rounds):
            there = played.presence.there
            carried = sum(played.shares[v, c] for v in range(len(played.presence.vehicles)) if there[r, v])
            if (
                played.shares[holder, c] >= 0.5
                and there[:r, holder].any()
                and not there[r, holder]
                and carried <= share
            ):
                expected.add((found.names[c], r + 1))
    told = {(one.name, r) for one in found.absences for r in range(one.first, one.last + 1)}
    assert told == expected
    assert found.pairs == len(expected)
    for one in found.absences:
        v = found.presence.vehicles.index(one.vehicle)
        later = [r for r in range(one.last + 1, found.presence.rounds + 1) if found.presence.there[r - 1, v]]
        assert one.back == (later[0] if later else None)


def test_a_seed_of_its_own_counts():
    assert forecast(find_scenario("charging-hub"), seed=1).absences != forecast(find_scenario("charging-hub")).absences
    fixed = Scenario(rounds=10, vehicles=4, seed=7, holders=1)
    assert forecast(fixed, seed=1).seed == 7


def test_classes():
    assert parse_classes("3") == ("0", "1", "2")
    assert parse_classes("car, bus") == ("car", "bus")
    for wrong in ("car", "1", "a,a", "a,,b", ""):
        with pytest.raises(FleetError, match="should be at least two different names"):
            parse_classes(wrong)
    assert default_classes(Scenario(rounds=2, vehicles=2, holders=("bus", 1))) == (*"012345678", "bus")
    with pytest.raises(FleetError, match="carry-share: 0, should be above 0"):
        forecast(find_scenario("delivery-fleet"), carry_share=0)
    with pytest.raises(PlanError, match="holders: 2 classes"):
        forecast(find_scenario("delivery-fleet"), classes=("a",))


@pytest.fixture
def whatif():
    for package in ("typer", "rich"):
        pytest.importorskip(package, reason="the extra sim is not installed")
    app, runner = import_module("mpt.cli.main").app, import_module("typer.testing").CliRunner()
    return lambda *arguments: runner.invoke(app, ["whatif", *map(str, arguments)])


def test_the_table_fits_eighty_columns(whatif, three):
    done = whatif("--scenario", "delivery-fleet")
    assert done.exit_code == 0
    assert max(map(len, done.output.splitlines())) <= 80
    rows = [" ".join(line.split()) for line in done.output.splitlines()]
    assert "8 v1, 98% rounds 13 to 40 28 2% no yes" in rows
    assert "9 v2, 98% rounds 17 to 28 12 2% round 29 no" in rows
    assert "40 pairs of a class and a round" in " ".join(done.output.split())
    mine = whatif("--scenario", three.folder / "mine.toml", "--classes", f"car,truck,{'long' * 20}", "--most", 1)
    assert max(map(len, mine.output.splitlines())) <= 80
    assert "wed to thu" in mine.output
    assert "and 1 more absence: --all prints them" in mine.output
    nothing = whatif("--scenario", three.folder / "mine.toml", "--classes", "car,truck", "--carry-share", 0.005)
    assert "No class would be absent" in nothing.output


def test_json_has_everything(whatif):
    told = json.loads(whatif("--scenario", "charging-hub", "--seed", 1, "--classes", "car,bus,truck", "--json").output)
    assert (told["seed"], told["rounds"], told["classes"]) == (1, 48, ["car", "bus", "truck"])
    assert told["pairs"] == sum(one["rounds"] for one in told["absences"])
    assert {one["name"] for one in told["absences"]} == {"bus", "truck"}


def test_what_is_wrong_is_one_sentence(whatif):
    for arguments, sentence in {
        (): "Missing argument 'COUNTS.CSV'",
        ("--seed", "2"): "seed: is for a scenario, should be left out without --scenario",
        ("--scenario", "delivry-fleet"): "did you mean delivery-fleet?",
        ("--scenario", "delivery-fleet", "--seed", "-1"): "seed: -1, should be at least 0",
    }.items():
        done = whatif(*arguments)
        assert done.exit_code == 2
        assert sentence in " ".join(done.output.split())
