from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mpt.scenario import (
    PlanError,
    Presence,
    lanes,
    leaves_of,
    never_leaving,
    parking_lot,
    present_when,
    read_presence,
    text_lanes,
    with_failures,
    with_goodbyes,
    write_presence,
)

NAMES = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=6).filter(lambda s: s[0] != "#")


@st.composite
def presences(draw):
    vehicles = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    rounds = draw(st.integers(1, 12))
    presence = present_when(vehicles, draw(hnp.arrays(np.bool_, (rounds, len(vehicles)))))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    presence = with_failures(with_goodbyes(presence, draw(st.floats(0, 1)), rng), draw(st.floats(0, 1)), rng)
    labels = draw(st.just([]) | st.lists(NAMES, min_size=rounds, max_size=rounds))
    places = draw(st.none() | st.lists(NAMES, max_size=3, unique=True))
    visits = (
        None
        if places is None
        else draw(hnp.arrays(np.int64, (len(vehicles), len(places)), elements=st.integers(0, 99)))
    )
    return replace(presence, labels=tuple(labels), visits=visits, places=tuple(places or ()))


@given(presences())
def test_what_is_written_is_read_again(tmp_path_factory, presence):
    path = tmp_path_factory.getbasetemp() / "presence.csv"
    write_presence(presence, path)
    again = read_presence(path)
    assert (again.vehicles, again.labels, again.places) == (presence.vehicles, presence.labels, presence.places)
    for name in ("there", "silent", "goodbye"):
        np.testing.assert_array_equal(getattr(again, name), getattr(presence, name))
    assert (again.visits is None) == (presence.visits is None)
    np.testing.assert_array_equal(again.visits, presence.visits)


@given(presences())
def test_rounds_and_stays_say_what_the_table_says(presence):
    for number in range(1, presence.rounds + 1):
        row = number - 1
        everybody = range(len(presence.vehicles))
        assert presence.here(number) == tuple(v for v in everybody if presence.there[row, v])
        silent = {v for v in everybody if presence.silent[row, v]}
        assert set(presence.answering(number)) == set(presence.here(number)) - silent
        assert presence.leaving(number) == tuple(v for v in everybody if presence.goodbye[row, v])
    for vehicle, name in enumerate(presence.vehicles):
        stays = presence.stays(vehicle)
        rounds = [r for first, last in stays for r in range(first, last + 1)]
        assert rounds == [r for r in range(1, presence.rounds + 1) if presence.there[r - 1, vehicle]]
        assert all(last + 1 < first for (_, last), (first, _) in pairwise(stays))
        assert [lane[1:] for lane in lanes(presence) if lane[0] == name] == stays
        assert leaves_of(presence)[:, vehicle].sum() == sum(last < presence.rounds for _, last in stays)


@given(presences())
def test_those_that_never_leave(presence):
    live = never_leaving(presence, [0])
    np.testing.assert_array_equal(live.there[:, 1:], presence.there[:, 1:])
    np.testing.assert_array_equal(live.goodbye[:, 1:], presence.goodbye[:, 1:])
    stays = presence.stays(0)
    assert live.stays(0) == ([(stays[0][0], presence.rounds)] if stays else [])
    assert not live.goodbye[:, 0].any()


def test_a_file_written_by_hand(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(
        "# a remark\n#rounds: 6\n\nvehicle, first, last, goodbye, silent\n"
        "red,1,2,yes,\nred, 5, 6,,5 6\n\n# and one\nblue,,,,\n"
    )
    presence = read_presence(path)
    assert presence.vehicles == ("red", "blue")
    assert (presence.stays(0), presence.stays(1)) == ([(1, 2), (5, 6)], [])
    assert (presence.leaving(2), presence.here(6), presence.answering(6)) == ((0,), (0,), ())


HEAD = "# rounds: 6\nvehicle,first,last,goodbye,silent\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("vehicle,first,last,goodbye,silent\n", "line 1: the header, but no line before it says how many rounds"),
        ("# rounds: none\n", "line 1: 'none', should be a whole number from 1 to"),
        ("# rounds: 6\ncar,from,to\n", "line 2: 'car,from,to', should be the header vehicle,first"),
        (HEAD + "a,1,7,no,\n", "line 3: '7', should be a whole number from 1 to 6"),
        (HEAD + "a,3,2,no,\n", "line 3: '2', should be a whole number from 3 to 6"),
        (HEAD + "a,1,2,maybe,\n", "line 3: goodbye 'maybe', should be yes or no"),
        (HEAD + "a,1,6,yes,\n", "line 3: goodbye in round 6, should be no in the last round"),
        (HEAD + "a,1,2,no,3\n", "line 3: '3', should be a whole number from 1 to 2"),
        (HEAD + "a,1,2\n", "line 3: 'a,1,2', should be vehicle,first"),
        (HEAD + "a,1,3,no,\na,4,5,no,\n", "line 4: a is there in rounds 4 to 5, but line 3 has it from 1 to 3"),
        ("# labels: x,y\n" + HEAD + "a,1,2,no,\n", "2 labels, should be 6"),
        (
            "# places: p,q\n# visits: a,1\n" + HEAD + "a,1,2,no,\n",
            "visits of 'a', should be a line for each vehicle with 2",
        ),
        (HEAD, "no vehicles"),
        ("# rounds: 6\n", "no header"),
    ],
)
def test_wrong_files_are_told_where(tmp_path, text, sentence):
    path = tmp_path / "wrong.csv"
    path.write_text(text)
    with pytest.raises(PlanError) as caught:
        read_presence(path)
    assert str(path) in str(caught.value)
    assert sentence in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(PlanError, match="cannot be read"):
        read_presence(tmp_path / "none.csv")


