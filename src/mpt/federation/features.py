"""What one model makes of the samples: features, statistics and predictions, computed where the model is."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from mpt.core import ClassStatistics, CrossStatistics
from mpt.core.validation import Floats, Ints
from mpt.federation.grouped import ENTRIES, cross_statistics, statistics
from mpt.federation.jobs import diverged
from mpt.federation.metrics import confusion_matrix
from mpt.federation.state import Model
from mpt.federation.stored import predictions, side_by_side
from mpt.methods import MethodError
from mpt.methods.method import Readout
from mpt.protocol.cross_request import CrossRequest
from mpt.protocol.local import Local
from mpt.protocol.request import StatisticsRequest

if TYPE_CHECKING:
    from mpt.federation.engine import Federation


class Embedding(Protocol):
    """What one model makes of the samples, computed or read from a record; it equals itself and nothing else."""

    @property
    def seconds(self) -> float:
        """That embedding took so far."""
        ...

    def local(
        self, vehicle: int, here: tuple[int, ...], earlier: Callable[[], Floats], before: "Embedding | None"
    ) -> Local:
        """A vehicle among those that are there; `earlier` gives its samples' features under the model of `before`."""
        ...

    def vehicle(self, vehicle: int) -> Floats:
        """(n, d): of a vehicle's samples."""
        ...

    @property
    def test(self) -> Floats:
        """(N, d): of the test samples."""
        ...

    @property
    def test_mean(self) -> Floats:
        """(d,): of the rare class's test samples."""
        ...

    @property
    def rare_mean(self) -> Floats:
        """(d,): of all the rare class's training samples, departed ones included."""
        ...

    @property
    def head(self) -> tuple[Floats, Floats]:
        """The head's weight (C, d) and bias (C,)."""
        ...

    def confusions(self, readouts: Sequence[Readout], before: "Sequence[Embedding]" = ()) -> list[Ints]:
        """(C, C) each: the test samples by label and prediction; `before` for readouts that take several views."""
        ...


