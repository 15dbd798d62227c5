"""One line a decision."""

import io
import json
from datetime import UTC, datetime

import pytest

from mpt.fleet import Decision, FleetError
from mpt.fleet.log import DecisionLog

DECISIONS = [Decision(7, "suspected", "a", (2,), "it did not answer"), Decision(7, "lost", "", (1, 3), "gone")]
TIME = datetime(2026, 11, 15, 12, 0, 0, 5, tzinfo=UTC)


def test_a_json_object_a_line_and_a_sentence_for_people(tmp_path):
    people = io.StringIO()
    log = DecisionLog(tmp_path / "deep" / "decisions.jsonl", people, lambda: TIME)
    log.write(DECISIONS)
    log.write([])
    log.write(DECISIONS[:1])
    first, second, third = map(json.loads, log.path.read_text().splitlines())
    assert (
        first
        == third
        == {
            "time": "2026-11-15T12:00:00.000005+00:00",
            "round": 7,
            "event": "suspected",
            "vehicle": "a",
            "name": None,
            "classes": [2],
            "class_numbers": [2],
            "why": "it did not answer",
        }
    )
    assert (second["vehicle"], second["classes"]) == (None, [1, 3])
    assert people.getvalue().splitlines()[:2] == [
        "mpt: round 7: vehicle a class 2 suspected: it did not answer",
        "mpt: round 7: classes 1, 3 lost: gone",
    ]


def test_names_stand_where_they_are_known(tmp_path):
    people = io.StringIO()
    decision = Decision(7, "suspected", "104986", (2,), "it did not answer", "vehicle-7", ("truck",))
    log = DecisionLog(tmp_path / "decisions.jsonl", people, lambda: TIME)
    log.write([decision])
    found = json.loads(log.path.read_text())
    assert (found["vehicle"], found["name"]) == ("104986", "vehicle-7")
    assert (found["classes"], found["class_numbers"]) == (["truck"], [2])
    assert people.getvalue() == "mpt: round 7: vehicle vehicle-7 (104986) class truck suspected: it did not answer\n"


def test_an_unfinished_line_spoils_no_other(tmp_path):
    path = tmp_path / "log"
    path.write_text('{"round": 6, "ev')
    DecisionLog(path, None).write(DECISIONS)
    lines = path.read_text().splitlines()
    assert len(lines) == 3
    assert json.loads(lines[1])["round"] == 7


def test_nothing_in_an_id_breaks_a_line(tmp_path):
    people = io.StringIO()
    DecisionLog(tmp_path / "log", people).write([Decision(1, "joined", "a\n\u2028b\x1b[2J", (), "x\ny")])
    assert len(people.getvalue().splitlines()) == 1
    assert len((tmp_path / "log").read_bytes().splitlines()) == 1


def test_standard_error_is_the_default_and_a_wrong_place_is_named(tmp_path, capsys):
    DecisionLog().write(DECISIONS)
    assert "round 7: vehicle a" in capsys.readouterr().err
    with pytest.raises(FleetError, match="cannot be written"):
        DecisionLog(tmp_path, None).write(DECISIONS)
