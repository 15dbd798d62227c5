from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpt.scenario import PlanError, sessions

REAL = Path(__file__).parents[3] / "shared" / "data" / "charging-sessions.csv"
HEAD = "vehicle,arrived,departed,station\n"
SMALL = HEAD + (
    "a,2019-03-04T08:00:00Z,2019-03-04T17:00:00Z,s1\n"
    "b,2019-03-04T22:00:00Z,2019-03-05T02:00:00Z,s2\n"
    "a,2019-03-08T08:00:00Z,2019-03-09T00:00:00Z,s2\n"
    "c,2019-03-08T08:00:00+02:00,2019-03-08T09:00:00+02:00,s1\n"
)


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "sessions.csv"
    path.write_text(SMALL)
    return path


def test_a_round_a_day_with_empty_ones_left_out(small):
    presence = sessions(small)
    assert presence.vehicles == ("a", "b", "c")
    assert presence.labels == ("2019-03-04", "2019-03-05", "2019-03-08")
    assert [presence.here(r) for r in (1, 2, 3)] == [(0, 1), (1,), (0, 2)]
    assert presence.places == ("s1", "s2")
    np.testing.assert_array_equal(presence.visits, [[1, 1], [0, 1], [1, 0]])


def test_empty_rounds_shorter_rounds_and_fewer(small):
    assert sessions(small, skip_empty=False).labels[2:4] == ("2019-03-06", "2019-03-07")
    half = sessions(small, hours=12, rounds=2)
    assert half.labels == ("2019-03-04 00:00", "2019-03-04 12:00")
    assert [half.here(r) for r in (1, 2)] == [(0,), (0, 1)]
    assert half.visits.sum() == 2


def test_since_and_the_most_frequent(small):
    later = sessions(small, since="2019-03-05")
    assert later.labels == ("2019-03-05", "2019-03-08")
    assert later.vehicles == ("a", "b", "c")
    assert sessions(small, vehicles=1).vehicles == ("a",)
    assert sessions(small, since="2019-03-05", vehicles=2).vehicles == ("a", "b")
    assert sessions(small, since="2019-03-04T12:00Z", rounds=1).labels == ("2019-03-04 12:00",)


def test_without_stations(tmp_path):
    path = tmp_path / "s.csv"
    path.write_text("arrived,departed,vehicle\n2019-03-04T08:00:00,2019-03-04T08:00:00,a\n")
    presence = sessions(path)
    assert (presence.visits, presence.places, presence.here(1)) == (None, (), (0,))


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 300), st.integers(0, 80)), min_size=1, max_size=12),
    st.sampled_from([1.0, 5.0, 24.0]),
)
def test_there_where_a_session_overlaps(tmp_path_factory, given_sessions, hours):
    day = datetime(2020, 1, 1)
    path = tmp_path_factory.getbasetemp() / "overlap.csv"
    lines = [f"{v},{day + timedelta(hours=a)},{day + timedelta(hours=a + n)}\n" for v, a, n in given_sessions]
    path.write_text("vehicle,arrived,departed\n" + "".join(lines))
    presence = sessions(path, hours=hours, since="2020-01-01", skip_empty=False)
    for row in range(presence.rounds):
        begin, end = row * hours, (row + 1) * hours
        for number, name in enumerate(presence.vehicles):
            overlaps = any(v == name and a < end and (a + n > begin or a >= begin) for v, a, n in given_sessions)
            assert presence.there[row, number] == overlaps


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("vehicle,arrived\n", "no column departed, should be vehicle, arrived, departed"),
        (HEAD, "no sessions, should be at least one"),
        (HEAD + "a,yesterday,2019-03-04T17:00:00Z,s\n", "line 2: arrived 'yesterday', should be a time like 2019"),
        (HEAD + "a,2019-03-04T17:00:00Z\n", "line 2: departed '', should be a time"),
        (SMALL + "a,2019-03-04T17:00:00Z,2019-03-04T16:00:00Z,s\n", "line 6: departed .* before it arrived"),
        (HEAD + ",2019-03-04T17:00:00Z,2019-03-04T16:00:00Z,s\n", "line 2: no vehicle"),
    ],
)
def test_wrong_files(tmp_path, text, sentence):
    path = tmp_path / "wrong.csv"
    path.write_text(text)
    with pytest.raises(PlanError, match=sentence):
        sessions(path)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"hours": 0}, "hours: 0, should be above 0"),
        ({"hours": 1e-7}, "should be longer rounds"),
        ({"since": "March"}, "since: 'March', should be a date like"),
        ({"since": "2030-01-01"}, "since: 2030-01-01, but all sessions"),
        ({"vehicles": 4}, "vehicles: 4, but .* has 3"),
        ({"rounds": 0}, "rounds: 0"),
    ],
)
def test_wrong_settings(small, settings, sentence):
    with pytest.raises(PlanError, match=sentence):
        sessions(small, **settings)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(PlanError, match="cannot be read as CSV"):
        sessions(tmp_path / "none.csv")


@pytest.mark.skipif(not REAL.is_file(), reason="the real sessions are not here")
def test_the_real_sessions():
    presence = sessions(REAL)
    assert (len(presence.vehicles), int(presence.visits.sum())) == (511, 30114)
    assert presence.there.any(axis=1).all()
    some = sessions(REAL, since="2019-03-04", vehicles=20, rounds=60)
    assert some.there.shape == (60, 20)
    assert some.labels[0] == "2019-03-04"
