"""Whatever comparing answers raises is the refusal of whose answer it is, and the round goes on."""

import pytest
from numpy.testing import assert_allclose

from mpt.tracking import gate as gates
from mpt.tracking.intake import read_answers
from mpt.tracking.settings import TrackerSettings
from tests.tracking.fleets import RARE, C, D, Fleet, tracker

NAMES = [f"v{i:02}" for i in range(12)]
MARK = 77
"""So many samples of a class make comparing raise here, in the place of what nobody has thought of."""


@pytest.fixture(autouse=True)
def comparing_raises(monkeypatch):
    """Where an answer has the mark; eight answers are a quorum."""
    bounded, clip_of = gates.bounded, gates.clip_of

    def compared(compare):
        def comparing(reports, *among, **options):
            several = reports if isinstance(reports, list) else [reports]
            if any(MARK in report.counts for report in several):
                raise ZeroDivisionError("not thought of")
            return compare(reports, *among, **options)

        return comparing

    monkeypatch.setattr(gates, "MOST_QUORUM", 8)
    monkeypatch.setattr(gates, "bounded", compared(bounded))
    monkeypatch.setattr(gates, "clip_of", compared(clip_of))


def taken(names, *marked):
    """What comes of a round in which these answer, some with the mark."""
    even = {c: 20 for c in range(C) if c != RARE}
    told = Fleet({v: {**even, 0: MARK if v in marked else 20} for v in names})
    question, settings = tracker().question(), TrackerSettings(C, D)
    return read_answers(settings, question, told.answers(question), {})


@pytest.mark.parametrize("place", [0, 4, 7, 9, 11])
@pytest.mark.parametrize("answering", [6, 12])
def test_it_is_refused_and_the_others_count(place, answering):
    names = NAMES[:answering]
    hostile = names[min(place, answering - 1)]
    found, without = taken(names, hostile), taken([v for v in names if v != hostile])
    assert found.refused == {hostile: "answer: ZeroDivisionError('not thought of')"}
    assert found.counts.keys() == without.counts.keys()
    assert_allclose(found.snapshot.everybody.means, without.snapshot.everybody.means)


def test_of_several_among_those_that_are_held_all_are_refused_and_later_ones_count():
    found, without = taken(NAMES, NAMES[1], NAMES[5]), taken(NAMES[8:])
    assert sorted(found.refused) == NAMES[:8]
    assert_allclose(found.snapshot.everybody.means, without.snapshot.everybody.means)
