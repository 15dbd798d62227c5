"""The readout as a scikit-learn classifier: fitted, fed in batches, or made of sums that vehicles have sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(f"mpt.sklearn needs scikit-learn 1.6 or newer: {error}") from error

from mpt.core import ClassStatistics, NearestClassMean, StatisticsError
from mpt.core.equations import DEFAULT_COV_RIDGE
from mpt.core.validation import Floats

METRICS = ("mahalanobis", "euclidean")


class PrototypeClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Says of a sample the class whose prototype, its mean, is nearest.

    It keeps sums over classes and no sample, so that batches add up and sums that others have made do as well. Only
    how near prototypes are counts, not how many samples a class has.

    Args:
        metric: "mahalanobis", under the covariance that all classes share, or "euclidean".
        cov_ridge: lambda_Sigma of Eq. (3), how much of its mean variance is added to every direction of it.
        reject: a distance beyond which no class is said; None: one always is.
        rejected: what is said then; None: -1, or "" where classes are words.

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
        if hasattr(self, "statistics_"):
            del self.statistics_
        return self.partial_fit(X, y)

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Add samples to those that it knows. Labels may be new; `classes` names some that are yet to come."""
        self._check()
        first = not hasattr(self, "statistics_")
        rows, labels = validate_data(self, X, y, dtype=np.float64, reset=first)
        check_classification_targets(labels)
        told = np.unique(np.concatenate([np.unique(labels), *([] if classes is None else [np.unique(classes)])]))
        known = told if first else np.union1d(self.classes_, told)
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
        statistics: ClassStatistics,
        classes: ArrayLike | None = None,
        *,
        carried: Mapping[Any, ArrayLike] | None = None,
        **parameters: Any,
    ) -> Self:
        """A fitted classifier from sums that vehicles have made.

        Args:
            statistics: theirs, added up.
            classes: (C,), the labels of its classes, sorted; None: 0 to C - 1.
            carried: by label, prototypes (d,) that stand in for the means of classes whose samples are gone, as
                `mpt.reconstruct(...).prototype` gives them.
            parameters: of the classifier.

        Raises:
            StatisticsError: where they do not fit together.
        """
        made = cls(**parameters)
        made._check()
        labels = np.arange(len(statistics.counts)) if classes is None else np.asarray(classes)
        if labels.shape != statistics.counts.shape or not np.array_equal(np.unique(labels), labels):
            raise StatisticsError(
                f"classes: {labels.tolist()!r}, should be {len(statistics.counts)} different labels, sorted"
            )
        made.classes_, made.statistics_, made.n_features_in_ = labels, statistics, statistics.dim
        made.carried_ = {label: np.asarray(row, dtype=np.float64) for label, row in (carried or {}).items()}
        for label, row in made.carried_.items():
            if label not in labels or row.shape != (statistics.dim,):
                raise StatisticsError(
                    f"carried: {label!r} with shape {row.shape}, should be one of {labels.tolist()!r} with "
                    f"({statistics.dim},)"
                )
        return made._read()

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """(N,): the label of the nearest prototype, or `rejected` where it is too far."""
        distances = self.distances(X)
        said: NDArray[Any] = self.classes_[np.argmin(distances, axis=1)]
        if self.reject is not None:
            said = np.where(distances.min(axis=1) > self.reject, self._rejected, said)
        return said

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

    @property
    def _rejected(self) -> Any:
        if self.rejected is not None:
            return self.rejected
        return "" if self.classes_.dtype.kind in "US" else -1

    def _check(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(f"metric: {self.metric!r}, should be one of {', '.join(METRICS)}")
        if self.reject is not None and not self.reject > 0:
            raise ValueError(f"reject: {self.reject!r}, should be a distance above 0, or None")


def _placed(stats: ClassStatistics, places: NDArray[np.int64], num_classes: int) -> ClassStatistics:
    """The same sums, each class at its place among more."""
    counts, squares = np.zeros(num_classes, np.int64), np.zeros(num_classes)
    sums = np.zeros((num_classes, stats.dim))
    counts[places], sums[places], squares[places] = stats.counts, stats.sums, stats.squares
    watched = tuple(int(places[c]) for c in stats.watched)
    return replace(stats, counts=counts, sums=sums, squares=squares, watched=watched)
