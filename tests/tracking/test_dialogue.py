"""Methods with questions of their own, on made-up fleets without torch: in disorder, several classes, with liars."""

import numpy as np
import pytest

from mpt.core.wire import Writer
from mpt.fleet import FleetError, Tracker
from mpt.fleet.status import status_of
from mpt.methods import find_part
from mpt.protocol.further import Further
from mpt.tracking import state as states
from mpt.tracking.prototypes import readout_of
from tests.tracking.fleets import RARE, C, D, Fleet, paper_fleet, whats

OTHER = 4
METHODS = [
    "frozen", "sdc", "ldc:all", "icarl", "mpt-lite", "mpt:trained", "remaining-mean", "mean-shift", "dpcr:ncm",
]  # fmt: skip


def answers(fleet, question, vehicles, *, lacking=(), **changed):
    """What vehicles answer to a first or a further question."""
    made = {}
    for v in vehicles:
        earlier = {} if v in lacking else {r: fleet.features(v, r)[0] for r in question.references}
        made[v] = question.answer(*fleet.features(v, question.round), earlier, find=find_part)
    return made | {v: answer for v, answer in changed.items() if v in made}


def close(fleet, tracker, vehicles, leaving=(), *, gone_after=None, lacking=()):
    """A round; `gone_after[n]` are those that do not answer question n any more."""
    asked = [1]

    def ask(more):
        asked[0] += 1
        there = [v for v in more.vehicles if v not in (gone_after or {}).get(asked[0], ())]
        return answers(fleet, more.further, there, lacking=lacking)

    first = answers(fleet, tracker.question(), vehicles, lacking=lacking)
    return tracker.close(first, leaving, ask=ask, head=(np.ones((C, D)), np.zeros(C)))


def two_owners():
    """ "a" holds the rare class, "e" another one; the rest is even."""
    even = dict.fromkeys((c for c in range(C) if c not in (RARE, OTHER)), 20)
    holdings = {v: {**even, RARE: 2, OTHER: 2} for v in "bcd"}
    return Fleet(holdings | {"a": {**even, RARE: 100, OTHER: 2}, "e": {**even, OTHER: 90, RARE: 2}})


def made(method, **options):
    return Tracker(num_classes=C, dim=D, method=method, watch=(RARE, OTHER), **{"grace": 1, **options})


def departed(method, rounds=2, **options):
    """The paper's fleet and a tracker: the rare class's vehicle has said goodbye in the round before."""
    fleet, tracker = paper_fleet(), made(method, **options)
    for _ in range(rounds):
        close(fleet, tracker, "abcd")
    close(fleet, tracker, "abcd", ["a"])
    return fleet, tracker


@pytest.mark.parametrize("method", METHODS)
def test_two_classes_that_depart_in_different_ways(method):
    """One says that it leaves, one vanishes; after every round the state goes through bytes."""
    fleet, tracker = two_owners(), made(method)
    for number in range(1, 9):
        here = "bcd" + ("a" if number <= 2 else "") + ("e" if number <= 4 else "")
        outcome = close(fleet, tracker, here, ["a"] if number == 2 else [])
        again = Tracker.from_bytes(tracker.to_bytes())
        assert again.to_bytes() == tracker.to_bytes()
        tracker = again
        assert not [p for p in outcome.problems if "as by mpt" in p], outcome.problems
        assert outcome.answered == tuple(sorted(here))
        assert np.isfinite(outcome.prototypes).all()
        if number > 5:
            assert outcome.tracked == (RARE, OTHER)
            assert tracker.held_out == (() if method == "mpt:trained" else (RARE, OTHER))
    assert sorted(tracker.state.tracked) == [RARE, OTHER]


@pytest.mark.parametrize("method", ["ldc:all", "mpt-lite", "icarl"])
def test_any_disorder_is_survived(method):
    fleet, tracker, rng, tracked = two_owners(), made(method), np.random.default_rng(3), 0
    for _ in range(30):
        here = [v for v in "abcde" if rng.random() < 0.8]
        tunnel = {2: [v for v in here if rng.random() < 0.2], 3: [v for v in here if rng.random() < 0.2]}
        leaving = [v for v in here if rng.random() < 0.05]
        lacking = [v for v in here if rng.random() < 0.2]
        outcome = close(fleet, tracker, here, leaving, gone_after=tunnel, lacking=lacking)
        tracker = Tracker.from_bytes(tracker.to_bytes())
        tracked += bool(outcome.tracked)
        assert set(outcome.answered) <= set(here)
        assert set(outcome.tracked) <= set(tracker.state.tracked)
        shown = outcome.prototypes if method != "icarl" else np.array(outcome.readout.to_linear()[0])
        assert np.isfinite(shown[list(outcome.tracked)]).all()
    assert tracked > 5


