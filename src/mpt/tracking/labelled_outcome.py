"""What comes of a round, by label: a readout that says labels, and prototypes under their names."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpt.base.notebook import table
from mpt.core import Reconstruction, StatisticsError
from mpt.core import validation as check
from mpt.core.linalg import dot
from mpt.core.two_views import JoinedViews
from mpt.core.validation import Floats
from mpt.core.value import Value
from mpt.core.wire import Reader, Writer
from mpt.protocol.labels import Label, as_array, as_label_set, from_json, to_json
from mpt.tracking.roster import Decision
from mpt.tracking.rounds import Outcome

_KIND = b"Y"


@dataclass(frozen=True, eq=False, repr=False)
class LabelledReadout(Value):
    """Recognises by a linear layer, and says labels: what a server sends to its devices.

    Attributes:
        labels: of C classes.
        weight: (C, d).
        bias: (C,); minus infinity where a class has no prototype: it is never said.

    Example:
        >>> LabelledReadout(("idle", "drill"), np.eye(2), np.zeros(2)).predict([[0.2, 0.1], [0.9, 2.0]])
        array(['idle', 'drill'], dtype='<U5')
    """

    labels: tuple[Label, ...]
    weight: Floats
    bias: Floats

    def __post_init__(self) -> None:
        labels = as_label_set(self.labels)
        weight = check.as_floats(self.weight, "weight", (len(labels), None))
        bias = check.as_array(self.bias, "bias").astype(np.float64)
        check.check_shape(bias, "bias", (len(labels),))
        if not labels or np.isnan(bias).any() or not bias.max() < np.inf or bias.max() == -np.inf:
            raise StatisticsError("bias: should be a number or minus infinity, and a number at least once")
        for name, value in {"labels": labels, "weight": weight, "bias": check.read_only(bias)}.items():
            object.__setattr__(self, name, value)

    def predict(self, features: ArrayLike) -> NDArray[Any]:
        """The label of each row of `features` (N, d): (N,), as NumPy has such labels."""
        rows = check.as_features(features, int(self.weight.shape[1]))
        found = np.empty(len(rows), dtype=np.int64)
        for block, h in check.feature_blocks(rows):
            found[block] = np.argmax(dot(h, self.weight.T) + self.bias, axis=1)
        return as_array(self.labels)[found]

    def to_linear(self) -> tuple[Floats, Floats]:
        """Weight (C, d) and bias (C,)."""
        return self.weight, self.bias

    def __repr__(self) -> str:
        known = int(np.isfinite(self.bias).sum())
        return f"<LabelledReadout: {known}/{len(self.labels)} labels, d={self.weight.shape[1]}>"

    def to_bytes(self) -> bytes:
        """The readout as bytes for `from_bytes`."""
        writer = Writer(_KIND, 0, "float64")
        writer.block(to_json(labels=self.labels, dim=int(self.weight.shape[1])))
        writer.exact(self.weight)
        writer.exact(self.bias)
        return writer.finish()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> "LabelledReadout":
        """What `to_bytes` was called on."""
        reader = Reader(data, _KIND, 0)
        found, dim = from_json(reader, "LabelledReadout", "labels", "dim")
        labels, d = as_label_set(found), check.as_int(dim, "dim", least=1)
        made = cls(labels, reader.exact(len(labels), d), reader.exact(len(labels)))
        reader.finish()
        return made


@dataclass(frozen=True, eq=False, repr=False)
class LabelledOutcome:
    """What came of a round, by label.

    Attributes:
        labels: of all classes that are known, in the order of their numbers.
        plain: the same in numbers, with all the arrays.
        problems: what went wrong without stopping the round, a sentence each.
    """

    labels: tuple[Label, ...]
    plain: Outcome
    problems: tuple[str, ...] = ()

    @property
    def round(self) -> int:
        """Its number."""
        return self.plain.round

    @property
    def answered(self) -> tuple[str, ...]:
        """The devices whose answer was accepted."""
        return self.plain.answered

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """What changed, and why, in order; `class_names` has the labels."""
        return self.plain.decisions

    @property
    def prototypes(self) -> dict[Label, Floats]:
        """(d,) by label, measured or, for departed classes, reconstructed; those that have one."""
        rows = zip(self.labels, self.plain.prototypes, strict=False)
        return {label: row for label, row in rows if not np.isnan(row).any()}

    @property
    def reconstructions(self) -> Mapping[Label, Reconstruction]:
        """Of the classes that were reconstructed in this round."""
        return {self.labels[c]: one for c, one in self.plain.reconstructions.items()}

    @property
    def tracked(self) -> tuple[Label, ...]:
        """The departed classes that the method has found in this round; others were measured."""
        return tuple(self.labels[c] for c in self.plain.tracked)

    @cached_property
    def readout(self) -> LabelledReadout | None:
        """Recognises every class that has a prototype; None as long as none has. Of "mpt-duo" it is the current view's
        alone: `plain.readout` reads both.
        """
        readout = self.plain.readout
        if readout is None:
            return None
        weight, bias = (readout.current if isinstance(readout, JoinedViews) else readout).to_linear()
        known = len(self.labels)
        return LabelledReadout(self.labels, weight[:known], bias[:known])

    def __repr__(self) -> str:
        kept = f", {len(self.tracked)} kept alive" if self.tracked else ""
        said = f"{len(self.answered)} devices answered, {len(self.prototypes)} of {len(self.labels)} labels"
        return f"<LabelledOutcome: round {self.round}, {said} have a prototype{kept}>"

    def _repr_html_(self) -> str:
        """For notebooks: every label, and what is known of its prototype."""
        made = self.reconstructions
        rows = [
            (str(label), "reconstructed", made[label].verdict) if label in made else (str(label), "measured", None)
            for label in self.prototypes
        ]
        return table(repr(self).strip("<>"), ("label", "", "verdict"), rows)
