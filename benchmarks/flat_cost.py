"""What one more vehicle, and one that left long ago, cost the server of a fleet: memory, seconds, bytes of its state.

    python benchmarks/flat_cost.py [--quick]

No network: features of a handful of vehicles are drawn, and their answers are received under as many ids as there are
vehicles. Ten classes; 8 is watched and 9 has departed, every vehicle has some samples of both. Bytes of a further
vehicle are (peak at N - peak at N/2) / (N/2): "python" is what Python and NumPy allocate from the first answer of a
round to its outcome, by tracemalloc, "checkpoint" the same to the end of `to_bytes`, and "process" the peak of the
resident memory to the end of `to_bytes`, of a process each. Seconds are one core's, without tracemalloc.

With the scatter at d = 1280 an answer is 3.3 MB and the check of one a Cholesky factorisation: that line takes most of
the time.
"""

import argparse
import os
import statistics
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from mpt.core import ClassStatistics
from mpt.federation.background import few_threads
from mpt.fleet import Outcome, Question, Tracker

C, WATCHED, DEPARTED = 10, 8, 9
DISTINCT = 5
"""Vehicles whose features are drawn; more vehicles send the same again."""
DOUBLED = 14
"""The vehicle that leaves has its samples of the departed class so many times twice, and those who were there with it
have the other classes so: else N others carried it."""
LIMIT_BYTES, LIMIT_STATE, LIMIT_TIMES = 1000, 5e6, 2.0
STAYING = 10
"""Vehicles that answer in every round while a million others come and go."""


@dataclass(frozen=True)
class Case:
    """One line."""

    method: str
    dim: int
    vehicles: int


@dataclass(frozen=True)
class Cost:
    """Of one round: peaks in bytes to the outcome and to the end of `to_bytes`, seconds, and bytes of the state."""

    outcome: int
    checkpoint: int
    seconds: float
    state: int