@pytest.mark.parametrize(
    ("method", "announced", "silent"),
    [
        ("frozen", 1, 1),
        ("icarl", 1, 1),
        ("sdc", 1, 2),
        ("ldc:all", 1, 2),
        ("mpt:outward", 1, 1),
        ("mpt-lite", 2, 2),
        ("ccvr", 2, 2),
        ("mean-shift", 1, 1),
        ("dpcr:ncm", 1, 2),
        ("dpcr", 2, 3),
    ],
)
def test_how_often_a_method_asks(method, announced, silent):
    """In the round after a goodbye, and in that of a silent departure."""

    def asked(tracker, fleet):
        times = [1]

        def ask(more):
            times[0] += 1
            return answers(fleet, more.further, more.vehicles)

        head = np.ones((C, D)), np.zeros(C)
        tracker.close(answers(fleet, tracker.question(), "bcd"), ask=ask, head=head)
        return times[0]

    fleet, tracker = departed(method)
    assert asked(tracker, fleet) == announced
    fleet, tracker = paper_fleet(), made(method)
    for _ in range(2):
        close(fleet, tracker, "abcd")
    assert asked(tracker, fleet) == silent


def test_a_method_that_asks_on_and_on_is_not_waited_for(tmp_path):
    track = "[context.total(self.part, x=np.array(float(i))) for i in range(99)]"
    last = played(mine(tmp_path, track=track), rounds=3)[-1]
    assert any("8 questions were asked in this round, it would ask on" in problem for problem in last.problems)
    assert RARE in last.reconstructions


def test_a_departure_after_the_second_question_is_none_of_the_others():
    """Everybody but one vanishes between the two questions of MPT-lite."""
    fleet, tracker = departed("mpt-lite")
    outcome = close(fleet, tracker, "bcd", gone_after={2: "cd"})
    assert outcome.answered == ("b",)
    assert whats(outcome, "c") == whats(outcome, "d") == ["suspected"]
    outcome = close(fleet, tracker, "bcd", gone_after={2: "bcd"})
    assert outcome.answered == ()
    assert any("nobody answered" in problem for problem in outcome.problems)


def test_wrong_further_answers_harm_only_their_vehicle():
    fleet, tracker = departed("ldc:all", grace=99)
    question = tracker.question()
    good = answers(fleet, question, "bcd")
    other = answers(Fleet(fleet.holdings, seed=7), question, "b")["b"]
    plain = tracker.request().answer(*fleet.features("b", question.round))
    lacking = answers(fleet, question, "b", lacking="b")["b"]
    short = good["b"][:-9]
    for wrong, said in ((plain, "less than was asked for"), (short, "truncated"), (good["b"] * 40, "at most")):
        outcome = Tracker.from_bytes(tracker.to_bytes()).close({**good, "b": wrong}, ask=lambda more: {})
        assert outcome.answered == ("c", "d")
        assert any(said in problem and "vehicle b" in problem for problem in outcome.problems), outcome.problems
    for fine in (other, lacking):
        outcome = Tracker.from_bytes(tracker.to_bytes()).close({**good, "b": fine}, ask=lambda more: {})
        assert outcome.answered == ("b", "c", "d")
        assert np.isfinite(outcome.prototypes[RARE]).all()


def test_with_most_samples_missing_it_is_reconstructed_as_by_mpt():
    fleet, tracker = departed("ldc:all")
    outcome = close(fleet, tracker, "bcd", lacking="bc")
    assert any("do not have the departure-time model" in problem for problem in outcome.problems)
    assert outcome.tracked == (RARE,)
    assert dict(tracker.lacking) == {"b": (3,), "c": (3,)}
    assert tracker.models_needed == (3, 4)
    outcome = close(fleet, tracker, "bcd")
    assert not outcome.problems
    assert not tracker.lacking


