"""Methods by name, or by the path of a user's own file."""

import difflib
import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast, get_args

from mpt.core import StatisticsError
from mpt.core.equations import DEFAULT_COV_RIDGE, DEFAULT_RIDGE
from mpt.methods import drift, simple
from mpt.methods.ccvr import Ccvr
from mpt.methods.icarl import Icarl
from mpt.methods.method import Asks, FleetMethod, Method, Training, Traits
from mpt.methods.mpt import Mpt, MptLite, OneMessage, parts
from mpt.methods.mpt_x import MptX
from mpt.protocol.parts import Part, parts_of

Make = Callable[[float, float], Method]


class MethodError(ValueError):
    """A method cannot be found or does not keep the protocol; the message says which and what would be right."""


def _plain(method: Method) -> Make:
    return lambda ridge, cov_ridge: method


def _part(index: int) -> Make:
    return lambda ridge, cov_ridge: parts(ridge, cov_ridge)[index]


METHODS: dict[str, tuple[Make, str]] = {
    "fedavg": (_plain(simple.Head()), "softmax head, remaining samples trained on"),
    "fedlc": (_plain(simple.Head("fedlc", "fedlc")), "softmax head trained with FedLC's calibrated logits"),
    "ccvr": (_plain(Ccvr()), "head retrained on virtual features of each class's Gaussian"),
    "icarl": (_plain(Icarl()), "cosine to the mean of unit features, remaining samples as exemplars"),
    "sdc": (_plain(drift.Sdc()), "prototype moved by the drift of the remaining samples"),
    "sdc:all": (_plain(drift.Sdc("sdc:all", budget="all")), "the same from all samples on vehicles"),
    "ldc": (_plain(drift.Ldc()), "prototype under a linear map fitted to the remaining samples"),
    "ldc:all": (_plain(drift.Ldc("ldc:all", budget="all")), "the same from all samples on vehicles"),
    "frozen": (_plain(simple.Frozen()), "prototype as it was at departure"),
    "remaining-mean": (_plain(simple.RemainingMean()), "plain mean of the remaining samples"),
    "mpt": (lambda ridge, cov_ridge: Mpt(ridge=ridge, cov_ridge=cov_ridge), "missing prototype tracking"),
    "mpt-lite": (lambda ridge, cov_ridge: MptLite(ridge=ridge), "MPT without a d x d matrix on the wire"),
    "mpt-lite:one-message": (
        lambda ridge, cov_ridge: OneMessage(ridge=ridge),
        "MPT-lite with one question a round, about the span of the last",
    ),
    "mpt-x": (
        lambda ridge, cov_ridge: MptX(ridge=ridge, cov_ridge=cov_ridge),
        "MPT by cross moments: samples embedded twice",
    ),
    "mpt-x:in-place": (
        lambda ridge, cov_ridge: MptX("mpt-x:in-place", ridge=ridge, cov_ridge=cov_ridge, outward=False),
        "MPT-X's prototype read out where it is, not further out",
    ),
    "mpt:outward": (
        lambda ridge, cov_ridge: Mpt("mpt:outward", ridge=ridge, cov_ridge=cov_ridge, outward=True),
        "MPT's prototype read out further out, as MPT-X's is",
    ),
    "mpt:in-span": (_part(0), "MPT's in-span part alone"),
    "mpt:stored-residual": (_part(1), "in-span part and the residual as stored at departure"),
    "mpt:predicted": (_part(2), "in-span part and predicted residual, alpha = 0"),
    "mpt:measured": (_part(3), "in-span part and measured residual, alpha = 1"),
    "mpt:trained": (
        lambda ridge, cov_ridge: Mpt("mpt:trained", "continued", ridge, cov_ridge),
        "MPT where the remaining samples are trained on as well",
    ),
    "oracle": (_plain(simple.oracle), "reference: mean of the test samples themselves"),
    "oracle-train": (_plain(simple.oracle_train), "reference: mean of all training samples, departed ones included"),
    "oracle-train:outward": (_plain(simple.oracle_train_outward), "reference: the same, read out as MPT-X's is"),
    "live": (_plain(simple.live), "reference: no departure"),
    "fedavg:live": (_plain(simple.Head("fedavg:live", "live")), "reference: softmax head without a departure"),
}
"""Name: how to make it from the two ridges, and what it is."""


FLEET_METHODS = ("mpt", "mpt-lite:one-message", "mpt-x", "mpt-x:in-place")
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
    def training(self) -> Training:
        """How vehicles train once a class has departed."""
        return "held-out" if self.speaks is None else self.speaks.training


