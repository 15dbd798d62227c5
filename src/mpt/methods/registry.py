"""Methods by name, or a user's own by where it is: `path.py:Class(lam=0.3)`."""

from functools import partial
from typing import Any, NamedTuple, cast

from mpt.base.extensions import Builtin, Extensions, called
from mpt.base.text import did_you_mean
from mpt.core import StatisticsError
from mpt.core.equations import DEFAULT_COV_RIDGE, DEFAULT_RIDGE
from mpt.methods import drift, simple
from mpt.methods.blend import MptBlend
from mpt.methods.ccvr import Ccvr
from mpt.methods.dpcr import Dpcr
from mpt.methods.icarl import Icarl
from mpt.methods.method import Asks, FleetMethod, Method, Traits
from mpt.methods.mpt import PARTS, Mpt, MptLite, OneMessage
from mpt.methods.mpt_duo import MptDuo
from mpt.methods.mpt_x import MptX
from mpt.methods.spaces import Range, space_of
from mpt.methods.trainings import MethodError, find_training
from mpt.protocol.parts import Part, parts_of

_RIDGES = ("ridge", "cov_ridge")
_NEEDED = ("name", "training", "depart", "track")

METHODS: Extensions[Method] = Extensions(
    "method",
    {
        "fedavg": Builtin(simple.SoftmaxHead, "softmax head, remaining samples trained on"),
        "fedlc": Builtin(
            partial(simple.SoftmaxHead, "fedlc", "fedlc"), "softmax head trained with FedLC's calibrated logits"
        ),
        "ccvr": Builtin(Ccvr, "head retrained on virtual features of each class's Gaussian"),
        "icarl": Builtin(Icarl, "cosine to the mean of unit features, remaining samples as exemplars"),
        "sdc": Builtin(drift.Sdc, "prototype moved by the drift of the remaining samples"),
        "sdc:all": Builtin(partial(drift.Sdc, "sdc:all", budget="all"), "the same from all samples on vehicles"),
        "ldc": Builtin(drift.Ldc, "prototype under a linear map fitted to the remaining samples"),
        "ldc:all": Builtin(partial(drift.Ldc, "ldc:all", budget="all"), "the same from all samples on vehicles"),
        "dpcr": Builtin(Dpcr, "ridge classifier from class Grams, the departed one's under a map"),
        "dpcr:ncm": Builtin(partial(Dpcr, "dpcr:ncm", classifier=False), "prototype under the map of dpcr"),
        "mean-shift": Builtin(simple.MeanShift, "prototype moved as the other classes' are on average"),
        "frozen": Builtin(simple.Frozen, "prototype as it was at departure"),
        "stop-at-departure": Builtin(
            partial(simple.Frozen, "stop-at-departure", "stopped"), "prototype and model as they were at departure"
        ),
        "remaining-mean": Builtin(simple.RemainingMean, "plain mean of the remaining samples"),
        "mpt": Builtin(Mpt, "missing prototype tracking", _RIDGES),
        "mpt-lite": Builtin(MptLite, "MPT without a d x d matrix on the wire", ("ridge",)),
        "mpt-lite:one-message": Builtin(
            OneMessage, "MPT-lite with one question a round, about the span of the last", ("ridge",)
        ),
        "mpt-x": Builtin(MptX, "MPT by cross moments: samples embedded twice", _RIDGES),
        "mpt-x:in-place": Builtin(
            partial(MptX, "mpt-x:in-place", outward=False),
            "MPT-X's prototype read out where it is, not further out",
            _RIDGES,
        ),
        "mpt-duo": Builtin(MptDuo, "MPT-X and the departure-time model, read out together", _RIDGES),
        "mpt:outward": Builtin(
            partial(Mpt, "mpt:outward", outward=True), "MPT's prototype read out further out, as MPT-X's is", _RIDGES
        ),
        "mpt:blend": Builtin(
            MptBlend, "MPT without jumps: frozen, whole residual and samples, each by its reliability", _RIDGES
        ),
        **{name: Builtin(partial(Mpt, name, part=part), about, _RIDGES) for name, (part, about) in PARTS.items()},
        "mpt:trained": Builtin(
            partial(Mpt, "mpt:trained", "continued"), "MPT where the remaining samples are trained on as well", _RIDGES
        ),
        "oracle": Builtin(
            partial(simple.Oracle, "oracle", "held-out", "test"), "reference: mean of the test samples themselves"
        ),
        "oracle-train": Builtin(
            partial(simple.Oracle, "oracle-train", "held-out", "train"),
            "reference: mean of all training samples, departed ones included",
        ),
        "oracle-train:outward": Builtin(
            partial(simple.Oracle, "oracle-train:outward", "held-out", "train", outward=True),
            "reference: the same, read out as MPT-X's is",
        ),
        "oracle-train:duo": Builtin(
            partial(MptDuo, "oracle-train:duo", knows="train"),
            "reference: oracle-train, read out as mpt-duo is",
            _RIDGES,
        ),
        "live:duo": Builtin(
            partial(MptDuo, "live:duo", "live", knows="train"),
            "reference: no departure, read out as mpt-duo is",
            _RIDGES,
        ),
        "live": Builtin(partial(simple.Oracle, "live", "live", "train"), "reference: no departure"),
        "fedavg:live": Builtin(
            partial(simple.SoftmaxHead, "fedavg:live", "live"), "reference: softmax head without a departure"
        ),
    },
    MethodError,
)

FLEET_METHODS = ("mpt", "mpt-lite:one-message", "mpt-x", "mpt-x:in-place", "mpt-duo", "mpt:blend")
"""Those that need no more on a fleet than each round's merged statistics: one question a round."""


