"""What recognises classes by prototypes, where a method gives one: nearest prototype under some distance.

A readout of one's own is a class, `mine.py:Shrunk(lam=0.5)`, with `fit`; one that is built in is a class here or in a
file of its own, and a line in `READOUTS`.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np

from mpt.base.extensions import Builtin, Extensions, called
from mpt.core import NearestClassMean
from mpt.core.validation import Floats
from mpt.methods import MethodError, Readout
from mpt.methods.icarl import Cosine


class ReadoutRule(Protocol):
    """How a readout is made of prototypes.

    What `fit` gives has `predict(features)`. With `with_prototypes` it is fitted once a round and serves all methods;
    with `outwards` it serves methods that are read out further out, Eq. (X10); with `to_linear` it can be exported.
    """

    @property
    def needs_covariance(self) -> bool:
        """Whether `fit` needs the shared covariance, which costs the scatter on the wire."""
        ...

    def fit(self, prototypes: Floats, covariance: Floats | None, cov_ridge: float) -> Readout:
        """A readout over prototypes (C, d), rows of NaN for classes without one.

        Args:
            prototypes: (C, d).
            covariance: (d, d), the shared within-class covariance; None where it is not asked for.
            cov_ridge: lambda_Sigma of Eq. (3).
        """
        ...


@dataclass(frozen=True)
class Mahalanobis:
    """Nearest prototype under S~^-1, the paper's."""

    needs_covariance: bool = True

    def fit(self, prototypes: Floats, covariance: Floats | None, cov_ridge: float) -> NearestClassMean:
        """Eq. (7)'s readout."""
        return NearestClassMean(prototypes, covariance, cov_ridge=cov_ridge)


@dataclass(frozen=True)
class Diagonal:
    """The same with the covariance's diagonal alone."""

    needs_covariance: bool = True

    def fit(self, prototypes: Floats, covariance: Floats | None, cov_ridge: float) -> NearestClassMean:
        """With each feature's variance."""
        assert covariance is not None
        return NearestClassMean(prototypes, np.diag(covariance.diagonal()), cov_ridge=cov_ridge)


@dataclass(frozen=True)
class Euclidean:
    """Nearest prototype."""

    needs_covariance: bool = False

    def fit(self, prototypes: Floats, covariance: Floats | None, cov_ridge: float) -> NearestClassMean:
        """Without a covariance."""
        return NearestClassMean(prototypes, None, cov_ridge=cov_ridge)


@dataclass(frozen=True)
class CosineRule:
    """Largest cosine."""

    needs_covariance: bool = False

    def fit(self, prototypes: Floats, covariance: Floats | None, cov_ridge: float) -> Cosine:
        """Between unit vectors."""
        return Cosine(prototypes)


OWN = "own"
"""What the readout is called of a method that gives one itself."""

READOUTS: Extensions[ReadoutRule] = Extensions(
    "readout",
    {
        "mahalanobis": Builtin(Mahalanobis, "nearest prototype under the shared covariance"),
        "diagonal": Builtin(Diagonal, "the same with its diagonal"),
        "euclidean": Builtin(Euclidean, "nearest prototype; no covariance travels"),
        "cosine": Builtin(CosineRule, "largest cosine; likewise"),
    },
    MethodError,
)


def find_readouts(texts: tuple[str, ...]) -> dict[str, ReadoutRule]:
    """The readouts that texts name, by what they are called in tables; the same objects as long as files are."""
    return _found(texts, tuple(map(READOUTS.known_by, texts)))


@cache
def _found(texts: tuple[str, ...], files: tuple[str, ...]) -> dict[str, ReadoutRule]:
    found: dict[str, ReadoutRule] = {}
    for text in texts:
        rule: Any = READOUTS.find(text)
        if not callable(getattr(rule, "fit", None)):
            raise MethodError(
                f"readout: {text} has no fit, should be a class with fit(prototypes, covariance, cov_ridge)"
            )
        spec = READOUTS.parse(text)
        name = spec.head if spec.head in READOUTS and not spec.arguments else called(rule, spec)
        if name in found or name == OWN:
            raise MethodError(f"readout: two are called {name!r}, should differ in their names")
        found[name] = rule
    return found


def needs_covariance(name: str, texts: tuple[str, ...]) -> bool:
    """Whether the readout that is called so needs the shared covariance; one that does not say does."""
    return bool(getattr(find_readouts(texts)[name], "needs_covariance", True))
