"""The readout as a scikit-learn classifier: fitted, fed in batches, or made of sums that vehicles have sent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(f"mpt.sklearn needs scikit-learn 1.6 or newer: {error}") from error

from mpt.base.errors import ConfigError
from mpt.core import ClassStatistics, NearestClassMean, StatisticsError
from mpt.core.equations import DEFAULT_COV_RIDGE
from mpt.core.validation import Floats, Ints, as_floats

METRICS = ("mahalanobis", "euclidean")
_WORDS, _NUMBERS, _TRUTHS = "words", "numbers", "truth values"


class PrototypeClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Says of a sample the class whose prototype, its mean, is nearest.

    It keeps sums over classes and no sample, so that batches add up and sums that others have made do as well. Only
    how near prototypes are counts, not how many samples a class has.

    Args:
        metric: "mahalanobis", under the covariance that all classes share, or "euclidean".
        cov_ridge: lambda_Sigma of Eq. (3), how much of its mean variance is added to every direction of it.
        reject: a distance beyond which no class is said; None: one always is.
        rejected: what is said then, of the labels' kind and none of them; None: -1, or "" where labels are words. Truth
            values leave none.

    Attributes:
        classes_: (C,), the labels, sorted.
        statistics_: the sums, by the place of a label in `classes_`.
        prototypes_: (C, d), the classes' means, or what `from_statistics` was given; NaN of a class without samples.
        n_features_in_: d.

    Example:
        >>> samples = [[0.0, 0.1], [0.2, 0.0], [1.0, 1.1], [1.2, 1.0]]
        >>> ours = PrototypeClassifier().fit(samples, ["car", "car", "bus", "bus"])
        >>> ours.predict([[0.1, 0.2], [1.0, 0.9]])
        array(['car', 'bus'], dtype='<U3')
    """

    classes_: NDArray[Any]
    statistics_: ClassStatistics
    prototypes_: Floats

    def __init__(
        self,
        *,
        metric: str = "mahalanobis",
        cov_ridge: float = DEFAULT_COV_RIDGE,
        reject: float | None = None,
        rejected: Any = None,
    ) -> None:
        self.metric = metric
        self.cov_ridge = cov_ridge
        self.reject = reject
        self.rejected = rejected

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """From samples X (N, d) and their labels y (N,); what was known before is forgotten."""
        with self._unless_refused():
            if hasattr(self, "statistics_"):
                del self.statistics_
            return self._added(X, y, None)

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Add samples to those that it knows. Labels may be new; `classes` names some that are yet to come."""
        with self._unless_refused():
            return self._added(X, y, classes)

    @contextmanager
    def _unless_refused(self) -> Iterator[None]:
        """What is refused inside changes nothing."""
        before = self.__dict__.copy()
        try:
            yield
        except Exception:
            self.__dict__ = before
            raise

    def _added(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None) -> Self:
        self._check()
        first = not hasattr(self, "statistics_")
        _check_list(y, "y")
        y = _plain(y)
        rows, labels = validate_data(self, X, y, dtype=np.float64, reset=first)
        _kind(labels, "y")
        check_classification_targets(labels)
        parts = {} if first else {"classes_": self.classes_}
        known = _united({**parts, **({} if classes is None else {"classes": _as_labels(classes)}), "y": labels})
        self._sayable(known)
        before = None if first else _placed(self.statistics_, np.searchsorted(known, self.classes_), len(known))
        made = ClassStatistics.from_features(
            rows,
            np.searchsorted(known, labels),
            len(known),
            watched=() if before is None else before.watched,
            origin=rows.mean(axis=0) if before is None else before.origin,
            scatter=self.metric == "mahalanobis" if before is None else before.scatter is not None,
        )
        if first:
            self.carried_: dict[Any, Floats] = {}
        self.classes_, self.statistics_ = known, made if before is None else before + made
        return self._read()

    @classmethod
    def from_statistics(
        cls,
        statistics: ClassStatistics | Iterable[ClassStatistics],
        classes: ArrayLike | None = None,
        *,
        carried: Mapping[Any, ArrayLike] | None = None,
        **parameters: Any,
    ) -> Self:
        """A fitted classifier from sums that vehicles have made.

        Args:
            statistics: theirs, added up or one by one.
            classes: (C,), the labels of its classes, in the order of their numbers there; None: 0 to C - 1.
            carried: by label, prototypes (d,) that stand in for the means of classes whose samples are gone, as
                `mpt.reconstruct(...).prototype` gives them.
            parameters: of the classifier.

        Raises:
            StatisticsError: where they do not fit together.
        """
        made = cls(**parameters)
        made._check()
        whole = statistics if isinstance(statistics, ClassStatistics) else ClassStatistics.merge(_several(statistics))
        labels = np.arange(len(whole.counts)) if classes is None else _as_labels(classes)
        known, places = np.unique(labels, return_inverse=True)
        if labels.shape != whole.counts.shape or len(known) < len(labels):
            raise StatisticsError(f"classes: {labels.tolist()!r}, should be {len(whole.counts)} different labels")
        made._sayable(known)
        made.classes_, made.n_features_in_ = known, whole.dim
        made.statistics_ = _placed(whole, places, len(known))
        made.carried_ = _as_carried({} if carried is None else carried, known, whole.dim)
        return made._read()

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """(N,): the label of the nearest prototype, or `rejected` where it is too far."""
        distances = self.distances(X)
        nearest = np.argmin(distances, axis=1)
        if self.reject is None:
            return np.asarray(self.classes_[nearest])
        self._check()
        too_far = distances.min(axis=1) > self.reject
        return np.asarray(self._sayable(self.classes_)[np.where(too_far, len(self.classes_), nearest)])

    def predict_proba(self, X: ArrayLike) -> Floats:
        """(N, C): how likely each class is, if they are normal with a common covariance and equally frequent."""
        odds = self._odds(X)
        odds = np.exp(odds - odds.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    def decision_function(self, X: ArrayLike) -> Floats:
        """(N, C): half of the squared distance, negative; (N,) of two classes: by how much the second is ahead."""
        odds = self._odds(X)
        return odds[:, 1] - odds[:, 0] if len(self.classes_) == 2 else odds

    def distances(self, X: ArrayLike) -> Floats:
        """(N, C): the distance to each prototype; infinite to a class that has none."""
        check_is_fitted(self)
        return self._readout.distances(validate_data(self, X, dtype=np.float64, reset=False))

    def _odds(self, X: ArrayLike) -> Floats:
        return -0.5 * self.distances(X) ** 2

    def _read(self) -> Self:
        """Prototypes and the readout, from the sums."""
        stats = self.statistics_
        self.prototypes_ = stats.means
        for label, row in self.carried_.items():
            self.prototypes_[np.searchsorted(self.classes_, label)] = row
        few = int(stats.counts[stats.reference_classes].sum()) <= len(stats.reference_classes)
        if self.metric == "mahalanobis" and stats.scatter is None:
            raise StatisticsError('statistics: no scatter, should have one, or metric "euclidean"')
        covariance = None if self.metric == "euclidean" or few else stats.covariance()
        self._readout = NearestClassMean(self.prototypes_, covariance, cov_ridge=self.cov_ridge)
        return self

    def _sayable(self, classes: NDArray[Any]) -> NDArray[Any]:
        """(C + 1,): the labels and, where samples may be rejected, what is said then, in a type that holds them all."""
        return classes if self.reject is None else _with(classes, self.rejected)

    def _check(self) -> None:
        if self.metric not in METRICS:
            raise ConfigError(f"metric: {self.metric!r}, should be one of {', '.join(METRICS)}")
        number = isinstance(self.reject, Real) and not isinstance(self.reject, bool)
        if self.reject is not None and not (number and self.reject > 0):
            raise ConfigError(f"reject: {self.reject!r}, should be a distance above 0, or None")


def _kind(labels: NDArray[Any], name: str) -> str:
    """What labels are, all of them: words, numbers or truth values."""
    kind = labels.dtype.kind
    others = [label for label in labels.flat if not isinstance(label, str)] if kind == "O" else []
    if others or kind not in "UOiufb":
        what = f"objects of type {type(others[0]).__name__}" if others else f"dtype {labels.dtype}"
        raise StatisticsError(f"Unknown label type: {name} has {what}, should be all words, numbers or truth values")
    if kind == "f" and not np.isfinite(labels).all():
        raise StatisticsError(f"{name}: has labels that are NaN or infinite, should be finite")
    return _WORDS if kind in "UO" else _TRUTHS if kind == "b" else _NUMBERS


def _kind_of(value: object) -> str:
    """The kind of one label; empty where it is none."""
    if isinstance(value, str):
        return _WORDS
    if isinstance(value, bool | np.bool_):
        return _TRUTHS
    return _NUMBERS if isinstance(value, Real) else ""


def _check_list(values: object, name: str) -> None:
    """Refuse a list in which labels are of several kinds, of which NumPy would make words or numbers."""
    kinds = {_kind_of(value) for value in values} - {""} if isinstance(values, list | tuple) else set()
    if len(kinds) > 1:
        raise StatisticsError(f"{name}: labels are {' and '.join(sorted(kinds))}, should be all of one kind")


def _plain(values: ArrayLike) -> ArrayLike:
    """A column of pandas' own truth values or integers, which scikit-learn would make real numbers, as NumPy's."""
    kind = getattr(getattr(values, "dtype", None), "kind", "")
    if isinstance(values, np.ndarray) or kind not in ("b", "i", "u") or not hasattr(values, "to_numpy"):
        return values
    try:
        return np.asarray(values.to_numpy(dtype={"b": bool, "i": np.int64, "u": np.uint64}[kind]))
    except ValueError:
        raise StatisticsError("y: some labels are missing, every sample should have one") from None


def _as_labels(classes: ArrayLike) -> NDArray[Any]:
    _check_list(classes, "classes")
    labels = np.asarray(_plain(classes))
    _kind(labels, "classes")
    return labels


def _united(parts: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """All labels, sorted, by where they come from."""
    (first, kind), *others = ((name, _kind(labels, name)) for name, labels in parts.items())
    for name, other in others:
        if other != kind:
            raise StatisticsError(f"{name}: labels are {other}, those of {first} are {kind}, should be all of one kind")
    found = [np.unique(labels) for labels in parts.values()]
    whole = np.unique(np.concatenate(found))
    if set(whole.tolist()) != {label for labels in found for label in labels.tolist()}:
        raise StatisticsError(f"y: numbers that no type holds beside those of {first}, should be of the same type")
    return whole


def _with(classes: NDArray[Any], rejected: Any) -> NDArray[Any]:
    """(C + 1,): the labels and behind them what is said of a sample that is rejected, in a type that holds them all."""
    kind, whole = _kind(classes, "classes"), classes.dtype.kind in "iu"
    if kind == _TRUTHS:
        raise ConfigError(
            "reject: labels are truth values, which leave none to reject with, should be words or numbers"
        )
    value = rejected.item() if isinstance(rejected, np.generic) else rejected
    if value is None:
        value = "" if kind == _WORDS else -1
    if _kind_of(value) != kind or (whole and not isinstance(value, int)):
        should = "an integer" if whole else "a word" if kind == _WORDS else "a number"
        raise ConfigError(f"rejected: {value!r}, should be {should}, as labels are")
    if value in classes.tolist():
        raise ConfigError(f"rejected: {value!r} is one of the labels, should be none of them")
    if kind == _WORDS:
        return np.append(classes, np.array([value], dtype=object if classes.dtype.kind == "O" else None))
    for dtype in (classes.dtype, *((np.int64, np.uint64) if whole else (np.float64,))):
        if _holds(np.dtype(dtype), [*classes.tolist(), value]):
            return np.append(classes.astype(dtype), np.array([value], dtype=dtype))
    raise ConfigError(
        f"rejected: {value!r}, no type holds it beside labels of {classes.dtype}, should be one that fits"
    )


def _holds(dtype: np.dtype[Any], values: list[Any]) -> bool:
    """Whether numbers stay the same in a type."""
    if dtype.kind in "iu":
        return all(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max for value in values)
    return all(math.isnan(value) or float(dtype.type(value)) == value for value in values)


def _several(statistics: object) -> Iterable[ClassStatistics]:
    if isinstance(statistics, Iterable):
        return statistics
    raise StatisticsError(f"statistics: {type(statistics).__name__}, should be ClassStatistics or several")


def _as_carried(carried: Mapping[Any, ArrayLike], classes: NDArray[Any], d: int) -> dict[Any, Floats]:
    """By label, prototypes that stand in for means."""
    if not isinstance(carried, Mapping):
        raise StatisticsError(f"carried: {type(carried).__name__}, should be prototypes by label")
    known, made = classes.tolist(), dict[Any, Floats]()
    for label, row in carried.items():
        if label not in known or _kind_of(label) != _kind(classes, "classes"):
            raise StatisticsError(f"carried: {label!r}, should be one of {known!r}")
        made[label] = as_floats(row, f"carried: {label!r}", (d,))
    return made


def _placed(stats: ClassStatistics, places: Ints, num_classes: int) -> ClassStatistics:
    """The same sums, each class at its place among more."""
    counts, squares = np.zeros(num_classes, np.int64), np.zeros(num_classes)
    sums = np.zeros((num_classes, stats.dim))
    counts[places], sums[places], squares[places] = stats.counts, stats.sums, stats.squares
    watched = tuple(int(places[c]) for c in stats.watched)
    return replace(stats, counts=counts, sums=sums, squares=squares, watched=watched)
