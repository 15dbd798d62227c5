"""What a fleet's operator chooses."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from mpt.core import StatisticsError
from mpt.core import validation as check
from mpt.core.equations import DEFAULT_COV_RIDGE, DEFAULT_RIDGE
from mpt.methods import Asks, FleetMethod, Method, MethodError, OnFleet, file_of, find_on_fleet
from mpt.methods.method import Training
from mpt.tracking.errors import FleetError


@dataclass(frozen=True)
class Settings:
    """Of a `Tracker`; fixed for the life of a fleet.

    Attributes:
        num_classes: C.
        dim: d, the feature dimension; answers of another one are refused.
        method: "mpt"; "mpt-lite:one-message", in which no d x d matrix travels and the readout is Euclidean; "mpt-x",
            in which vehicles embed their samples under the departure-time model too; any other of `mpt methods` that
            reads nothing a server may not know; or `path.py:Class` of your own.
        grace: a vehicle is departed once it has missed more than so many rounds in a row.
        watch_share: a class is watched once one vehicle holds at least this share of its samples.
        release_share: it is released once no vehicle has held this share for `patience` rounds; None: 0.8 watch_share.
        patience: see there.
        carry_share: more than this share of the samples a class had at its deposit carry it by themselves: it is
            measured directly.
        most_watched: so many classes may be watched, the others serve as reference classes; None: half of them.
        remember: whether the remaining samples of a suspected vehicle count as they were when it answered last; in the
            method "mpt-x", and in others that ask questions of their own, they do not.
        most_references: of "mpt-x" and other methods that read departure-time models: so many are kept.
        watch: classes watched from the first round on, however they are spread.
        shadow: whether nothing in training changes: remaining samples are held out only of classes that were approved.
        seed: of methods that draw.
        ridge: lambda of Eq. (1), see `mpt.deposit`.
        cov_ridge: lambda_Sigma of Eq. (3).
        class_names: what the classes are called, for sentences; empty: by their numbers.
    """

    num_classes: int
    dim: int
    method: str = "mpt"
    grace: int = 3
    watch_share: float = 0.5
    release_share: float | None = None
    patience: int = 5
    carry_share: float = 0.25
    most_watched: int | None = None
    remember: bool = True
    most_references: int = 2
    watch: tuple[int, ...] = ()
    shadow: bool = False
    seed: int = 0
    ridge: float = DEFAULT_RIDGE
    cov_ridge: float = DEFAULT_COV_RIDGE
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        try:
            classes = check.as_int(self.num_classes, "num_classes", least=2)
            dim = check.as_int(self.dim, "dim", least=1)
            for name in ("remember", "shadow"):
                if not isinstance(getattr(self, name), bool):
                    raise StatisticsError(f"{name}: {getattr(self, name)!r}, should be True or False")
            watch_share = _share(self.watch_share, "watch_share")
            release = 0.8 * watch_share if self.release_share is None else self.release_share
            most = classes // 2 if self.most_watched is None else self.most_watched
            checked = {
                "num_classes": classes,
                "dim": dim,
                "grace": check.as_int(self.grace, "grace", least=0),
                "watch_share": watch_share,
                "release_share": _share(release, "release_share", most=watch_share),
                "patience": check.as_int(self.patience, "patience", least=1),
                "carry_share": _share(self.carry_share, "carry_share"),
                "most_watched": check.as_int(most, "most_watched", least=0, most=classes - 1),
                "most_references": check.as_int(self.most_references, "most_references", least=1),
                "watch": tuple(sorted(check.as_classes(self.watch, "watch", classes))),
                "seed": check.as_int(self.seed, "seed", least=0),
                "ridge": check.as_ridge(self.ridge, "ridge"),
                "cov_ridge": check.as_ridge(self.cov_ridge, "cov_ridge"),
                "class_names": _names(self.class_names, classes),
            }
            if len(self.watch) == classes:
                raise StatisticsError("watch: all classes, should leave at least one as reference class")
        except StatisticsError as error:
            raise FleetError(str(error)) from None
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if file_of(self.method) is None:
            self.check_method()

    def name_of(self, c: int) -> str:
        """What a class is called: its name, or its number."""
        return self.class_names[c] if self.class_names else str(c)

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
        found = self.on_fleet
        if self.shadow and found.training != "held-out":
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
        return file_of(self.method) is not None or self.asks.scatter

    @property
    def training(self) -> Training:
        """How vehicles train, once a class has departed."""
        return self.on_fleet.training

    @property
    def holds_out(self) -> bool:
        """Whether the remaining samples of departed classes are held out of training."""
        return self.training == "held-out"

    def carries(self, samples: int, before: int) -> bool:
        """Whether so many samples carry a class by themselves that had `before` at its deposit."""
        return samples > self.carry_share * before

    @property
    def remembers(self) -> bool:
        """`remember`, where the method can."""
        return self.remember and self.speaks is None and not self.asks.cross

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


def _share(value: object, name: str, most: float = 1.0) -> float:
    number = check.as_ridge(value, name)
    if not 0.05 <= number <= most:
        raise StatisticsError(f"{name}: {number}, should be a share from 0.05 to {most:g}")
    return number
