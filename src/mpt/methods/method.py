"""What a method is: how a departed class is kept alive, apart from training, data and readout.

A method runs on the server. It is told when the class departs, and asked in later rounds what the class looks like now.
Whatever it learns from vehicles it asks for, as bytes, so that its cost is what it sends and takes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from mpt.core import ClassStatistics, CrossStatistics, Deposit, NearestClassMean, Reconstruction, StatisticsError
from mpt.core.cross import StaticPart
from mpt.core.two_views import EarlierView, JoinedViews
from mpt.core.validation import Floats, Ints
from mpt.protocol.cross_request import CrossRequest
from mpt.protocol.parts import Answers, Asked, Part, part_of
from mpt.protocol.request import StatisticsRequest


class Readout(Protocol):
    """Anything that recognises classes by features."""

    def predict(self, features: Floats) -> Ints:
        """The class of each row of `features` (N, d)."""
        ...


@dataclass
class Cost:
    """What a method sent and took in one round.

    Attributes:
        bytes_up: from all vehicles to the server.
        bytes_down: from the server to all vehicles.
        messages: questions that the server sent, to all vehicles each.
        vehicle_seconds: on all vehicles together, without the forward pass that every method needs.
        server_seconds: on the server.
    """

    bytes_up: int = 0
    bytes_down: int = 0
    messages: int = 0
    vehicle_seconds: float = 0.0
    server_seconds: float = 0.0


@dataclass(frozen=True)
class RoundContext:
    """One round as the server sees it, after the vehicles have received its global model.

    Attributes:
        round: its number.
        departed: the class in question.
        num_classes: C.
        classifier: weight (C, d) and bias (C,) of the model's last layer; None where the server does not know them.
        report: asks all present vehicles for statistics and merges their answers; with `staying=True`, only those that
            do not leave after this round.
        summed: what `total` asks by: gives what a part makes on all present vehicles, added up.
        crossed: asks all present vehicles for cross moments and gives each one's as it arrives, given the static parts
            that the server has; None where nobody reports them this way.
        oracle: what no method may know, for the rows that are there to compare with: "test" is the test samples'
            mean feature of the departed class, "train" that of all its training samples, departed ones included.
        rng: for methods that draw.
        cost: what the method has sent and taken so far.
        notes: what `note` was given.
        held_out: the departed classes, where their remaining samples are held out of training; vehicles are told.
        watched: the classes that statistics leave out of the scatter, the departed one among them; empty: that alone.
        origin: (d,) or None, a vector near the features that statistics are summed about.
        doubted: whether somebody's update was cut by more than half: what was learned in this round is in doubt.
        reference: the round of the departure-time model, under which vehicles can embed their samples; None before it,
            and where the server of a fleet decides.
        witnesses: after `report`, how many vehicles have remaining samples, where a gate has bounded what each of them
            moves; None where there is no gate.
    """

    round: int
    departed: int
    num_classes: int
    classifier: tuple[Floats, Floats] | None
    report: Callable[..., ClassStatistics]
    summed: Callable[[Part, Asked], dict[str, Floats]]
    oracle: Callable[[Literal["test", "train"]], Floats]
    rng: np.random.Generator
    held_out: tuple[int, ...] = ()
    watched: tuple[int, ...] = ()
    origin: Floats | None = None
    crossed: Callable[[CrossRequest, Mapping[bytes, StaticPart]], Iterator[CrossStatistics]] | None = None
    cost: Cost = field(default_factory=Cost)
    notes: dict[str, float] = field(default_factory=dict)
    doubted: bool = False
    reference: int | None = None
    witnesses: Callable[[], int | None] = lambda: None

    @property
    def head(self) -> tuple[Floats, Floats]:
        """The classifier head: weight (C, d) and bias (C,)."""
        if self.classifier is None:
            raise StatisticsError("head: the server does not know the model's last layer, should be told")
        return self.classifier

    def total(self, part: Answers, /, **arrays: Floats) -> dict[str, Floats]:
        """What a part of the method gives on every present vehicle, added up, by name.

        Args:
            part: a function of the method that is declared with `@on_vehicle(...)`.
            arrays: what vehicles need to know; float32 on the wire.
        """
        sent = {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()}
        return self.summed(part_of(part), Asked(self.round, self.num_classes, self.departed, sent))

    def prototype(self) -> Floats:
        """(d,): the class's mean over the samples that are there, without a scatter; NaN where there are none."""
        mean: Floats = self.report(self.request(scatter=False)).means[self.departed]
        return mean

    def note(self, **numbers: float) -> None:
        """Numbers for the diagnostics: each becomes a column of `diagnostics.csv`."""
        for name, value in numbers.items():
            if name in ("seed", "round", "method", "class") or not isinstance(value, int | float | np.number):
                raise StatisticsError(f"note: {name} = {value!r}, should be a number under a name of its own")
        self.notes.update(numbers)

    def request(self, **options: Any) -> StatisticsRequest:
        """A request for this round's statistics that watches the departed class."""
        fixed: dict[str, Any] = {"watched": self.watched or (self.departed,), "held_out": self.held_out}
        if not options.get("unit"):
            fixed["origin"] = self.origin
        return StatisticsRequest(self.round, self.num_classes, **{**fixed, **options})


