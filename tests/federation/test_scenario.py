from mpt.federation.scenario import Event, departure, left_after, present


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
