"""Rounds that ask some vehicles only, against a second account of who is there and what there is; without the gate."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mpt.fleet import Tracker

from .fleets import RARE, Fleet, paper_fleet, tracker, whats

VEHICLES = "abcde"
SHARE, CARRY = 0.5, 0.25
NOTHING_TO_READ = b"no answer"
SAID = ("lost", "carried", "recovered")
"""What a server says of a class for which it has no deposit, or none any more."""


@dataclass
class Story:
    """What happens to a fleet, round by round: who is asked, what each does, who says goodbye, who has new samples."""

    holdings: dict
    rounds: list
    num_classes: int
    dim: int
    grace: int
    settings: dict


def told(seed, returns=("off",)):
    """A random story: hypothesis chooses the seed, since most of what it would choose itself has no departure."""
    rng = np.random.default_rng(seed)
    vehicles, num_classes, dim = VEHICLES[: rng.integers(2, 6)], int(rng.choice([3, 4])), int(rng.choice([3, 4]))
    often, calm = rng.choice([0.6, 0.8, 0.9]), int(rng.choice([0, 2]))

    def held():
        counts = rng.choice([0, 0, 1, 2, 4, 9, 30], num_classes)
        counts[0] += not counts.any()
        return counts.tolist()

    holdings, rounds = {v: held() for v in vehicles}, []
    for number in range(int(rng.integers(3, 12))):
        asked = None if rng.random() < 0.5 or number < calm else {v for v in vehicles if rng.random() < 0.6}
        other = ("silent", "silent", "wrong")
        does = {v: "answers" if rng.random() < often or number < calm else str(rng.choice(other)) for v in vehicles}
        leaving = {v for v in vehicles if rng.random() < 0.05}
        changed = {vehicles[rng.integers(len(vehicles))]: held()} if rng.random() < 0.1 else {}
        rounds.append((asked, does, leaving, changed))
    settings = {
        "grace": int(rng.integers(0, 3)),
        "patience": int(rng.integers(1, 5)),
        "probation": int(rng.choice([0, 0, 3])),
        "most_watched": [None, 1, num_classes - 1][rng.integers(3)],
        "returns": str(rng.choice(returns)),
    }
    return Story(holdings, rounds, num_classes, dim, settings["grace"], settings)


def stories(*returns):
    """Stories under one of these settings of `returns`."""
    return st.integers(0, 10**6).map(lambda seed: told(seed, returns))


@dataclass
class Account:
    """The same rules written down a second time, vehicle by vehicle, without a tracker.

    Attributes:
        state, missed: of each vehicle that has ever answered.
        reports: the last report of each that has not departed.
        before: the same with those who departed in this very round.
        away: by vehicle that is not there, the round since when, and the classes that hung on it then.
    """

    grace: int
    state: dict = field(default_factory=dict)
    missed: Counter = field(default_factory=Counter)
    reports: dict = field(default_factory=dict)
    before: dict = field(default_factory=dict)
    away: dict = field(default_factory=dict)

    def close(self, number, asked, does, leaving, held):
        heard = [v for v in does if asked is None or v in asked]
        for v in heard:
            if does[v] == "answers":
                self.state[v], self.missed[v], self.reports[v] = "present", 0, np.array(held[v])
                self.away.pop(v, None)
            elif self.state.get(v, "departed") == "departed":
                self.missed[v] += v in self.state
            elif does[v] == "wrong" and v not in leaving:
                self.state[v] = "refused"
            else:
                self.missed[v] += does[v] == "silent"
                self.state[v] = "departed" if self.missed[v] > self.grace else "suspected"
        for v in leaving & self.state.keys():
            self.state[v] = "departed"
        self.before = dict(self.reports)
        totals = sum(self.before.values(), 0)
        for v in self.having("suspected", "departed"):
            mine = self.before.get(v, np.zeros_like(totals))
            self.away.setdefault(v, (number, np.flatnonzero((mine > 0) & (mine >= SHARE * totals)).tolist()))
        self.reports = {v: one for v, one in self.reports.items() if self.state[v] != "departed"}

    def having(self, *states):
        return [v for v, state in sorted(self.state.items()) if state in states]

    def lost(self, num_classes):
        """Classes that hang on a vehicle which is gone, as (class, vehicle): what is there does not carry them."""
        total = sum(self.before.values(), np.zeros(num_classes, dtype=int))
        there = sum((self.before[v] for v in self.having("present")), np.zeros(num_classes, dtype=int))
        return [
            (c, v)
            for v in self.having("suspected", "departed")
            if v in self.before
            for c in self.away[v][1]
            if 0 < self.before[v][c] >= SHARE * total[c] and there[c] <= CARRY * total[c]
        ]


def played(story, *, resume=False):
    """The server, its outcome, the account and the fleet after every round; where it resumes, the server from bytes."""
    fleet = Fleet({v: dict(enumerate(held)) for v, held in story.holdings.items()}, story.dim, story.num_classes)
    server = Tracker(num_classes=story.num_classes, dim=story.dim, gate=False, **story.settings)
    held, account = dict(story.holdings), Account(story.grace)
    for number, (asked, does, leaving, changed) in enumerate(story.rounds, 1):
        for v, counts in changed.items():
            held[v] = counts
            fleet.add(v, dict(enumerate(counts)))
        heard = [v for v in does if asked is None or v in asked]
        answers = fleet.answers(server.request(), [v for v in heard if does[v] == "answers"])
        answers |= {v: NOTHING_TO_READ for v in heard if does[v] == "wrong"}
        server = Tracker.from_bytes(server.to_bytes()) if resume else server
        outcome = server.close(answers, leaving, asked=asked)
        account.close(number, asked, does, leaving, held)
        yield server, outcome, account, fleet


@given(stories("off"))
def test_the_coverage_is_a_recount_of_the_last_reports(story):
    for server, _, account, _ in played(story):
        assert {v: one.tolist() for v, one in server.state.counts.items()} == {
            v: one.tolist() for v, one in account.reports.items()
        }
        recount = sum(account.reports.values(), np.zeros(story.num_classes, dtype=int))
        assert server.state.coverage.totals.tolist() == recount.tolist()
        members = server.roster.members
        assert {v: m.state for v, m in members.items()} == account.state
        there = [v for v, state in account.state.items() if state != "departed"]
        assert [members[v].missed for v in there] == [account.missed[v] for v in there]


def silently_lost(story):
    """The first class that hangs on a vehicle which is gone, and has neither a deposit nor a word; None: there is none.

    A word is said once, in the first of the rounds in which the class is lost, or when its holder went.
    """
    said, since = {}, {}
    for server, outcome, account, _ in played(story):
        for decision in outcome.decisions:
            for c in decision.classes:
                said.setdefault(c, []).append((decision.round, decision.what))
        if story.settings["returns"] != "off":
            account.state = {v: m.state for v, m in server.roster.members.items()}
        lost = account.lost(story.num_classes)
        since = {c: since.get(c, server.round) for c, _ in lost}
        for c, v in lost:
            first = min(account.away[v][0], since[c])
            if c not in server.state.tracked and not any(n >= first and w in SAID for n, w in said.get(c, [])):
                return server.round, c, v
        ended = sum(account.before.values(), 0) * (sum(account.reports.values(), np.zeros(story.num_classes)) == 0)
        for c in np.flatnonzero(ended).tolist():
            if c not in server.state.tracked and not any(w == "lost" for _, w in said.get(c, [])):
                return server.round, c, None
    return None


@settings(max_examples=150)
@given(stories("off", "pooled"))
def test_no_class_is_lost_without_a_deposit_or_a_word(story):
    assert silently_lost(story) is None


def returned(story):
    """Each (class, vehicle) that was measured again in the round in which the vehicle answered again."""
    hung, found, most = {}, [], np.zeros(story.num_classes, dtype=int)
    for server, outcome, account, fleet in played(story):
        for v in [v for v in hung if v in outcome.answered]:
            for c in hung.pop(v):
                if account.before[v][c] <= CARRY * most[c]:  # it has come back with fewer samples than there were
                    continue
                rows = [(fleet.features(u, server.round)[0], fleet.samples[u][1]) for u in outcome.answered]
                mean = np.concatenate([x[y == c] for x, y in rows]).mean(axis=0)
                np.testing.assert_allclose(outcome.prototypes[c], mean, rtol=1e-4, atol=1e-4)
                assert c not in outcome.reconstructions
                found.append((c, v))
        totals = sum(account.before.values(), np.zeros(story.num_classes, dtype=int))
        most = np.maximum(most, totals)
        for v, member in server.roster.members.items():
            if member.state in ("suspected", "departed") and v in account.before and v not in hung:
                mine = account.before[v]
                hung[v] = np.flatnonzero((mine > 0) & (mine >= SHARE * totals)).tolist()
    return found


@given(stories("off", "pooled"))
def test_a_vehicle_that_returns_is_measured_in_the_round_that_it_is_asked_in(story):
    returned(story)


def test_the_stories_tell_of_departures_and_returns():
    """The properties above are about something."""
    made = [told(seed) for seed in range(60)]
    deposits = [sum("deposited" in whats(outcome) for _, outcome, *_ in played(story)) for story in made]
    losses = [sum("lost" in whats(outcome) for _, outcome, *_ in played(story)) for story in made]
    assert sum(map(bool, deposits)) > 15
    assert sum(map(bool, losses)) > 10
    assert sum(len(returned(story)) for story in made) > 30


@given(stories("off", "pooled", "own"))
def test_a_state_is_the_same_as_bytes_and_goes_on_as_if_nothing_had_happened(story):
    for (server, one, *_), (resumed, other, *_) in zip(played(story), played(story, resume=True), strict=True):
        assert server.to_bytes() == resumed.to_bytes() == Tracker.from_bytes(server.to_bytes()).to_bytes()
        assert (one.decisions, one.problems, one.answered) == (other.decisions, other.problems, other.answered)
        assert (one.readout, dict(one.reconstructions)) == (other.readout, dict(other.reconstructions))
        np.testing.assert_array_equal(one.prototypes, other.prototypes)


@given(stories("off", "pooled", "own"), st.data())
def test_whoever_is_never_asked_again_stays_present(story, data):
    """Whatever the others do, and whatever it would have done itself."""
    quiet = data.draw(st.sampled_from(sorted(story.holdings)))
    first = (None, dict.fromkeys(story.holdings, "answers"), set(), {})
    story.rounds = [first, *((set(asked or story.holdings) - {quiet}, does, leaving - {quiet}, changed)
                             for asked, does, leaving, changed in story.rounds)]  # fmt: skip
    for server, outcome, _, _ in played(story):
        member = server.roster.members[quiet]
        assert (member.state, member.missed, member.seen) == ("present", 0, 1)
        assert quiet in server.state.counts
        assert not [
            d for d in outcome.decisions if d.vehicle == quiet and d.what not in ("joined", "watched", "crowded")
        ]


def sampled(fleet, server, *rounds):
    """The outcomes of rounds, each a pair: who is asked, who answers."""
    return [server.close(fleet.answers(server.request(), there), asked=[*asked]) for asked, there in rounds]


ALL = ("abcd", "abcd")


def test_who_has_most_of_what_was_reported_need_not_hold_the_class():
    """Where "b" and "c" are asked, "b" has half of the rare class; where it then vanishes, "a" holds it still."""
    fleet, server = paper_fleet(), tracker()
    *_, outcome = sampled(fleet, server, ALL, ALL, ("abcd", "abcd"), ("bc", "bc"), ("bc", "c"))
    assert server.state.snapshot.held("c", 0.4) == (RARE,)
    assert whats(outcome) == ["suspected"]
    assert server.state.tracked == {}
    assert "its holder, vehicle a, was not asked and was trusted last in round 3" in outcome.problems[0]


def test_the_same_where_everybody_is_asked_in_the_round_after():
    fleet, server = paper_fleet(), tracker()
    sampled(fleet, server, ALL, ALL, ("bc", "bc"))
    outcome = server.close(fleet.answers(server.request(), "acd"))
    assert whats(outcome) == ["suspected"]
    assert server.state.tracked == {}


def test_the_holder_that_was_not_asked_is_the_one_with_most_samples():
    """Not the first by its id: "a" of this fleet has two samples of the rare class, "d" has a hundred."""
    fleet, server = paper_fleet(), tracker()
    fleet.samples["a"], fleet.samples["d"] = fleet.samples["d"], fleet.samples["a"]
    fleet.add("c", {0: 20, 1: 20, 3: 20})
    *_, outcome = sampled(fleet, server, ALL, ALL, ALL, ("ab", "ab"), ("c", "c"))
    assert "its holder, vehicle d, was not asked and was trusted last in round 3" in outcome.problems[0]


def test_a_deposit_says_how_many_samples_it_was_made_from():
    """Of a round that asked some, and knows how many there are in all."""
    fleet, server = paper_fleet(), tracker()
    *_, outcome = sampled(fleet, server, ALL, ALL, ("ab", "ab"), ("acd", "cd"))
    (made,) = [d for d in outcome.decisions if d.what == "deposited"]
    assert "made from 102 samples in round 3" in made.why
    assert server.state.tracked[RARE].samples == 106


def test_a_class_is_lost_when_those_vanish_who_carried_it():
    """ "a" vanishes with a class that is not watched, and "b" has enough of it until it vanishes too."""
    fleet = Fleet({"a": {0: 9, RARE: 60}, "b": {0: 9, RARE: 40}, "c": {0: 9, 1: 9, RARE: 1}})
    server = tracker(most_watched=0)
    first, second, third = sampled(fleet, server, ("abc", "abc"), ("abc", "bc"), ("abc", "c"))
    assert "lost" not in whats(first) + whats(second)
    (lost,) = [d for d in third.decisions if d.what == "lost" and RARE in d.classes]
    assert (lost.vehicle, lost.classes) == ("a", (RARE,))
    assert lost.why == (
        "there is no deposit: others do not make up for it any more; 1 samples remain until the vehicle returns"
    )
    assert "lost" not in whats(*sampled(fleet, server, ("abc", "c")))


def test_a_class_that_is_carried_is_not_lost():
    """By what was reported last, 9 of 30 samples stay; by what is known of all vehicles, 9 of 39."""
    fleet, server = Fleet({"a": {0: 9, RARE: 30}, "b": {0: 9, 1: 9, RARE: 9}}), tracker(grace=0, gate=False)
    sampled(fleet, server, ("ab", "ab"), ("ab", "ab"))
    server.close({**fleet.answers(server.request(), "a"), "b": NOTHING_TO_READ})
    outcome = server.close(fleet.answers(server.request(), "b"))
    assert [d.what for d in outcome.decisions if RARE in d.classes] == ["departed", "carried"]