THERE = np.array([[True, False], [True, True], [False, True]])
NOBODY = np.zeros_like(THERE)


def one(rows, vehicle):
    table = np.zeros_like(THERE)
    table[rows, vehicle] = True
    return table


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"vehicles": ("a", "a")}, "'a' is twice among the vehicles"),
        ({"vehicles": ("a", " b")}, "should be a text of one line"),
        ({"vehicles": ("a",)}, r"should be bool of shape \(rounds, 1\)"),
        ({"there": THERE.astype(int)}, "there is int64 of shape"),
        ({"silent": NOBODY[:2]}, r"silent has shape \(2, 2\), should be \(3, 2\)"),
        ({"silent": one(0, 1)}, "vehicle b is silent in round 1, should be a round in which it is there"),
        ({"goodbye": one(0, 0)}, "vehicle a says goodbye in round 1, should be the last round of a stay"),
        ({"goodbye": one(2, 1)}, "vehicle b says goodbye in round 3"),
        ({"labels": ("x",)}, "1 labels, should be 3"),
        ({"places": ("p",)}, "should be both or neither"),
        ({"places": ("p",), "visits": np.zeros((2, 2), int)}, r"should be \(2, 1\)"),
        ({"places": ("p",), "visits": np.array([[1], [-1]])}, "whole numbers from 0 on"),
    ],
)
def test_wrong_presences(changes, sentence):
    right = {"vehicles": ("a", "b"), "there": THERE, "silent": NOBODY, "goodbye": NOBODY}
    Presence(**right)
    with pytest.raises(PlanError, match=sentence):
        Presence(**{**right, **changes})


def test_rounds_and_vehicles_that_there_are_not():
    presence = parking_lot(2, 3, {})
    with pytest.raises(PlanError, match="no round 0, should be 1 to 3"):
        presence.here(0)
    with pytest.raises(PlanError, match="no vehicle 2, should be 0 to 1"):
        presence.stays(2)


def test_a_presence_cannot_be_changed():
    there = np.ones((2, 1), dtype=bool)
    presence = present_when(1, there)
    there[0] = False
    assert presence.there.all()
    with pytest.raises(ValueError, match="read-only"):
        presence.there[0] = False


@given(presences(), st.integers(9, 30))
def test_lanes_as_text(presence, width):
    lines = text_lanes(presence, width).split("\n")
    assert len(lines) == len(presence.vehicles)
    assert max(map(len, lines)) <= width
    lane = max(map(len, presence.vehicles)) + 2
    for vehicle, (name, line) in enumerate(zip(presence.vehicles, lines, strict=True)):
        assert line.startswith(name + " ")
        assert any(sign in line[lane:] for sign in "━x>") == bool(presence.stays(vehicle))


def test_lanes_show_what_happens():
    presence = with_goodbyes(parking_lot(["a", "bc"], 6, {0: 3}), 1.0, np.random.default_rng(0))
    presence = replace(presence, silent=presence.there & (np.arange(6)[:, None] == 1))
    assert text_lanes(presence) == "a   ━x>···\nbc  ━x━━━━"
    assert text_lanes(presence, 7) == "a   x>·\nbc  x━━"
    with pytest.raises(PlanError, match="width: 4, should be at least 5"):
        text_lanes(presence, 4)
