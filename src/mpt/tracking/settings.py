"""What a fleet's operator chooses."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from mpt.base.settings import check, setting
from mpt.core import StatisticsError, validation
from mpt.core.equations import DEFAULT_COV_RIDGE, DEFAULT_RIDGE
from mpt.methods import METHODS, Asks, FleetMethod, Method, MethodError, OnFleet, find_on_fleet, find_training
from mpt.tracking.errors import FleetError
from mpt.tracking.returns import Waiting

_SHARE = {"least": 0.05, "most": 1, "should": "a share from 0.05 to 1"}
_RIDGE = {"least": 0, "should": "finite and not negative"}


@dataclass(frozen=True)
class TrackerSettings:
    """Of a `Tracker`; fixed for the life of a fleet.

    Attributes:
        num_classes: C.
        dim: d, the feature dimension; answers of another one are refused.
        release_share: None: 0.8 watch_share.
        most_missed: None: 10 (grace + 1).
        most_watched: the others serve as reference classes; None: half of them.
        watch: classes watched from the first round on, however they are spread.
        class_names: what the classes are called, for sentences; empty: by their numbers.
    """

    num_classes: int
    dim: int
    method: str = setting(
        "mpt",
        '"mpt"; "mpt-lite:one-message", in which no d x d matrix travels and the readout is Euclidean; "mpt-x", in '
        'which vehicles embed their samples under the departure-time model too; "mpt-duo", whose readout reads both; '
        "any other of `mpt methods` that reads nothing a server may not know; or path.py:Class of your own",
    )
    grace: int = setting(3, "rounds that a vehicle may miss in a row before it is departed", least=0)
    returns: Literal["off", "pooled", "own"] = setting(
        "pooled",
        "from whose absences the chance of a return is known: nobody's, the fleet's, or a vehicle's own too",
        choices=("off", "pooled", "own"),
    )
    return_chance: float = setting(
        0.5, "beyond the grace a vehicle is departed once its return is no more likely than this", least=0, below=1
    )
    most_missed: int | None = setting(None, "after so many missed rounds in a row it is departed anyway", least=1)
    retention: int = setting(90, "rounds for which a vehicle's own absences are kept, with returns own", least=1)
    watch_share: float = setting(0.5, "a class is watched once one vehicle holds this share of it", **_SHARE)
    release_share: float | None = setting(
        None, "it is released once no vehicle has held this share for `patience` rounds", **_SHARE
    )
    patience: int = setting(5, "see release_share", least=1)
    carry_share: float = setting(
        0.25, "more than this share of the samples that a departed class had carry it by themselves", **_SHARE
    )
    most_watched: int | None = setting(None, "so many classes may be watched", least=0)
    most_per_vehicle: int | None = setting(
        None, "of these, so many for the sake of one vehicle; None: half of most_watched, rounded up", least=1
    )
    probation: int = setting(
        3, "rounds that a vehicle which joins a running fleet answers before a class is watched for its sake", least=0
    )
    remember: bool = setting(True, "whether remaining samples of suspected vehicles count as they were")
    most_references: int = setting(2, "of methods that read departure-time models, as mpt-x: so many are kept", least=1)
    gate: bool = setting(
        True, "whether what is unlikely in an answer is clipped, so that no vehicle moves any prototype far"
    )
    watch: tuple[int, ...] = ()
    shadow: bool = setting(
        False, "whether nothing changes in training: departed classes are held out of it once mpt fleet approve says so"
    )
    seed: int = setting(0, "of methods that draw", least=0)
    ridge: float = setting(DEFAULT_RIDGE, "lambda of Eq. (1), relative", **_RIDGE)
    cov_ridge: float = setting(DEFAULT_COV_RIDGE, "lambda_Sigma of Eq. (3)", **_RIDGE)
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        try:
            classes = validation.as_int(self.num_classes, "num_classes", least=2)
            checked = {
                "num_classes": classes,
                "dim": validation.as_int(self.dim, "dim", least=1),
                "watch": tuple(sorted(validation.as_classes(self.watch, "watch", classes))),
                "class_names": _names(self.class_names, classes),
            }
            if len(self.watch) == classes:
                raise StatisticsError("watch: all classes, should leave at least one as reference class")
        except StatisticsError as error:
            raise FleetError(str(error)) from None
        check(self, FleetError)
        checked["release_share"] = 0.8 * self.watch_share if self.release_share is None else self.release_share
        checked["most_missed"] = 10 * (self.grace + 1) if self.most_missed is None else self.most_missed
        checked["most_watched"] = classes // 2 if self.most_watched is None else self.most_watched
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if not 0 < self.release <= self.watch_share:
            raise FleetError(f"release_share: {self.release}, should be a share from 0.05 to {self.watch_share:g}")
        if self.waiting.most <= self.grace:
            raise FleetError(f"most_missed: {self.most_missed}, should be at least {self.grace + 1}, the grace and one")
        if self.capacity >= classes:
            raise FleetError(f"most_watched: {self.capacity}, should be at most {classes - 1}")
        if METHODS.file_of(self.method) is None:
            self.check_method()

    def name_of(self, c: int) -> str:
        """What a class is called: its name, or its number."""
        return self.class_names[c] if self.class_names else str(c)

    @property
    def waiting(self) -> Waiting:
        """How long a vehicle is waited for that has missed more than the grace."""
        assert self.most_missed is not None
        return Waiting(self.returns, self.return_chance, self.most_missed, self.retention)

    @property
    def release(self) -> float:
        """`release_share` as it was resolved."""
        assert self.release_share is not None
        return self.release_share

    @cached_property
    def on_fleet(self) -> OnFleet:
        """The method, as it is run here. A user's own is read from its file when it is needed, not before."""
        try:
            return find_on_fleet(self.method, ridge=self.ridge, cov_ridge=self.cov_ridge)
        except MethodError as error:
            raise FleetError(str(error)) from None

    def check_method(self) -> None:
        """Raise `FleetError` where the method cannot be had, or not with these settings."""
        if self.on_fleet is not None and self.shadow and not self.holds_out:
            raise FleetError(f"shadow: the method {self.method!r} holds nothing out of training, should be False")

    @property
    def how(self) -> FleetMethod:
        """What makes deposits and reconstructions of merged statistics: the method, or MPT where it cannot."""
        return self.on_fleet.sums

    @property
    def speaks(self) -> Method | None:
        """The method, where it asks questions of its own."""
        return self.on_fleet.speaks

    @property
    def asks(self) -> Asks:
        """What the method has vehicles report."""
        return self.on_fleet.asks

    @property
    def scatter(self) -> bool:
        """Whether vehicles report the scatter."""
        return METHODS.file_of(self.method) is not None or self.asks.scatter

    @property
    def training(self) -> str:
        """How vehicles train, once a class has departed."""
        return self.on_fleet.training

    @property
    def holds_out(self) -> bool:
        """Whether the remaining samples of departed classes are held out of training."""
        return find_training(self.training).holds_out

    def carries(self, samples: int, before: int) -> bool:
        """Whether so many samples carry a class by themselves that had `before` at its deposit."""
        return samples > self.carry_share * before

    @property
    def remembers(self) -> bool:
        """`remember`, where the method can."""
        return self.remember and self.speaks is None and not self.asks.cross

    @property
    def slots(self) -> int:
        """`most_per_vehicle` as it was resolved."""
        return (self.capacity + 1) // 2 if self.most_per_vehicle is None else self.most_per_vehicle

    @property
    def capacity(self) -> int:
        """`most_watched` as it was resolved."""
        assert self.most_watched is not None
        return self.most_watched


def _names(value: object, classes: int) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    wrong = [name for name in names if not isinstance(name, str) or not name]
    if wrong or (names and len(set(names)) != classes) or len(names) not in (0, classes):
        raise StatisticsError(f"class_names: {names!r}, should be {classes} different names, or none")
    return names
