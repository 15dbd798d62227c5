import pytest

from mpt.scenario import Event, PlanError, check_rounds, departure, left_after, parse_events, present


def test_the_papers_departure():
    events = departure(3, after=15)
    assert present(range(4), events, 15) == (0, 1, 2, 3)
    assert present(range(4), events, 16) == (0, 1, 2)
    assert left_after(events, 15) == (3,)
    assert left_after(events, 14) == ()


def test_vehicles_join_leave_and_return():
    events = [
        Event(8, 1, "join"),
        Event(5, 0, "join"),
        Event(10, 0, "leave"),
        Event(12, 0, "join"),
        Event(3, 1, "leave"),
    ]
    there = {r: present([2, 1, 0], events, r) for r in range(1, 14)}
    assert there[1] == there[3] == (1, 2)
    assert there[4] == (2,)
    assert there[5] == there[7] == (0, 2)
    assert there[8] == there[10] == (0, 1, 2)
    assert there[11] == (1, 2)
    assert there[12] == (0, 1, 2)


def test_leaving_after_the_round_in_which_it_joins():
    events = [Event(4, 0, "leave"), Event(4, 0, "join")]
    assert [present([0], events, r) for r in (3, 4, 5)] == [(), (0,), ()]


def test_events_are_text():
    assert parse_events(" leave 3 after 20,join 4  at 30, ") == (Event(20, 3, "leave"), Event(30, 4, "join"))
    assert parse_events("") == ()


@pytest.mark.parametrize(
    "text", ["leave 3", "leave 3 at 20", "join 4 after 2", "leave -1 after 2", "3 20", "leave a after 2"]
)
def test_text_that_is_no_event_is_refused(text):
    with pytest.raises(PlanError) as caught:
        parse_events(f"leave 1 after 2, {text}")
    assert str(caught.value) == (
        f"events: {text!r}, should be like 'leave 3 after 20' or 'join 4 at 30', with commas between"
    )


def test_events_that_could_not_be_seen_are_refused():
    check_rounds(parse_events("leave 3 after 9, join 3 at 10"), 10)
    for text, where in (("leave 3 after 10", "1 to 9"), ("leave 3 after 0", "1 to 9"), ("join 3 at 1", "2 to 10"),
                        ("join 3 at 11", "2 to 10")):  # fmt: skip
        with pytest.raises(PlanError, match=f"events: '{text}', should be a round from {where}"):
            check_rounds(parse_events(text), 10)
