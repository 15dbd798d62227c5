"""One line a decision."""

import io
import json
import os
from datetime import UTC, datetime

import pytest

from mpt.fleet import Decision, FleetError, log
from mpt.fleet.log import DecisionLog, append, logs_of

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


def test_a_log_is_rotated_before_it_is_too_large_and_the_oldest_goes(tmp_path, monkeypatch):
    monkeypatch.setattr(log, "LARGEST", 30)
    path, lines = tmp_path / "decisions.jsonl", [f"line {number:04d}\n" for number in range(20)]
    for line in lines:  # of 10 bytes, so three a file
        append(path, line, rotate=True)
    names = ["decisions.jsonl", *(f"decisions.jsonl.{number}" for number in (1, 2, 3, 4))]
    assert sorted(one.name for one in tmp_path.iterdir()) == names
    assert [one.name for one in logs_of(path)] == names[:0:-1] + names[:1]
    assert "".join(one.read_text() for one in logs_of(path)) == "".join(lines[6:])
    assert all(one.stat().st_size <= 30 and one.stat().st_mode & 0o777 == 0o600 for one in logs_of(path))


def test_a_piece_that_is_too_long_by_itself_is_written_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(log, "LARGEST", 30)
    path = tmp_path / "rounds.jsonl"
    for piece in ("a" * 40 + "\n", "b\n", "c" * 50 + "\n"):
        append(path, piece, rotate=True)
    assert [one.read_text()[0] for one in logs_of(path)] == ["a", "b", "c"]


def test_who_is_killed_between_two_renames_has_lost_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(log, "LARGEST", 10)
    path = tmp_path / "decisions.jsonl"
    for number in range(5):
        append(path, f"line {number:04d}\n", rotate=True)
    (tmp_path / "decisions.jsonl.4").unlink()
    monkeypatch.setattr(log.os, "replace", _killed_after(2))
    with pytest.raises(KeyboardInterrupt):
        append(path, "line 0005\n", rotate=True)
    monkeypatch.undo()
    monkeypatch.setattr(log, "LARGEST", 10)
    append(path, "line 0005\n", rotate=True)
    assert "".join(one.read_text() for one in logs_of(path)) == "".join(f"line {n:04d}\n" for n in range(1, 6))


def _killed_after(renames):
    done, replace = [], os.replace

    def stops(source, target):
        if len(done) == renames:
            raise KeyboardInterrupt
        done.append(target)
        replace(source, target)

    return stops


def test_decisions_are_rotated_and_other_files_are_not_unless_told(tmp_path, monkeypatch):
    monkeypatch.setattr(log, "LARGEST", 200)
    decisions = DecisionLog(tmp_path / "decisions.jsonl", None)
    for _ in range(3):
        decisions.write(DECISIONS)
        append(tmp_path / "orders.jsonl", "x" * 150 + "\n")
    assert len(logs_of(decisions.path)) == 3
    assert len(logs_of(tmp_path / "orders.jsonl")) == 1
