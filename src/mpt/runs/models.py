"""`DIR/models`: the global models of the departure and of the last round, and the readouts that went with them.

`0000-000015.pt` is a seed and a round: for each training its state dict, and for each row the readout as a linear
layer, weight (C, d) and bias (C,) in float64; of a readout of two models, a second one of both models' features. They
are read with `weights_only`. A run's settings may name a backbone in a user's own file, though, and that is code.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mpt.base.extensions import told
from mpt.base.files import remove_files, write_atomically
from mpt.base.seeds import Series
from mpt.core.two_views import JoinedViews
from mpt.federation.measurement import Measurement
from mpt.federation.state import Model
from mpt.runs.errors import RunError

FOLDER = "models"
VERSION = 1


class JoinedLayer(NamedTuple):
    """What a readout of two models decides by.

    Attributes:
        weight, bias: (C, 2 d) and (C,), of the current features and the departure-time model's, side by side.
        departed: the classes that the departure-time model is asked for.
        scale: what a hesitation is multiplied by to be a gap between logits.
    """

    weight: Tensor
    bias: Tensor
    departed: tuple[int, ...]
    scale: float


@dataclass(frozen=True, eq=False)
class KeptModels:
    """One round's.

    Attributes:
        round: its number.
        models: by training; trainings that do not differ share one.
        readouts: weight (C, d) and bias (C,) by row; rows whose readout is no linear layer are missing.
        trainings: by method, whose model it reads.
        joined: of readouts that take the departure-time model's features too, by row; `readouts` has what they decide
            by without them.
    """

    round: int
    models: Mapping[str, Mapping[str, Tensor]]
    readouts: Mapping[Series, tuple[Tensor, Tensor]]
    trainings: Mapping[str, str]
    joined: Mapping[Series, JoinedLayer] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelFolder:
    """The models in a run's folder."""

    path: Path

    @classmethod
    def of(cls, run: Path) -> "ModelFolder":
        """That of a run."""
        return cls(run / FOLDER)

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return sum(file.stat().st_size for file in self._files())

    def remove(self) -> None:
        """Remove its files, and the folder where nothing else is in it."""
        remove_files(self.path, [*self._files(), *self.path.glob(".*.pt.partial")])

    def write(
        self,
        seed: int,
        number: int,
        models: Mapping[str, Model],
        rows: Sequence[Measurement],
        trainings: Mapping[str, str],
    ) -> None:
        """Keep one round."""
        different = list(dict.fromkeys(models.values()))
        content = {
            "version": VERSION,
            "trainings": {t: different.index(m) for t, m in models.items()},
            "models": [{k: v.detach().cpu() for k, v in model.tensors.items()} for model in different],
            "methods": dict(trainings),
            "readouts": dict(_readouts(rows)),
            "joined": dict(_joined(rows)),
        }
        buffer = io.BytesIO()
        torch.save(content, buffer)
        self.path.mkdir(exist_ok=True)
        write_atomically(self._file(seed, number), buffer.getvalue())

    def read(self, seed: int, number: int) -> KeptModels:
        """What `write` kept of one round.

        Raises:
            RunError: it is not there, or broken.
        """
        path = self._file(seed, number)
        try:
            found: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            if found["version"] != VERSION:
                raise RunError(f"{path}: has version {found['version']}, this release of mpt reads {VERSION}")
            models = {t: found["models"][i] for t, i in found["trainings"].items()}
            readouts = {Series(*key): (pair[0], pair[1]) for key, pair in found["readouts"].items()}
            joined = {Series(*key): JoinedLayer(*layer) for key, layer in found.get("joined", {}).items()}
            return KeptModels(number, models, readouts, found["methods"], joined)
        except FileNotFoundError:
            why = (
                "the run was made with --no-models, or before models were kept" if not self._any() else "not this seed"
            )
            raise RunError(f"{path}: there is no such file ({why}); mpt run --overwrite makes it anew") from None
        except RunError:
            raise
        except Exception as error:  # unpickling raises whatever it likes
            raise RunError(f"{path}: cannot be read ({told(error)[:200]}); mpt run --overwrite makes it anew") from None

    def _any(self) -> bool:
        return any(self._files())

    def _files(self) -> Iterator[Path]:
        return self.path.glob("[0-9]*-*.pt")

    def _file(self, seed: int, number: int) -> Path:
        return self.path / f"{seed:04d}-{number:06d}.pt"


def expected_bytes(trainings: int, model_bytes: int) -> int:
    """About how much room the models of one seed take: one at the departure, one a training at the end."""
    return (1 + trainings) * model_bytes


def _readouts(rows: Sequence[Measurement]) -> Iterator[tuple[tuple[str, str], tuple[Tensor, Tensor]]]:
    for row in rows:
        alone = row.applied.current if isinstance(row.applied, JoinedViews) else row.applied
        layer = getattr(alone, "to_linear", None)
        if layer is not None:
            weight, bias = (torch.from_numpy(array.copy()) for array in layer())
            yield (row.method, row.readout), (weight, bias)


def _joined(rows: Sequence[Measurement]) -> Iterator[tuple[tuple[str, str], tuple[Any, ...]]]:
    for row in rows:
        if isinstance(row.applied, JoinedViews):
            weight, bias = (torch.from_numpy(array.copy()) for array in row.applied.layers()[1])
            yield (row.method, row.readout), (weight, bias, row.applied.departed, row.applied.gap_limit(1.0))
