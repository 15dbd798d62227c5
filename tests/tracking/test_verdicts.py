"""What the decision about a new verdict says."""

from types import SimpleNamespace

from mpt.core.health import Health
from mpt.tracking.verdicts import verdicts


def said(health, before="good"):
    state = SimpleNamespace(health={5: Health(1.0, before)})
    return [one.why for one in verdicts(state, {5: health}, None, None, {}, 7)]


def test_where_the_map_cannot_know_the_decision_names_it():
    (why,) = said(Health(12.3, "lost", None, 14.2))
    assert why == (
        "lost, an error of 12 is expected: no sample remains, and the class lies 3.8 times as far out as the samples "
        "that the map is fitted to"
    )


def test_it_is_not_named_where_samples_remain_or_the_class_lies_among_the_others():
    assert said(Health(3.0, "degraded", 0.4, 14.2)) == ["degraded, an error of 3 is expected"]
    assert said(Health(3.0, "degraded", None, 0.4)) == ["degraded, an error of 3 is expected"]
    assert said(Health(3.0, "degraded")) == ["degraded, an error of 3 is expected"]
