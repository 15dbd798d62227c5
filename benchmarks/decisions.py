"""A tracker's decisions against the truth: who was taken for departed and came back, and who was missed?

    python benchmarks/decisions.py [--sessions ../shared/data/charging-sessions.csv] [--out decisions.csv]
    python benchmarks/decisions.py --large

Nothing is trained. Vehicles come and go as `mpt.scenario` has them, and answer with samples of 4 features that are
drawn once. Twelve classes are on all vehicles, and each of eight more has nine tenths of its samples on one vehicle.
The scenarios: 20 vehicles that arrive by a Poisson process for 200 rounds, of which six stop for good; and the 20
vehicles with most real charging sessions, a round a day from 2019 on. With `--large`, 3,000 vehicles of which 2% are
asked in a round, drawn from all: absent and departed ones too.

    back        departures without a goodbye whose vehicle came back later: false ones
    bye-back    departures with a goodbye whose vehicle came back later
    gone        vehicles that never came back by the truth
    missed      of these, those that are not departed in the end
    after       rounds until these were departed, median and most
    cut         vehicles that are away when the scenario ends, 60 rounds or less: nobody knows
    vain        rounds in which a class was held out of training whose vehicle came back later, over all classes
    lost        classes that were lost without a deposit because their vehicle vanished, each time that it was said

Where all say goodbye nobody is silent, and the grace plays no part: one is played.

A Poisson vehicle is gone where it was stopped, a real one where it was not seen for more than 60 rounds up to the end.
"""

import argparse
import csv
import sys
import time
from dataclasses import asdict, dataclass, field, fields
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mpt.fleet import Outcome, Tracker
from mpt.scenario import Presence, poisson, present_when, sessions, with_goodbyes

COMMON, RARE, DIM = 12, 8, 4
UNKNOWN = 60
"""A vehicle that was not seen for so many rounds up to the end of the real sessions is not called gone."""
SESSIONS = Path("../shared/data/charging-sessions.csv")


@dataclass(frozen=True, eq=False)
class Case:
    """Who is there, and who of them is gone for good.

    Attributes:
        name: of the scenario.
        presence: (R, V).
        gone: vehicles that never come back after the last round that they are there in, by number.
        asked: how many vehicles are asked in a round; None: all.
    """

    name: str
    presence: Presence
    gone: frozenset[int]
    asked: int | None = None

    @property
    def last(self) -> NDArray[np.int64]:
        """(V,): the last round that each vehicle is there in; 0 where it never is."""
        there = self.presence.there
        return np.where(there.any(axis=0), len(there) - there[::-1].argmax(axis=0), 0)


@dataclass
class Score:
    """One line of the table; see the top of this file."""

    scenario: str
    grace: int
    returns: str
    announced: float
    back: int = 0
    bye_back: int = 0
    gone: int = 0
    missed: int = 0
    after: list[int] = field(default_factory=list)
    cut: int = 0
    vain: int = 0
    lost: int = 0
    seconds_a_round: float = 0.0
    state_bytes: int = 0
    known: set[int] = field(default_factory=set, repr=False)