class OnFleet(NamedTuple):
    """A method as a fleet runs it.

    Attributes:
        sums: makes deposits and reconstructions of merged statistics; MPT where the method itself does not.
        speaks: the method, where it asks what it likes, in one question or several; None where `sums` is the method.
        asks: what vehicles report every round.
    """

    sums: FleetMethod
    speaks: Method | None
    asks: Asks

    @property
    def training(self) -> str:
        """How vehicles train once a class has departed."""
        return "held-out" if self.speaks is None else self.speaks.training


def find_on_fleet(name: str, *, ridge: float = DEFAULT_RIDGE, cov_ridge: float = DEFAULT_COV_RIDGE) -> OnFleet:
    """The method of that name on a fleet, or `path.py:Class` of a user's own.

    Raises:
        MethodError: there is none, or it reads what the server of a fleet does not know.
    """
    if name in FLEET_METHODS:
        sums = cast(FleetMethod, METHODS.find(name, ridge=ridge, cov_ridge=cov_ridge))
        return OnFleet(sums, None, sums.asks)
    spec = METHODS.parse(name)
    if spec.head not in METHODS and not METHODS.is_own(spec):
        known = f"should be one of {', '.join(on_fleets())}, or {METHODS.own} of your own"
        raise MethodError(f"method: {name!r} is none, {did_you_mean(spec.head, on_fleets(), known)}")
    method = find_method(name, ridge=ridge, cov_ridge=cov_ridge)
    if isinstance(method, simple.Oracle) or not find_training(method.training).departs:
        raise MethodError(f"method: {name!r} is there to compare with on one machine, it knows what no server knows")
    if isinstance(method, MptDuo):
        if (method.knows, method.training) != ("mpt-x", MptDuo.training):
            raise MethodError(f"method: {name!r} knows what no server knows, or trains in another way than mpt-duo")
        return OnFleet(method, None, method.asks)
    if find_training(method.training).stops:
        raise MethodError(
            f"method: {name!r} reads the training {method.training!r}, which stops at the departure; a fleet trains "
            "on, should be a training that does"
        )
    try:
        Traits.of(method)
    except StatisticsError as error:
        raise MethodError(f"method: {name}: {error}") from None
    earlier = any(part.earlier for part in parts_of(method).values())
    return OnFleet(Mpt(ridge=ridge, cov_ridge=cov_ridge), method, Asks(earlier=earlier))


def on_fleets() -> list[str]:
    """The names of built-in methods that a fleet takes: those that know no more than a server, and train on."""
    made = {name: find_method(name) for name in METHODS}
    trainings = {name: find_training(method.training) for name, method in made.items()}
    beyond = {n for n, one in made.items() if isinstance(one, simple.Oracle) or getattr(one, "knows", "") == "train"}
    return [n for n, t in trainings.items() if n not in beyond and t.departs and not t.stops]


def find_part(method: str, part: str, own: str = "") -> Part:
    """On a vehicle: a part of a method that is installed, or of the one that the vehicle's app was given.

    Args:
        method: its name, as the question has it; a path, in its arguments too, is looked at only where it is `own`.
        part: its name.
        own: the method that the vehicle's own configuration names.
    """
    spec = METHODS.parse(method)
    if method != own and (spec.head not in METHODS.builtin or ":" in spec.arguments):
        has = f", which has {own!r}" if own else ""
        raise MethodError(f"method: {method!r} is neither installed on this vehicle nor bundled with its app{has}")
    found = parts_of(find_method(method)).get(part)
    if found is None:
        raise MethodError(f"method: {method} has no part {part!r} on this vehicle; is it of another release?")
    return found


def find_method(name: str, *, ridge: float = DEFAULT_RIDGE, cov_ridge: float = DEFAULT_COV_RIDGE) -> Method:
    """The method of that name, or `path.py:Class` of a user's own; one with arguments is called by them too."""
    spec = METHODS.parse(name)
    method: Any = METHODS.find(name, ridge=ridge, cov_ridge=cov_ridge)
    missing = [n for n in _NEEDED if not hasattr(method, n)]
    if missing:
        raise MethodError(f"method: {spec.head} has no {', '.join(missing)}, which the protocol asks for")
    find_training(method.training)
    version = getattr(method, "version", Traits.version)
    if type(version) is not int or version < 1:
        raise MethodError(f"method: {spec.head} has the version {version!r}, should be an int of at least 1")
    label = called(method, spec)
    if label != method.name:
        object.__setattr__(method, "name", label)
    found: Method = method
    return found


def calibrated(name: str) -> bool:
    """Whether what a row's method expects of itself was measured to hold; of a user's own nobody knows it."""
    head = name.partition("(")[0]
    return head in METHODS and Traits.of(find_method(head)).calibrated


def find_space(name: str) -> dict[str, Range]:
    """What of a method is left to tune: its `space` without the arguments that its name or the registry has fixed.

    A row to compare with, which knows the departed samples, has nothing to tune.
    """
    spec, method = METHODS.parse(name), find_method(name)
    space = {} if getattr(method, "knows", None) == "train" else space_of(method)
    if space and spec.positional:
        raise MethodError(f"method: {name!r}, arguments should have names, so that it is known what is left to tune")
    make = METHODS.builtin[spec.head].make if spec.head in METHODS else None
    fixed = {*spec.named, *(make.keywords if isinstance(make, partial) else ())}
    return {argument: one for argument, one in space.items() if argument not in fixed}


def find_methods(names: tuple[str, ...], *, ridge: float, cov_ridge: float) -> dict[str, Method]:
    """Several methods, by what is written; no two may be called the same."""
    found = {name: find_method(name, ridge=ridge, cov_ridge=cov_ridge) for name in names}
    labels = [method.name for method in found.values()]
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise MethodError(f"methods: two are called {twice!r}, should differ in their names")
    return found