@dataclass(frozen=True)
class Traits:
    """What a method may say of itself, by attributes of these names; what it does not say is as here.

    Attributes:
        needs_departure: it cannot `track` before a departure; as long as the class is there its row shows the class's
            prototype as measured.
        slow: it takes long, and a plan may read it out less often.
        trains: it trains something of its own, which is a column of the paper's Table 1.
        needs_head: it reads the model's last layer, so that features alone are not enough for it.
        outward: it finds where the samples are of a class that nobody trains any more: its prototype is read out by
            `NearestClassMean.outwards`, Eq. (X10), but for the cosine readout; its distance to the truth is measured
            where it is.
        calibrated: the `expected_error` that it notes was measured to hold, so that reports of runs show it, and the
            verdict that follows from it (`docs/explanation/mpt-x.md`).
        version: of its numbers. Raise it when they change, and `mpt reproduce` computes the cells that have it again.
    """

    needs_departure: bool = False
    slow: bool = False
    trains: bool = False
    needs_head: bool = False
    outward: bool = False
    calibrated: bool = False
    version: int = 1

    @classmethod
    def of(cls, method: object) -> "Traits":
        """A method's; `StatisticsError` where one is not of its type."""
        said = {f.name: getattr(method, f.name) for f in fields(cls) if hasattr(method, f.name)}
        for name, value in said.items():
            if name == "version" and (type(value) is not int or value < 1):
                raise StatisticsError(f"version: {value!r}, should be an int of at least 1")
            if name != "version" and not isinstance(value, bool):
                raise StatisticsError(f"{name}: {value!r}, should be True or False")
        return cls(**said)


class Asks(NamedTuple):
    """What a method that runs on a fleet has vehicles report every round, besides counts and sums.

    Attributes:
        scatter: the d x d scatter.
        span: squares outside the span of last round's reference prototypes.
        cross: from a departure on, cross moments with the features under its model.
        earlier: from a departure on, what its parts make of features under its model.
        joint: beside `cross`, cross moments in which all classes count alike, for Eq. (D2).
    """

    scatter: bool = True
    span: bool = False
    cross: bool = False
    earlier: bool = False
    joint: bool = False

    @property
    def models(self) -> bool:
        """Whether departure-time models are kept."""
        return self.cross or self.earlier


class FleetMethod(Protocol):
    """A method that a server can run while vehicles come and go: all it needs are each round's merged statistics.

    When a class departs, when it is measured again and what is held out follow from presence and counts; none of it is
    the method's.
    """

    @property
    def name(self) -> str:
        """Of the setting."""
        ...

    @property
    def asks(self) -> Asks:
        """What vehicles report."""
        ...

    def deposit(
        self, before: ClassStatistics, departed: Sequence[int], staying: ClassStatistics
    ) -> tuple[Deposit, ...]:
        """Of classes that depart, from the last statistics with their vehicles, and those of who stays."""
        ...

    def reconstruct(
        self, stored: Deposit, stats: ClassStatistics, cross: CrossStatistics | None = None
    ) -> Reconstruction:
        """A departed class now; `cross` where the method asks for it and enough of it has come."""
        ...


@runtime_checkable
class JoiningMethod(FleetMethod, Protocol):
    """One that reads the current view and earlier ones together; it asks for joint moments."""

    @property
    def between(self) -> bool:
        """Whether two earlier views can be read together only with the moments between them."""
        ...

    def join(
        self,
        current: NearestClassMean,
        stats: ClassStatistics,
        earlier: Sequence[EarlierView],
        crosses: Sequence[CrossStatistics],
        between: Mapping[tuple[int, int], CrossStatistics],
        departed: Sequence[int],
        outward: Sequence[int],
    ) -> JoinedViews:
        """The readout, given what Eq. (D2) is made of: see `joint_covariance`.

        `outward` are those of the departed classes for Eq. (X10).
        """
        ...


class Method(Protocol):
    """How a departed class is kept alive. What else it may say of itself is in `Traits`."""

    @property
    def name(self) -> str:
        """Of the row in tables."""
        ...

    @property
    def training(self) -> str:
        """Which training's model it reads, by a name that `mpt trainings` lists or by the path of one's own."""
        ...

    def depart(self, context: RoundContext) -> Any:
        """In the last round with the departing vehicle: what the server keeps."""
        ...

    def track(self, state: Any, context: RoundContext) -> tuple[Any, Floats | Readout]:
        """In a later round: what the server keeps from now on, and either the class's prototype (d,) or a readout."""
        ...