def test_more_departures_than_reference_models_are_tracked_as_by_mpt():
    fleet, tracker = two_owners(), made("sdc", most_references=1)
    for number in range(1, 5):
        outcome = close(fleet, tracker, "bcde" if number > 2 else "abcde", {2: ["a"], 4: ["e"]}.get(number, []))
    assert [d.classes for d in outcome.decisions if d.what == "unreferenced"] == [(OTHER,)]
    assert tracker.state.tracked[OTHER].method_state is None
    assert tracker.state.tracked[RARE].method_state is not None
    outcome = close(fleet, tracker, "bcd")
    assert outcome.tracked == (RARE, OTHER)
    assert set(outcome.reconstructions) == {OTHER}


def test_a_further_question_is_asked_in_bytes():
    fleet, tracker = paper_fleet(), made("mpt-lite")
    first = tracker.begin()
    for v, answer in answers(fleet, first, "abcd").items():
        tracker.receive(v, answer)
    more = tracker.take()
    assert Further.from_bytes(more.to_bytes()) == more.further
    assert more.vehicles == tuple("abcd")
    assert max(len(a) for a in answers(fleet, more.further, "abcd").values()) <= more.largest_answer


def test_a_shape_that_cannot_be_is_refused():
    """Of an array without numbers, whose other sides are too large for any."""
    fleet, tracker = departed("sdc", grace=99)
    question = tracker.question()
    good = answers(fleet, question, "bcd")
    writer = Writer(b"A", 0, "float32")
    writer.numbers("I", 2)
    writer.numbers("5I", 4, 0, 2**32 - 1, 2**32 - 1, 2**32 - 1)
    writer.numbers("I", 0)
    writer.reals(np.ones(1), "x")
    forged = Writer(b"O", 0, "float64")
    forged.raw(question.further.digest)
    forged.numbers("IB", 1, 0)
    forged.block(writer.finish())
    whole = Writer(b"B", 1, "float64", version=2)
    whole.numbers("I", 0)
    whole.block(question.statistics.answer(*fleet.features("b", question.round)))
    whole.block(forged.finish())
    outcome = tracker.close({**good, "b": whole.finish()}, ask=lambda more: {})
    assert outcome.answered == ("c", "d")
    assert any("which cannot be" in problem for problem in outcome.problems), outcome.problems


MINE = """
from dataclasses import dataclass, field
from typing import NamedTuple
import numpy as np
from mpt.protocol import on_vehicle

class Pair(NamedTuple):
    p: object
    q: object

@dataclass
class Counted:
    p: object
    n: int = field(init=False, default=3)

class Mine:
    name, training, needs_departure = "mine", "held-out", True
    def depart(self, context):
        return {depart}
    def track(self, state, context):
        {track}
    @on_vehicle(sums=("d",))
    def part(self, asked, local):
        {part}
"""


def mine(tmp_path, *, depart="context.prototype()", track="return state, state", part="return {'sums': np.ones(8)}"):
    path = tmp_path / "mine.py"
    path.write_text(MINE.replace("{depart}", depart).replace("{track}", track).replace("{part}", part))
    return f"{path}:Mine"


def played(method, rounds=5, **given):
    """Vehicle "a" leaves after round 2; the state goes through bytes after every round."""
    fleet, tracker, outcomes = paper_fleet(), Tracker(num_classes=C, dim=D, method=method, watch=(RARE,), grace=1), []

    def told(question, vehicles):
        find = lambda name, part: find_part(name, part, method)  # noqa: E731
        return {v: question.answer(*fleet.features(v, question.round), find=find) for v in vehicles}

    for number in range(1, rounds + 1):
        first = told(tracker.question(), "abcd" if number <= 2 else "bcd")
        assert max(map(len, first.values())) <= tracker.largest_answer
        leaving = ["a"] if number == 2 else []
        outcomes.append(tracker.close(first, leaving, ask=lambda more: told(more.further, more.vehicles)))
        tracker = Tracker.from_bytes(tracker.to_bytes())
    return outcomes


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"track": "return state, context.total(self.part, x=np.array([np.inf]))['sums']"}, "x should be finite"),
        ({"track": "return state, state * np.nan"}, "it has no prototype"),
        ({"track": "return state, state * 1e200"}, "which no feature has"),
        ({"track": "return state, state + 1j"}, "complex128 of shape (8,), should be a prototype"),
        ({"track": "raise SystemExit"}, "SystemExit"),
        ({"track": "return lambda: 1, state"}, "it keeps a function, which cannot be stored"),
        (
            {"track": "return state, context.report(context.request(unit=True).__class__(1, 6, unit=True)).means[2]"},
            "a request for round 1, should be for",
        ),
        (
            {"track": "return state, context.total(self.part)['sums']", "part": "raise ValueError('a bug')"},
            "ValueError: a bug",
        ),
        ({"track": "return state, context.total(self.part)['sums']", "part": "return {}"}, "should be sums, by name"),
    ],
)
def test_what_a_method_does_wrong_costs_the_method(tmp_path, parts, said):
    """Not the fleet, and not the vehicles: the class is reconstructed as by MPT."""
    for outcome in played(mine(tmp_path, **parts))[2:]:
        assert outcome.answered == ("b", "c", "d")
        assert outcome.tracked == (RARE,)
        assert RARE in outcome.reconstructions
        assert any(said in problem and "as by mpt" in problem for problem in outcome.problems), outcome.problems


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("Pair(context.prototype(), 1)", "it keeps a Pair, which cannot be stored"),
        ("open", "which cannot be stored"),
        ("np.array([object()])", "which cannot be stored"),
    ],
)
def test_what_cannot_be_stored_is_said_on_the_day(tmp_path, state, said):
    outcomes = played(mine(tmp_path, depart=state))
    (decision,) = [d for outcome in outcomes for d in outcome.decisions if d.what == "fallback"]
    assert said in decision.why
    assert RARE in outcomes[-1].reconstructions


