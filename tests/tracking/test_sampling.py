"""Rounds that ask some vehicles only, against a second account of who is there and what there is."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mpt.fleet import Tracker

from .fleets import Fleet

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


samples = st.sampled_from([0, 0, 1, 2, 4, 9, 30])


@st.composite
def stories(draw, returns=("off",)):
    num_classes, dim = draw(st.sampled_from([3, 4])), draw(st.sampled_from([3, 4]))
    held = st.lists(samples, min_size=num_classes, max_size=num_classes).filter(any)
    holdings = {v: draw(held) for v in VEHICLES[: draw(st.integers(2, 5))]}
    rounds = []
    for _ in range(draw(st.integers(1, 9))):
        asked = draw(st.none() | st.sets(st.sampled_from(sorted(holdings))))
        does = {v: draw(st.sampled_from(["answers"] * 5 + ["silent"] * 2 + ["wrong"])) for v in sorted(holdings)}
        leaving = draw(st.sets(st.sampled_from(sorted(holdings)), max_size=1))
        changed = {v: draw(held) for v in draw(st.sets(st.sampled_from(sorted(holdings)), max_size=1))}
        rounds.append((asked, does, leaving, changed if draw(st.booleans()) else {}))
    settings = {
        "grace": draw(st.integers(0, 2)),
        "patience": draw(st.integers(1, 4)),
        "probation": draw(st.sampled_from([0, 0, 3])),
        "most_watched": draw(st.sampled_from([None, 1, num_classes - 1])),
        "returns": draw(st.sampled_from(returns)),
    }
    return Story(holdings, rounds, num_classes, dim, settings["grace"], settings)


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
    server = Tracker(num_classes=story.num_classes, dim=story.dim, **story.settings)
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


@given(stories())
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


@given(stories(returns=("off", "pooled")))
def test_no_class_is_lost_without_a_deposit_or_a_word(story):
    assert silently_lost(story) is None


@given(stories(returns=("off", "pooled")))
def test_a_vehicle_that_returns_is_measured_in_the_round_that_it_is_asked_in(story):
    hung, back = {}, 0
    for server, outcome, account, fleet in played(story):
        for v in [v for v in hung if v in outcome.answered]:
            for c, most in hung.pop(v).items():
                if outcome.statistics.counts[c] <= CARRY * most or account.reports.get(v, account.before[v])[c] == 0:
                    continue
                rows = [(fleet.features(u, server.round)[0], fleet.samples[u][1]) for u in outcome.answered]
                mean = np.concatenate([x[y == c] for x, y in rows]).mean(axis=0)
                np.testing.assert_allclose(outcome.prototypes[c], mean, rtol=1e-4, atol=1e-4)
                assert c not in outcome.reconstructions
                back += 1
        totals = sum(account.before.values(), np.zeros(story.num_classes, dtype=int))
        for v in hung:
            hung[v] = {c: max(most, totals[c]) for c, most in hung[v].items()}
        for v in [v for v, m in server.roster.members.items() if m.state in ("suspected", "departed")]:
            if v in account.before and v not in hung:
                mine = account.before[v]
                hung[v] = {c: totals[c] for c in np.flatnonzero((mine > 0) & (mine >= SHARE * totals)).tolist()}


@given(stories(returns=("off", "pooled", "own")))
def test_a_state_is_the_same_as_bytes_and_goes_on_as_if_nothing_had_happened(story):
    for (server, one, *_), (resumed, other, *_) in zip(played(story), played(story, resume=True), strict=True):
        assert server.to_bytes() == resumed.to_bytes() == Tracker.from_bytes(server.to_bytes()).to_bytes()
        assert (one.decisions, one.problems, one.answered) == (other.decisions, other.problems, other.answered)
        assert (one.readout, dict(one.reconstructions)) == (other.readout, dict(other.reconstructions))
        np.testing.assert_array_equal(one.prototypes, other.prototypes)


@given(stories(returns=("off", "pooled", "own")), st.data())
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
        assert not [d for d in outcome.decisions if d.vehicle == quiet and d.what not in ("joined", "watched", "crowded")]