class Features:
    """A model's features, computed when first asked for; on a GPU they stay there until somebody wants an array.

    Attributes:
        seconds: that embedding took so far.
        doubted: whether what was learned in the model's round is in doubt.
    """

    def __init__(self, federation: "Federation", model: Model) -> None:
        self.federation, self.model = federation, model
        self.doubted = model.doubted
        self.seconds = 0.0
        self._vehicles: dict[int, Tensor] = {}
        self._arrays: dict[int, Floats] = {}
        self._reports: dict[bytes, dict[int, ClassStatistics]] = {}
        self._crosses: dict[bytes, dict[int, CrossStatistics]] = {}

    def begin(self, here: Sequence[int]) -> None:
        """Embed what a round is read out of, all of it together; on a GPU without waiting for it."""
        if "_test" in vars(self):
            return
        federation, new = self.federation, [v for v in here if v not in self._vehicles]
        lots = [federation.test_images, federation.rare_images, *(federation.vehicles[v].images for v in new)]
        self._test, rare, *rows = self._finite(federation.embed(self.model, *lots))
        self._rare_mean = rare.mean(dim=0)
        self._vehicles |= dict(zip(new, rows, strict=True))

    def forget(self) -> None:
        """Give up what vehicles have answered: a model that outlives its round is asked anew in the next."""
        self._reports.clear()
        self._crosses.clear()

    def embed_vehicles(self, vehicles: Sequence[int]) -> None:
        """Embed the samples of several vehicles, together."""
        new = [v for v in vehicles if v not in self._vehicles]
        if new:
            samples = [self.federation.vehicles[v].images for v in new]
            self._vehicles |= dict(zip(new, self._embed(*samples), strict=True))

    def local(
        self, vehicle: int, here: tuple[int, ...], earlier: Callable[[], Floats], before: Embedding | None
    ) -> Local:
        """A vehicle among those that are there; on a GPU its statistics are made there."""
        self.embed_vehicles(here)
        report = cross = None
        if self.federation.device.type != "cpu":
            report = partial(self.report, vehicle, here)
            cross = partial(self.cross, vehicle, here, before) if isinstance(before, Features) else None
        return Local(self.federation.labels[vehicle], partial(self.vehicle, vehicle), earlier, report, cross)

    def vehicle(self, vehicle: int) -> Floats:
        """(n, d): of a vehicle's samples.

        From a GPU those of all vehicles come together and are kept: who asks first waits for all of them.
        """
        self.embed_vehicles([vehicle])
        if self.federation.device.type == "cpu":
            return _array(self._vehicles[vehicle])
        if vehicle not in self._arrays:
            new = {v: rows for v, rows in self._vehicles.items() if v not in self._arrays}
            joined, ends = _array(torch.cat(list(new.values()))), np.cumsum([len(rows) for rows in new.values()])
            self._arrays |= dict(zip(new, np.split(joined, ends[:-1]), strict=True))
        return self._arrays[vehicle]

    def report(self, vehicle: int, here: tuple[int, ...], request: StatisticsRequest) -> ClassStatistics:
        """A vehicle's statistics, made on the device together with those of others that are present."""
        question = request.to_bytes()
        if vehicle not in self._reports.get(question, {}):
            whole = self._reports.get(replace(request, scatter=True).to_bytes(), {}).get(vehicle)
            if whole is not None:
                return replace(whole, scatter=None)
            self.embed_vehicles(here)
            groups = self.federation.groups(vehicle, here)
            joined = torch.cat([self._vehicles[v] for v in groups.vehicles])
            self._reports[question] = statistics(joined, groups, request)
        return self._reports[question][vehicle]

    def cross(self, vehicle: int, here: tuple[int, ...], before: "Features", request: CrossRequest) -> CrossStatistics:
        """A vehicle's cross moments, made likewise."""
        question = request.to_bytes()
        if vehicle not in self._crosses.get(question, {}):
            for features in (self, before):
                features.embed_vehicles(here)
            groups = self.federation.groups(vehicle, here)
            earlier, current = (torch.cat([f._vehicles[v] for v in groups.vehicles]) for f in (before, self))
            self._crosses[question] = cross_statistics(earlier, current, groups, request)
        return self._crosses[question][vehicle]

    @property
    def test(self) -> Floats:
        """(N, d): of the test samples."""
        return _array(self._test)

    @cached_property
    def test_mean(self) -> Floats:
        """(d,): of the rare class's test samples."""
        mine = self.federation.test_labels == self.federation.plan.rare
        return _array(self._test[mine].mean(dim=0))

    @cached_property
    def rare_mean(self) -> Floats:
        """(d,): of all the rare class's training samples, departed ones included."""
        return _array(self._rare_mean)

    @cached_property
    def head(self) -> tuple[Floats, Floats]:
        """The head's weight (C, d) and bias (C,)."""
        tensors = self.model.tensors
        return _array(tensors["head.weight"].double()), _array(tensors["head.bias"].double())

    def confusions(self, readouts: Sequence[Readout], before: Sequence[Embedding] = ()) -> list[Ints]:
        """(C, C) each: the test samples by label and prediction; `before` for readouts that take several views.

        On a GPU those with `to_linear` are applied there, as many in one product as its memory may hold.
        """
        labels, num_classes = self.federation.dataset.test.labels, self.federation.dataset.num_classes
        on_device = [hasattr(r, "to_linear") and self.federation.device.type != "cpu" for r in readouts]
        chosen = [r for r, there in zip(readouts, on_device, strict=True) if there]
        some = max(1, ENTRIES // (len(labels) * num_classes))
        linear = (m for at in range(0, len(chosen), some) for m in self._linear_confusions(chosen[at : at + some]))
        return [
            next(linear) if there else self._confusion(readout, before)
            for readout, there in zip(readouts, on_device, strict=True)
        ]

    def _confusion(self, readout: Readout, before: Sequence[Embedding]) -> Ints:
        labels, num_classes = self.federation.dataset.test.labels, self.federation.dataset.num_classes
        predicted = predictions(readout, side_by_side(readout, self.test, before), num_classes)
        return confusion_matrix(predicted, labels, num_classes)

    def _linear_confusions(self, readouts: Sequence[Any]) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """(M, C, C), of M readouts with `to_linear`."""
        many, labels, classes = len(readouts), self.federation.test_labels, self.federation.dataset.num_classes
        weights, biases = zip(*(readout.to_linear() for readout in readouts), strict=True)
        for readout, weight in zip(readouts, weights, strict=True):
            if len(weight) != classes:
                name = type(readout).__name__
                raise MethodError(f"{name}.to_linear gave {len(weight)} rows, should be {classes}, one a class")
        layer = np.concatenate([np.concatenate(weights), np.concatenate(biases)[:, None]], axis=1)
        there = torch.from_numpy(layer).to(labels.device)
        scores = torch.addmm(there[:, -1], self._test, there[:, :-1].T)
        predicted = scores.reshape(-1, many, classes).argmax(dim=2)
        cells = labels[:, None] * classes + predicted
        counted = torch.zeros(many, classes**2, dtype=torch.int64, device=labels.device)
        counted.scatter_add_(1, cells.T, torch.ones_like(cells.T))
        return counted.cpu().numpy().reshape(many, classes, classes)

    @cached_property
    def _rare_mean(self) -> Tensor:
        return self._embed(self.federation.rare_images)[0].mean(dim=0)

    @cached_property
    def _test(self) -> Tensor:
        return self._embed(self.federation.test_images)[0]

    def _finite(self, features: list[Tensor]) -> list[Tensor]:
        """The features; a model that is finite may still have diverged. On a GPU nobody waits to look at them."""
        if self.federation.device.type == "cpu" and not all(bool(rows.isfinite().all()) for rows in features):
            number, plan = max(self.model.handle.round, 1), self.federation.plan
            raise diverged(number, plan.training_in(number).lr, "features have entries that are NaN or infinite")
        return features

    def _embed(self, *several: Tensor) -> list[Tensor]:
        start = time.perf_counter()
        features = self._finite(self.federation.embed(self.model, *several))
        if features[0].device.type == "cuda":
            torch.cuda.current_stream(features[0].device).synchronize()
        self.seconds += time.perf_counter() - start
        return features


def _array(tensor: Tensor) -> Floats:
    array: Floats = tensor.cpu().numpy()
    array.setflags(write=False)
    return array