@pytest.mark.parametrize(
    ("state", "track"),
    [
        ("Counted(context.prototype())", "return state, state.p * state.n"),
        ("{(1, 2): [context.prototype(), np.float64(2), np.float32(1), b'x', None]}", "return state, state[1, 2][0]"),
        ("[context.prototype()]", "state[0] += 1; return state, state[0]"),
    ],
)
def test_what_is_kept_is_what_is_read(tmp_path, state, track):
    outcomes = played(mine(tmp_path, depart=state, track=track))
    assert not [problem for outcome in outcomes for problem in outcome.problems]
    assert not outcomes[-1].reconstructions
    if "+= 1" in track:
        np.testing.assert_allclose(outcomes[4].prototypes[RARE] - outcomes[3].prototypes[RARE], 1)


def test_a_question_is_not_lost_on_a_method_that_catches_everything(tmp_path):
    lines = "", "try:", "    told = context.total(self.part)['sums']", "except:", "    told = -1e6"
    outcomes = played(mine(tmp_path, track="\n        ".join((*lines, "return state, state + told"))))
    assert not outcomes[-1].reconstructions
    assert np.abs(outcomes[-1].prototypes[RARE]).max() < 1e3


def test_an_answer_to_another_question_is_refused():
    fleet, tracker = paper_fleet(), made("mpt-lite")
    for _ in range(2):
        close(fleet, tracker, "abcd")
    late = {}

    def ask(more):
        late.setdefault("answers", answers(fleet, more.further, "bcd"))
        return {**answers(fleet, more.further, more.vehicles), "b": late["answers"]["b"]}

    for _ in range(2):
        outcome = tracker.close(answers(fleet, tracker.question(), "abcd"), ask=ask)
    assert "b" not in outcome.answered
    assert any("made for another question" in problem for problem in outcome.problems), outcome.problems


def test_who_says_goodbye_between_two_questions_has_said_it():
    fleet, tracker = paper_fleet(), made("mpt-lite")
    tracker.close(
        answers(fleet, tracker.question(), "abcd"), ask=lambda more: answers(fleet, more.further, more.vehicles)
    )
    for v, answer in answers(fleet, tracker.begin(), "abcd").items():
        tracker.receive(v, answer)
    more = tracker.take(["a"])
    for v, answer in answers(fleet, more.further, more.vehicles).items():
        tracker.receive(v, answer)
    outcome = tracker.take()
    assert "departed" in whats(outcome, "a")
    assert RARE in tracker.state.tracked


def test_a_state_is_read_without_the_file_of_its_method(tmp_path):
    method = mine(tmp_path)
    tracker = Tracker(num_classes=C, dim=D, method=method, watch=(RARE,))
    tracker.close(paper_fleet().answers(tracker.request()))
    data = tracker.to_bytes()
    (tmp_path / "mine.py").unlink()
    status = status_of(states.from_bytes(data))
    assert status.round == 1
    assert readout_of(states.from_bytes(data)) is not None
    with pytest.raises(FleetError, match="there is no file"):
        Tracker.from_bytes(data)


def test_shadow_mode_needs_something_to_hold_out():
    with pytest.raises(FleetError, match="holds nothing out of training"):
        made("mpt:trained", shadow=True)
