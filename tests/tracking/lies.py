"""Fleets with a vehicle that lies: its samples are those of a `Fleet`, what it answers is something else."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mpt.core.wire import Writer
from tests.tracking.fleets import RARE, C, Fleet

OTHER = (RARE + 1) % C
EVEN = dict.fromkeys((c for c in range(C) if c != RARE), 20)
ALL = "abcdefgh"
STAYING = ALL[1:]


class World(Fleet):
    """Prototypes lie in a plane, so that one is known by the others, and every sample moves a little by itself."""

    def __post_init__(self):
        super().__post_init__()
        rng = np.random.default_rng([self.seed, 1])
        plane, _ = np.linalg.qr(rng.standard_normal((self.dim, 2)))
        self.centres = 6 * rng.standard_normal((self.num_classes, 2)) @ plane.T
        self.turn *= 0.3
        for vehicle, held in self.holdings.items():
            self.add(vehicle, held)

    def features(self, vehicle, round):
        rows, labels = super().features(vehicle, round)
        rng = np.random.default_rng([self.seed, round, *vehicle.encode()])
        return rows + 0.3 * rng.standard_normal(rows.shape), labels


def fleet_of(made=Fleet, remaining=STAYING, few=3, holder=100, **options):
    """Eight vehicles: "a" holds most of the rare class, some have a few of its samples, all else is split evenly."""
    holdings = {v: {**EVEN, **({RARE: few} if v in remaining else {})} for v in STAYING}
    return made({"a": {**EVEN, RARE: holder}, **holdings}, **options)


def play(fleet, server, *rounds):
    """Outcomes of rounds, each (who is there, lies by vehicle, who says goodbye)."""
    return [server.close(answers(fleet, server.question(), there, lies), [*leaving]) for there, lies, leaving in rounds]


def rounds(number, there, lies=None, leaving=""):
    """So many like this one."""
    return [(there, lies or {}, leaving)] * number


def truth(fleet, c, round, vehicles=ALL):
    """(d,): the mean of a class over all samples that were ever there, under a round's model."""
    some = [fleet.features(v, round) for v in vehicles]
    return np.concatenate([rows[labels == c] for rows, labels in some]).mean(axis=0)


def apart(outcomes, others):
    """(rounds, C): how far the prototypes of two fleets are from each other."""
    pairs = zip(outcomes, others, strict=True)
    return np.array([np.linalg.norm(one.prototypes - other.prototypes, axis=1) for one, other in pairs])


def decided(outcomes, what):
    """The decisions of that kind, of several rounds."""
    return [d for outcome in outcomes for d in outcome.decisions if d.what == what]


@dataclass(frozen=True)
class Lie:
    """What is changed: features and labels before anything is made of them, or the sums themselves."""

    features: Callable | None = None
    report: Callable | None = None
    cross: Callable | None = None


def answer(fleet, question, vehicle, lie=None):
    """A vehicle's answer, with cross moments where they are asked for."""
    lie = lie or Lie()
    rows, labels = fleet.features(vehicle, question.round)
    if lie.features is not None:
        rows, labels = lie.features(rows.copy(), labels.copy())
    made = question.statistics.statistics(rows, labels)
    made = made if lie.report is None else lie.report(made)
    moments = {}
    for c, request in sorted(question.cross.items()):
        mine = request.moments(fleet.features(vehicle, request.reference)[0], rows, labels)
        moments[c] = mine if lie.cross is None else lie.cross(mine)
    return packed(made, moments)


def packed(statistics, moments):
    """An answer's bytes; the sums are sent as they are, in float64."""
    told = statistics.to_bytes("float64", frame=False)
    if not moments:
        return told
    writer = Writer(b"B", 0, "float64")
    writer.numbers("I", len(moments))
    writer.block(told)
    for c, mine in sorted(moments.items()):
        writer.numbers("I", c)
        writer.block(mine.to_bytes("float64", frame=False))
    return writer.finish()


def answers(fleet, question, there, lies):
    """Of all that are there; `lies` by vehicle."""
    return {v: answer(fleet, question, v, lies.get(v)) for v in there}


def moved(rows, labels, by, classes=None):
    """Samples of some classes, or of all, that lie off."""
    rows[np.ones(len(labels), dtype=bool) if classes is None else np.isin(labels, classes)] += by
    return rows, labels


def scaled(report, by, names):
    """Some sums, times a number."""
    return replace(report, **{name: by * getattr(report, name) for name in names if getattr(report, name) is not None})


def shifted(by, classes=(RARE,)):
    """Its samples of some classes lie off, in every dimension."""
    return Lie(features=lambda rows, labels: moved(rows, labels, by, classes))


def stretched(by=100.0):
    """All its features are longer."""
    return Lie(features=lambda rows, labels: (by * rows, labels))


def outlier(at=1e17):
    """One sample of its first class."""

    def put(rows, labels):
        rows[0] = at
        return rows, labels

    return Lie(features=put)


def rank_one(size=1e6):
    """A scatter with one direction of that variance, and squares that fit it."""

    def add(report):
        classes = report.reference_classes
        direction = np.random.default_rng(7).standard_normal(report.dim)
        added = size * int(report.counts[classes].sum()) * np.outer(direction, direction) / (direction @ direction)
        squares = report.squares.copy()
        squares[classes[0]] += np.trace(added)
        return replace(report, squares=squares, scatter=report.scatter + added)

    return Lie(report=add)


def many(by, shift=0.0):
    """All its samples count many times."""
    return Lie(
        features=lambda rows, labels: moved(rows, labels, shift),
        report=lambda report: scaled(report, by, ("counts", "sums", "squares", "scatter")),
        cross=lambda moments: scaled(moments, by, ("counts", "earlier", "sums", "gram", "cross")),
    )


def swapped():
    """Two classes are taken for each other."""

    def swap(rows, labels):
        return rows, np.where(labels == RARE, OTHER, np.where(labels == OTHER, RARE, labels))

    return Lie(features=swap)


def no_map(by=1.0):
    """Right sums, and cross moments about the class means of no map."""

    def noise(moments):
        _, about = moments.within
        drawn = np.random.default_rng(7).standard_normal(about.shape)
        drawn *= by * np.linalg.norm(about) / np.linalg.norm(drawn)
        return replace(moments, cross=moments.cross - about + drawn)

    return Lie(cross=noise)


def all_rare():
    """It says that all its samples are of the rare class."""
    return Lie(features=lambda rows, labels: (rows, np.full_like(labels, RARE)))
