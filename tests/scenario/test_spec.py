import numpy as np
import pytest

from mpt.scenario import (
    PlanError,
    Scenario,
    absent_pairs,
    find_scenario,
    parking_lot,
    shipped_scenarios,
    true_departures,
    write_presence,
)

CLASSES = ("car", "van", "truck", "bus", "motorcycle", "bicycle", "pedestrian", "traffic cone")
MINE = """
rounds = 20
vehicles = 4
[presence]
kind = "parking-lot"
leaves = { v1 = 5, 2 = 8 }
[holdings]
holders = { bus = "v1", 0 = 2 }
remaining = 0.1
"""


def mine(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return find_scenario(str(path))


def test_those_that_come_with_the_package():
    assert shipped_scenarios() == ("charging-hub", "delivery-fleet", "parking-lot", "workplace")


@pytest.mark.parametrize("name", shipped_scenarios())
@pytest.mark.parametrize("classes", [5, 8, 10])
def test_they_can_be_played(name, classes):
    scenario = find_scenario(name)
    assert scenario.name == name
    assert scenario.about.endswith(".")
    for seed in range(5):
        played = scenario.play(seed, [f"class {c}" for c in range(classes)])
        presence = played.presence
        assert presence.rounds == scenario.rounds <= 60
        assert played.shares.shape == (len(presence.vehicles), classes)
        np.testing.assert_allclose(played.shares.sum(axis=0), 1)
        assert all(presence.answering(r) for r in range(1, presence.rounds + 1))
        assert presence.there.any(axis=0).all()
        counts = np.rint(1000 * played.shares).astype(int)
        assert counts.sum(axis=1).min() > 0
        assert list(played.holders) == list(range(classes))[classes - scenario.holders :]
        assert len(set(played.holders.values())) == len(played.holders)
        away = absent_pairs(presence, counts).sum(axis=0)
        for number, vehicle in played.holders.items():
            assert played.shares[vehicle, number] == pytest.approx(0.98)
            assert away[number] >= 5


@pytest.mark.parametrize("name", shipped_scenarios())
def test_the_same_seed_is_the_same_play(name):
    one, again, other = (find_scenario(name).play(seed, CLASSES) for seed in (3, 3, 4))
    for field in ("there", "silent", "goodbye"):
        np.testing.assert_array_equal(getattr(one.presence, field), getattr(again.presence, field))
    np.testing.assert_array_equal(one.shares, again.shares)
    assert one.holders == again.holders
    if name in ("charging-hub", "workplace"):
        assert (one.presence.there != other.presence.there).any()


def test_the_papers():
    played = find_scenario("parking-lot").play(0, CLASSES)
    assert played.holders == {7: 0}
    counts = np.rint(1000 * played.shares).astype(int)
    assert true_departures(played.presence, counts) == [(0, 15, None)]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", ["delivery-fleet", "workplace"])
def test_of_the_holders_one_leaves_for_good_and_one_comes_back(name, seed):
    played = find_scenario(name).play(seed, CLASSES)
    leaves = true_departures(played.presence, np.rint(1000 * played.shares).astype(int))
    theirs = [leave for leave in leaves if leave[0] in played.holders.values()]
    assert any(back is None and last <= 50 for _, last, back in theirs)
    assert any(back is not None and back - last > 5 for _, last, back in theirs)


def test_ones_own(tmp_path):
    scenario = mine(tmp_path, MINE)
    assert (scenario.name, scenario.rounds, scenario.files) == ("mine", 20, ())
    played = scenario.play(0, CLASSES)
    assert [played.presence.stays(v)[0][1] for v in range(4)] == [5, 20, 8, 20]
    assert played.holders == {3: 0, 0: 2}
    assert played.shares[0, 3] == pytest.approx(0.9)


def test_classes_by_name_by_number_and_by_count(tmp_path):
    def held(holders):
        scenario = mine(tmp_path, MINE.replace('{ bus = "v1", 0 = 2 }', holders))
        return scenario.play(0, CLASSES).holders

    assert held('["truck", 5]') == {2: 2, 5: 0}
    assert held("3") == {5: 2, 6: 0, 7: 1}
    assert held("0") == {}


def test_a_seed_of_its_own_and_names(tmp_path):
    text = 'rounds = 20\nvehicles = ["red", "blue", "white"]\nseed = 3\n[presence]\nkind = "poisson"\nstay = 4\n'
    scenario = mine(tmp_path, text)
    one, other = scenario.play(0, CLASSES), scenario.play(1, CLASSES)
    assert one.presence.vehicles == ("red", "blue", "white")
    np.testing.assert_array_equal(one.presence.there, other.presence.there)


def test_files_are_beside_the_scenario(tmp_path):
    write_presence(parking_lot(["a", "b"], 6, {1: 3}), tmp_path / "stays.csv")
    scenario = mine(tmp_path, '[presence]\nkind = "file"\npath = "stays.csv"\n')
    assert scenario.files == (tmp_path / "stays.csv",)
    assert scenario.play(0, CLASSES).presence.stays(1) == [(1, 3)]
    (tmp_path / "log.csv").write_text(
        "vehicle,arrived,departed,station\n"
        "x,2019-03-04T08:00Z,2019-03-04T09:00Z,p\nx,2019-03-06T08:00Z,2019-03-06T09:00Z,q\ny,2019-03-06T08:00Z,2019-03-06T09:00Z,q\n"
    )
    text = '[presence]\nkind = "sessions"\npath = "log.csv"\nsince = 2019-03-04\n[holdings]\nconcentration = 0.5\n'
    played = mine(tmp_path, text).play(0, CLASSES)
    assert played.presence.labels == ("2019-03-04", "2019-03-06")
    assert played.presence.vehicles == ("x", "y")
    with pytest.raises(PlanError, match=r"rounds: 5, but stays\.csv has 6, should be that or left out"):
        mine(tmp_path, 'rounds = 5\n[presence]\nkind = "file"\npath = "stays.csv"\n').play(0, CLASSES)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("rounds = 20", "round = 20", r"mine.toml: round: there is no such setting, did you mean rounds\?"),
        ("rounds = 20", "colour = 1", "colour: there is no such setting, should be one of name, about"),
        ("rounds = 20", "", "rounds: not given, should be for presence of kind parking-lot"),
        ("rounds = 20", "rounds = 1", "rounds: 1, should be at least 2"),
        ("rounds = 20", 'rounds = "many"', "rounds: 'many', should be a whole number"),
        ("rounds = 20", "rounds = 20\nannounced = 2", "announced: 2, should be at most 1"),
        ("vehicles = 4", "vehicles = 1.5", "vehicles: 1.5, should be a number of at least 2, a list of names"),
        ('"parking-lot"', '"parking"', r"presence.kind: 'parking', did you mean parking-lot\?"),
        ("leaves =", "leave =", r"presence.leave: there is no such setting, did you mean leaves\?"),
        ("v1 = 5", 'v1 = "5"', "presence.leaves: .*, should be a table of rounds by vehicle"),
        ("remaining = 0.1", "remains = 0.1", r"holdings.remains: there is no such setting, did you mean remaining\?"),
        ("remaining = 0.1", "remaining = 1.0", "remaining: 1.0, should be below 1"),
        ("holders = {", "holders = -1 # {", "holders: -1, should be a number of classes"),
        ("[holdings]", "[holdings", "mine.toml is no TOML"),
    ],
)
def test_wrong_files(tmp_path, old, new, sentence):
    assert old in MINE
    with pytest.raises(PlanError, match=sentence):
        mine(tmp_path, MINE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("bus =", "buss =", r"the dataset has no class 'buss', did you mean bus\?"),
        ("0 = 2", "8 = 2", "no class '8', should be 0 to 7 or one of car, van"),
        ('"v1", 0', '"v9", 0', "holders: there is no vehicle 'v9'"),
        ("v1 = 5", "v1 = 20", "leaves: vehicle 0 after round 20, should be 1 to 19"),
        ("remaining = 0.1", "concentration = 0.3", "says nothing of places, should be left out"),
        ('holders = { bus = "v1", 0 = 2 }', "holders = 9", "holders: 9 classes, should be at most 8"),
    ],
)
def test_plays_that_cannot_be(tmp_path, old, new, sentence):
    assert old in MINE
    scenario = mine(tmp_path, MINE.replace(old, new))
    with pytest.raises(PlanError, match=sentence):
        scenario.play(0, CLASSES)


def test_names_that_are_none(tmp_path):
    with pytest.raises(PlanError, match=r"there is no 'workplaces', did you mean workplace\?"):
        find_scenario("workplaces")
    with pytest.raises(PlanError, match=r"should be one of charging-hub, .* or a path that ends in \.toml"):
        find_scenario("xyz")
    with pytest.raises(PlanError, match="cannot be read"):
        find_scenario(str(tmp_path / "none.toml"))


def test_a_scenario_in_python():
    assert Scenario(rounds=5, vehicles=3).play(0, CLASSES).presence.there.all()
