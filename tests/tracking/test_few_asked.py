"""A large fleet of which few are asked in a round: what is kept stays small, and who was late is not forgotten."""

import numpy as np

from mpt.fleet import Tracker
from mpt.tracking.sampling import asked_in

C, D, VEHICLES = 6, 4, 200
WATCHED = (4, 5)
HOLDERS = {"v7": 4, "v70": 5}


def answers_of(question, rng, names, centres):
    """Everybody has some of each class; the holders have nearly all of theirs."""
    made = {}
    for name in names:
        few = np.repeat(np.arange(C), [5] * 4 + [1, 1])
        labels = np.concatenate([few, np.full(2000, HOLDERS[name])]) if name in HOLDERS else few
        made[name] = question.answer(centres[labels] + 0.1 * rng.standard_normal((len(labels), D)), labels)
    return made


def test_only_holders_of_the_whole_keep_a_snapshot():
    rng = np.random.default_rng(0)
    centres, names = rng.standard_normal((C, D)), [f"v{i}" for i in range(VEHICLES)]
    tracker, sizes = Tracker(num_classes=C, dim=D, watch=WATCHED), []
    tracker.close(answers_of(tracker.question(), rng, names, centres))
    for number in range(2, 40):
        asked = asked_in(names, [], 0.05, seed=0, round=number, least=2)
        tracker.close(answers_of(tracker.question(), rng, sorted(asked), centres), asked=asked)
        assert set(tracker.state.trusted) <= HOLDERS.keys()
        sizes.append(len(tracker.to_bytes()))
    assert set(tracker.state.trusted) == HOLDERS.keys() - asked
    assert max(sizes[10:]) < 1.5 * max(sizes[:10])
    again = Tracker.from_bytes(tracker.to_bytes())
    kept = {id(one) for one in tracker.state.trusted.values()}
    assert len({id(one) for one in again.state.trusted.values()}) == len(kept)
    assert {v: one.round for v, one in again.state.trusted.items()} == {
        v: one.round for v, one in tracker.state.trusted.items()
    }


def test_who_was_late_and_is_not_asked_still_carries_its_class():
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((C, D))
    held = {"a": {0: 60, 1: 9, 2: 9}, "b": {0: 40, 1: 9, 2: 9}, "c": {1: 9, 2: 9, 3: 9}}

    def told(tracker, names):
        made = {}
        for name in names:
            labels = np.repeat(list(held[name]), list(held[name].values()))
            made[name] = tracker.question().answer(centres[labels] + rng.standard_normal((len(labels), D)), labels)
        return made

    tracker = Tracker(num_classes=C, dim=D, grace=0, watch=(0,))
    tracker.close(told(tracker, "abc"))
    tracker.close(told(tracker, "abc"))
    tracker.close(told(tracker, "ac"), late={"b": "it was not waited for"})
    tracker.close(told(tracker, "ac"), asked=["a", "c"])
    outcome = tracker.close(told(tracker, "c"), asked=["a", "c"])
    assert tracker.roster.state("a") == "departed"
    assert not tracker.held_out
    assert "carried" in [d.what for d in outcome.decisions]