def find_on_fleet(name: str, *, ridge: float = DEFAULT_RIDGE, cov_ridge: float = DEFAULT_COV_RIDGE) -> OnFleet:
    """The method of that name on a fleet, or `path.py:Class` of a user's own.

    Raises:
        MethodError: there is none, or it reads what the server of a fleet does not know.
    """
    if name in FLEET_METHODS:
        sums = cast(FleetMethod, METHODS[name][0](ridge, cov_ridge))
        return OnFleet(sums, None, sums.asks)
    method = find_method(name, ridge=ridge, cov_ridge=cov_ridge)
    if isinstance(method, simple.Reference) or method.training == "live":
        raise MethodError(f"method: {name!r} is there to compare with on one machine, it knows what no server knows")
    try:
        Traits.of(method)
    except StatisticsError as error:
        raise MethodError(f"method: {name}: {error}") from None
    earlier = any(part.earlier for part in parts_of(method).values())
    return OnFleet(Mpt(ridge=ridge, cov_ridge=cov_ridge), method, Asks(earlier=earlier))


def find_part(method: str, part: str, own: str = "") -> Part:
    """On a vehicle: a part of a method that is installed, or of the one that the vehicle's app was given.

    Args:
        method: its name, as the question has it; a path is looked at only where it is `own`.
        part: its name.
        own: the method that the vehicle's own configuration names.
    """
    if method not in METHODS and method != own:
        has = f", which has {own!r}" if own else ""
        raise MethodError(f"method: {method!r} is neither installed on this vehicle nor bundled with its app{has}")
    found = parts_of(find_method(method)).get(part)
    if found is None:
        raise MethodError(f"method: {method} has no part {part!r} on this vehicle; is it of another release?")
    return found


def find_method(name: str, *, ridge: float = DEFAULT_RIDGE, cov_ridge: float = DEFAULT_COV_RIDGE) -> Method:
    """The method of that name, or `path.py:Class` of a user's own."""
    if name in METHODS:
        return METHODS[name][0](ridge, cov_ridge)
    path = file_of(name)
    if path is not None:
        return _from_file(path, name.rpartition(":")[2])
    close = difflib.get_close_matches(name, METHODS, n=1)
    hint = (
        f"did you mean {close[0]}?" if close else f"should be one of {', '.join(METHODS)}, or path.py:Class of your own"
    )
    raise MethodError(f"method: {name!r} is none, {hint}")


def file_of(name: str) -> Path | None:
    """The file of a user's own method, None for those that come with the package."""
    path, colon, _ = name.rpartition(":")
    return _located(Path(path)) if name not in METHODS and colon and path.endswith(".py") else None


def _located(path: Path) -> Path:
    """A file from here, or beside what Python imports from: where the files are that are bundled with an app."""
    places = [Path(), *map(Path, sys.path)]
    return next((place / path for place in places if (place / path).is_file()), path)


def _module(path: Path) -> ModuleType:
    """The file as a module. It is known by its content, so that what a method keeps can be pickled and read again."""
    if not path.is_file():
        raise MethodError(f"method: there is no file {path}")
    name = f"mpt_method_{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise MethodError(f"method: {path} cannot be read as Python")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise MethodError(f"method: {path} does not import ({type(error).__name__}: {error})") from error
    return module


def _from_file(path: Path, attribute: str) -> Method:
    module = _module(path)
    made: Any = getattr(module, attribute, None)
    if made is None:
        raise MethodError(f"method: {path} has no {attribute}")
    try:
        method: Any = made() if inspect.isclass(made) else made
    except Exception as error:
        raise MethodError(f"method: {path}:{attribute} cannot be made ({type(error).__name__}: {error})") from error
    missing = [n for n in ("name", "training", "depart", "track") if not hasattr(method, n)]
    if missing:
        raise MethodError(f"method: {path}:{attribute} has no {', '.join(missing)}, which the protocol asks for")
    if method.training not in get_args(Training):
        allowed = ", ".join(get_args(Training))
        raise MethodError(
            f"method: {path}:{attribute} has the training {method.training!r}, should be one of {allowed}"
        )
    version = getattr(method, "version", Traits.version)
    if type(version) is not int or version < 1:
        raise MethodError(f"method: {path}:{attribute} has the version {version!r}, should be an int of at least 1")
    checked: Method = method
    return checked