def stopping(presence: Presence, count: int, rng: np.random.Generator) -> tuple[Presence, frozenset[int]]:
    """The same, with so many vehicles that stop for good in the second or third quarter of the rounds."""
    there, rounds = presence.there.copy(), presence.rounds
    chosen = rng.choice(len(presence.vehicles), count, replace=False).tolist()
    for vehicle in chosen:
        there[int(rng.integers(rounds // 4, 3 * rounds // 4)) :, vehicle] = False
    return present_when(presence.vehicles, there), frozenset(chosen)


def from_poisson(vehicles: int, rounds: int, gone: int, stay: float, asked: int | None = None) -> Case:
    """Half of the vehicles are there on average; stays and absences are `stay` rounds long."""
    rng = np.random.default_rng([vehicles, rounds, 17])
    made = poisson(vehicles, rounds, rng, arrivals=vehicles / (2 * stay), stay=stay)
    name = "poisson" if asked is None else "large"
    return Case(name, *stopping(made, gone, rng), asked)


def from_sessions(path: Path) -> Case:
    """The real ones, on the whole file."""
    case = Case("sessions", sessions(path, hours=24, since="2019-01-01", vehicles=20, skip_empty=True), frozenset())
    gone = np.flatnonzero((case.presence.rounds - case.last > UNKNOWN) & (case.last > 0))
    return Case(case.name, case.presence, frozenset(gone.tolist()))


def drawn(vehicles: int, each: int) -> tuple[list[tuple[NDArray[np.float64], NDArray[np.int64]]], dict[int, int]]:
    """Features and labels of every vehicle, and the holder of every rare class."""
    rng = np.random.default_rng([vehicles, 18])
    centres = 3 * rng.standard_normal((COMMON + RARE, DIM))
    holders = {COMMON + k: k * vehicles // RARE for k in range(RARE)}
    few = {c: (int(v) + 1) % vehicles for c, v in holders.items()}
    samples = []
    for vehicle in range(vehicles):
        mine = [c for c in holders if holders[c] == vehicle] * 9 + [c for c in few if few[c] == vehicle]
        labels = np.array([*rng.permutation(COMMON)[:each].repeat(2), *mine], dtype=np.int64)
        samples.append((centres[labels] + rng.standard_normal((len(labels), DIM)), labels))
    return samples, holders


def play(case: Case, grace: int, returns: str, announced: float, each: int) -> Score:
    """All rounds of a case with one tracker."""
    presence = with_goodbyes(case.presence, announced, np.random.default_rng(19))
    samples, holders = drawn(len(presence.vehicles), each)
    rng = np.random.default_rng(20)
    number = {name: i for i, name in enumerate(presence.vehicles)}
    tracker = Tracker(num_classes=COMMON + RARE, dim=DIM, grace=grace, returns=returns)
    score, last, spent = Score(case.name, grace, returns, announced), case.last, 0.0
    for round in range(1, presence.rounds + 1):
        asked = None if case.asked is None else rng.choice(len(samples), case.asked, replace=False).tolist()
        answering = set(presence.answering(round)) & (set(range(len(samples))) if asked is None else set(asked))
        question = tracker.begin()
        answers = {presence.vehicles[v]: question.answer(*samples[v]) for v in sorted(answering)}
        start = time.perf_counter()
        for vehicle, answer in answers.items():
            tracker.receive(vehicle, answer)
        leaving = [presence.vehicles[v] for v in presence.leaving(round)]
        names = None if asked is None else [presence.vehicles[v] for v in asked]
        outcome = tracker.take(leaving, asked=names)
        spent += time.perf_counter() - start
        assert isinstance(outcome, Outcome)
        judge(score, outcome, number, last, case.gone)
        score.vain += sum(last[holders[c]] > round for c in tracker.held_out if c in holders)
    conclude(score, case, tracker)
    score.seconds_a_round = spent / presence.rounds
    return score


def judge(
    score: Score, outcome: Outcome, number: dict[str, int], last: NDArray[np.int64], gone: frozenset[int]
) -> None:
    """Add what was decided in a round."""
    for decision in outcome.decisions:
        if decision.what == "lost":
            score.lost += 1
        if decision.what == "joined":
            score.known.add(number[decision.vehicle])
        if decision.what != "departed":
            continue
        vehicle = number[decision.vehicle]
        if last[vehicle] > outcome.round:
            said = decision.why == "it said that it leaves"
            score.bye_back, score.back = score.bye_back + said, score.back + (not said)
        elif vehicle in gone:
            score.after.append(outcome.round - int(last[vehicle]))


def conclude(score: Score, case: Case, tracker: Tracker) -> None:
    """Add what is true in the end, of vehicles that the tracker ever knew; those it has forgotten had departed."""
    states = {v: tracker.roster.state(case.presence.vehicles[v]) for v in score.known}
    gone = case.gone & score.known
    score.gone, score.missed = len(gone), sum(states[v] not in (None, "departed") for v in gone)
    away = np.flatnonzero((case.last > 0) & (case.last < case.presence.rounds)).tolist()
    score.cut = len(score.known.intersection(away) - gone)
    score.state_bytes = len(tracker.to_bytes())


HEAD = f"{'scenario':9}{'grace':>6} {'returns':8}{'said':>5}{'back':>6}{'bye-back':>9}{'gone':>6}{'missed':>7}" + (
    f"{'after':>9}{'cut':>5}{'vain':>7}{'lost':>6}{'ms':>6}{'kB':>6}"
)


def line(score: Score) -> str:
    """Of the table."""
    after = f"{np.median(score.after):.0f}, {max(score.after)}" if score.after else "-"
    return (
        f"{score.scenario:9}{score.grace:6} {score.returns:8}{score.announced:5.0%}{score.back:6}{score.bye_back:9}"
        f"{score.gone:6}{score.missed:7}{after:>9}{score.cut:5}{score.vain:7}{score.lost:6}"
        f"{1000 * score.seconds_a_round:6.0f}{score.state_bytes / 1000:6.0f}"
    )


def write(path: Path, scores: list[Score]) -> None:
    """All as CSV; the rounds until each departure was noticed have spaces between them."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        names = [f.name for f in fields(Score) if f.name != "known"]
        table.writerow(names)
        for score in scores:
            row = {**asdict(score), "after": " ".join(map(str, score.after))}
            table.writerow([row[name] for name in names])


def cases(large: bool, path: Path) -> list[tuple[Case, int]]:
    """The scenarios, each with how many common classes a vehicle has."""
    if large:
        return [(from_poisson(3000, 600, 300, 120.0, asked=60), 2)]
    made = [(from_poisson(20, 200, 6, 8.0), COMMON)]
    if path.is_file():
        return [*made, (from_sessions(path), COMMON)]
    print(f"There is no file {path}: the real sessions are left out.", file=sys.stderr)
    return made


def main() -> None:
    """Play all cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=Path, default=SESSIONS, help="CSV of charging sessions")
    parser.add_argument("--large", action="store_true", help="3,000 vehicles, 2%% of them asked in a round")
    parser.add_argument("--returns", nargs="+", default=["off", "pooled"], choices=("off", "pooled", "own"))
    parser.add_argument("--grace", nargs="+", type=int, default=None, help="1 3 10; with --large 1 3")
    parser.add_argument("--out", type=Path, help="a CSV file for the table")
    options = parser.parse_args()
    graces = options.grace or ([1, 3] if options.large else [1, 3, 10])
    print(HEAD)
    scores = list[Score]()
    for case, each in cases(options.large, options.sessions):
        said = [(1.0, graces[len(graces) // 2], returns) for returns in options.returns]
        for announced, grace, returns in [*product((0.0,), graces, options.returns), *said]:
            scores.append(play(case, grace, returns, announced, each))
            print(line(scores[-1]), flush=True)
    if options.out:
        write(options.out, scores)


if __name__ == "__main__":
    main()