class World:
    """Features of a handful of vehicles, and what they answer."""

    def __init__(self, dim: int) -> None:
        rng = np.random.default_rng(0)
        centres = 2 * rng.standard_normal((C, dim)) / np.sqrt(dim)

        def drawn(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return centres[labels] + rng.standard_normal((len(labels), dim)) / np.sqrt(dim), labels

        usual = np.repeat(np.arange(C), [10] * WATCHED + [2, 1])
        self.vehicles = [drawn(usual) for _ in range(DISTINCT)]
        self.owner = drawn(np.full(64, DEPARTED))

    def answers(self, question: Question) -> list[bytes]:
        """Of the handful."""
        return [question.answer(*held) for held in self.vehicles]

    def first_answers(self, question: Question) -> list[bytes]:
        """Of the handful, while the one that leaves is there."""
        made = []
        for features, labels in self.vehicles:
            common = labels < WATCHED
            rest = question.statistics.read(question.answer(features[~common], labels[~common]))
            made.append(question.statistics.send(self._doubled(question, features[common], labels[common]) + rest))
        return made

    def last_answer(self, question: Question) -> bytes:
        """Of the vehicle that leaves."""
        return question.statistics.send(self._doubled(question, *self.owner))

    def _doubled(self, question: Question, features: np.ndarray, labels: np.ndarray) -> ClassStatistics:
        stats: ClassStatistics = question.statistics.read(question.answer(features, labels))
        for _ in range(DOUBLED):
            stats = stats + stats
        return stats


def departed(method: str, world: World) -> Tracker:
    """A fleet of a handful of vehicles that the holder of a class has left."""
    dim = world.owner[0].shape[1]
    tracker = Tracker(num_classes=C, dim=dim, method=method, watch=(WATCHED, DEPARTED))
    for number in (1, 2, 3):
        question = tracker.begin()
        for i, answer in enumerate(world.first_answers(question) if number < 3 else world.answers(question)):
            taken(tracker, f"first {i}", answer)
        if number < 3:
            taken(tracker, "owner", world.last_answer(question))
        ended(tracker, ["owner"] if number == 2 else [])
    assert tuple(tracker.state.tracked) == (DEPARTED,)
    return tracker


def taken(tracker: Tracker, vehicle: str, answer: bytes) -> None:
    """Have an answer received."""
    why = tracker.receive(vehicle, answer, round=tracker.round + 1)
    assert not why, why


def ended(tracker: Tracker, leaving: list[str]) -> Outcome:
    """Close the round."""
    outcome = tracker.take(leaving)
    assert isinstance(outcome, Outcome)
    return outcome


def one_round(case: Case, traced: bool) -> Cost:
    """A round with so many answers; the peaks are 0 where they are not traced."""
    with few_threads(0):
        world = World(case.dim)
        tracker = departed(case.method, world)
        answers = world.answers(tracker.begin())
        peaks = list[int]()
        if traced:
            tracemalloc.start()
        start = time.process_time()
        for i in range(case.vehicles):
            taken(tracker, f"vehicle {i}", answers[i % DISTINCT])
        outcome = ended(tracker, [])
        seconds = time.process_time() - start
        peaks.append(tracemalloc.get_traced_memory()[1])
        state = tracker.to_bytes()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert len(outcome.answered) == case.vehicles
    assert tracker.held_out == outcome.tracked == (DEPARTED,)
    return Cost(peaks[0], peaks[1], seconds, len(state))


def in_process(case: Case) -> tuple[Cost, int]:
    """The same, and the process's peak of resident memory in bytes; 0 where the system does not say."""
    cost, status = one_round(case, False), Path("/proc/self/status")
    said = (
        [row.split()[1] for row in status.read_text().splitlines() if row.startswith("VmHWM")]
        if status.exists()
        else []
    )
    return cost, 1024 * int(said[0]) if said else 0


def a_further_vehicle(case: Case) -> tuple[float, float]:
    """Bytes, by tracemalloc: to the outcome and to the end of `to_bytes`."""
    few, many = (one_round(replace(case, vehicles=n), True) for n in (case.vehicles // 2, case.vehicles))
    more = case.vehicles - case.vehicles // 2
    return (many.outcome - few.outcome) / more, (many.checkpoint - few.checkpoint) / more


def rounds_of(case: Case) -> None:
    """Print a line."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        python, checkpoint = pool.submit(a_further_vehicle, case).result()
        half, whole = replace(case, vehicles=case.vehicles // 2), case
        (_, few), (cost, many) = (pool.submit(in_process, one).result() for one in (half, whole))
    process = (many - few) / (whole.vehicles - half.vehicles)
    fits = "yes" if max(python, checkpoint) <= LIMIT_BYTES else "NO"
    print(
        f"{case.method:21s} {case.dim:5d} {case.vehicles:8,d} {python:8.0f} {checkpoint:10.0f} {process:9.0f} "
        f"{fits:>5s} {cost.seconds:8.1f} {1e3 * cost.seconds / case.vehicles:8.2f} {cost.state / 1e6:9.2f}",
        flush=True,
    )


def crowds(tracker: Tracker, world: World, rounds: int, vehicles: int) -> None:
    """Rounds in which vehicles join, answer once and leave, beside those that stay."""
    for number in range(rounds):
        guests = [f"guest {number} {i}" for i in range(vehicles)]
        small_round(tracker, world, guests)


def small_round(tracker: Tracker, world: World, guests: list[str]) -> float:
    """A round of those that stay, and of guests who leave; the processor's seconds that the server needed."""
    answers = world.answers(tracker.begin())
    start = time.process_time()
    tracker.begin()
    for i, vehicle in enumerate((*(f"staying {i}" for i in range(STAYING)), *guests)):
        taken(tracker, vehicle, answers[i % DISTINCT])
    ended(tracker, guests)
    return time.process_time() - start


def the_departed(
    method: str, dim: int, rounds: int, vehicles: int, repeats: int = 101
) -> tuple[float, float, int, int]:
    """Median seconds of a small round without and with those that left, in turn; the largest state; how many left."""
    with few_threads(0):
        world = World(dim)
        without, those = departed(method, world), departed(method, world)
        small_round(without, world, [])
        crowds(those, world, rounds, vehicles)
        state = len(those.to_bytes())
        pairs = [(small_round(without, world, []), small_round(those, world, [])) for _ in range(repeats)]
        state = max(state, len(those.to_bytes()))
    gone = those.roster.forgotten + len(those.roster.having("departed"))
    before, after = (statistics.median(one) for one in zip(*pairs, strict=True))
    return before, after, state, gone


def a_million(method: str, dim: int, rounds: int, vehicles: int) -> None:
    """Print a line."""
    start = time.process_time()
    before, after, state, gone = the_departed(method, dim, rounds, vehicles)
    fits = "yes" if after <= LIMIT_TIMES * before and state < LIMIT_STATE else "NO"
    print(
        f"{method:21s} {dim:5d} {gone:11,d} {1e3 * before:11.2f} {1e3 * after:11.2f} {after / before:7.2f} "
        f"{state / 1e6:9.2f} {fits:>5s} {time.process_time() - start:10.0f}",
        flush=True,
    )


def cases(quick: bool) -> Iterator[Case]:
    """The lines of the first table. 64 rows of every watched class are kept: 512 and 256 vehicles both have as many."""
    lite = "mpt-lite:one-message"
    yield Case("mpt", 128, 20_000 if quick else 100_000)
    yield Case(lite, 128, 20_000 if quick else 100_000)
    yield Case(lite, 1280, 1_024 if quick else 10_000)
    yield Case("mpt", 1280, 512 if quick else 10_000)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer vehicles")
    parser.add_argument("--only", choices=("round", "departed"), help="one of the tables")
    args = parser.parse_args()
    if args.only != "departed":
        print(f"One round with N answers; bytes of a further vehicle, at most {LIMIT_BYTES:,} are wanted.")
        print("At d = 1280 with the scatter an answer is 3.3 MB, and each is factorised.\n")
        print("                                         bytes of a further vehicle")
        print("method                    d        N   python checkpoint   process  fits  seconds  ms each  MB state")
        for case in cases(args.quick):
            rounds_of(case)
    if args.only != "round":
        rounds = 10 if args.quick else 1000
        print(f"\n{rounds:,} rounds with 1,000 vehicles each that answer once and leave; then rounds of ten answers.")
        print(f"At most {LIMIT_TIMES:g} times as long as without them, and {LIMIT_STATE / 1e6:g} MB, are wanted.\n")
        print("method                    d    departed  ms without     ms with   times  MB state  fits built in s")
        a_million("mpt-lite:one-message", 128, rounds, 1000)


if __name__ == "__main__":
    main()
