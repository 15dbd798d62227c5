"""The vehicle's side of a round: it trains on its own samples, reports statistics, and counts what is recognised."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mpt.fleet.exchange import Arrays, Ask, Reply, fingerprint
from mpt.fleet.memory import at_hand, known, recall, remember
from mpt.learning import Classifier, Loss, Samples, TrainingSettings, embed, generator, train
from mpt.learning.losses import LOSSES, find_loss
from mpt.learning.training import channels_last
from mpt.methods import find_method, find_part, find_training
from mpt.protocol.evaluation import FEW, EvaluationRequest, validation_split
from mpt.protocol.parts import Part
from mpt.protocol.question import read_question
from mpt.tracking.errors import FleetError


@dataclass(frozen=True, eq=False)
class Vehicle:
    """One vehicle and its samples.

    Attributes:
        name: its id.
        model: the architecture, into which global models are loaded.
        samples: images (n, C, H, W) uint8 and labels (n,), on the model's device.
        settings: of local training.
        seed: with the round and the name, what training draws from.
        min_samples: classes that it has fewer samples of are left out of its reports: a sum over one sample is that
            sample's feature. It trains on them all the same.
        method: the one that the vehicle's own configuration names; parts are found in it and in those installed.
        loss: the one that the vehicle's own configuration names.
        unknown: how many samples it has beside these, of classes that are none of the fleet's, by their names.
        memory: (n, d) float32, its samples' features under earlier models, as `mpt.fleet.memory` has them; behind them
            those of validation samples, where these are asked for too.
        validation: samples beside these that were set aside, to evaluate on; None: there are none.
    """

    name: str
    model: Classifier
    samples: Samples
    settings: TrainingSettings
    seed: int = 0
    min_samples: int = 1
    method: str = ""
    loss: str = "cross-entropy"
    unknown: Mapping[str, int] = field(default_factory=dict)
    memory: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    validation: Samples | None = None

    def answer(self, ask: Ask, *, leaving: bool = False) -> Reply:
        """What it replies. A vehicle that leaves does not train any more; it still reports."""
        reply = Reply(self.name, ask.round, leaving, unknown=self.unknown)
        if ask.kind == "evaluate":
            return replace(reply, answer=self._evaluate(ask))
        if ask.kind == "report":
            return replace(reply, answer=self._report(ask))
        return reply if leaving else self._train(ask, reply)

    def _train(self, ask: Ask, reply: Reply) -> Reply:
        kept = self.samples
        for label in ask.held_out:
            kept = kept.without(label)
        if not len(kept.labels):
            return reply
        model = channels_last(self.model) if kept.images.device.type == "cpu" else self.model
        load(model, ask.model)
        drawn = generator(self.seed, "training", ask.round, self.name)
        train(model, kept.images, kept.labels, self.settings, generator=drawn, loss=self._loss(ask.loss))
        return replace(reply, samples=len(kept.labels), model=arrays(model.state_dict()))

    def _report(self, ask: Ask) -> bytes:
        question = read_question(ask.request)
        if question.round != ask.round:
            raise FleetError(f"request: of round {question.round}, but the message is of round {ask.round}")
        labels = self.samples.labels.cpu().numpy()
        mine, embed, n = self._known_by(ask), self._embed_both if ask.aside else self._embed, len(labels)
        earlier = recall(self.memory, mine, ask, embed) if ask.keep else {}
        features = known(self.memory, mine, ask.model) if ask.keep else None
        features = embed(ask.model) if features is None else features
        if ask.keep:
            remember(self.memory, mine, ask.model, features)
        features, earlier = features[:n], {number: rows[:n] for number, rows in earlier.items()}
        return question.answer(features, labels, earlier, min_samples=self.min_samples, find=self._part)

    def _evaluate(self, ask: Ask) -> bytes:
        request = EvaluationRequest.from_bytes(ask.request)
        if request.round != ask.round:
            raise FleetError(f"request: of round {request.round}, but the message is of round {ask.round}")
        n, labels = len(self.samples.labels), self._aside.labels.cpu().numpy()
        by = self._known_by(ask)
        kept = known(self.memory, by, ask.model) if ask.aside else None
        features = self._embed(ask.model, self._aside) if kept is None else kept[n:]
        earlier = at_hand(self.memory, by, ask) if ask.aside else {}
        classes = self.model.num_classes
        reported, mine = (np.bincount(one, minlength=classes) for one in (self.samples.labels.cpu().numpy(), labels))
        told = ((reported >= self.min_samples) | (mine <= FEW))[labels]
        before = {number: rows[n:][told] for number, rows in earlier.items()}
        return request.answer(features[told], labels[told], before, min_samples=self.min_samples)

    def _loss(self, name: str) -> Loss:
        """What it minimises: a loss that is installed, or one that its own configuration or method names."""
        installed = LOSSES.parse(name).head in LOSSES or name == self.loss
        if not installed and not (self.method and find_training(find_method(self.method).training).loss == name):
            raise FleetError(f"loss: {name!r} is neither installed on this vehicle nor named by its own configuration")
        return find_loss(name)

    def _part(self, method: str, part: str) -> Part:
        return find_part(method, part, self.method)

    def _embed(self, model: Arrays, samples: Samples | None = None) -> NDArray[np.float32]:
        """The features of these samples under a model; default: of those that it reports on."""
        load(self.model, model)
        return self._features(self.samples if samples is None else samples)

    def _features(self, samples: Samples) -> NDArray[np.float32]:
        """The features of these samples under the model that is loaded."""
        features: NDArray[np.float32] = embed(self.model, samples.images).float().cpu().numpy()
        return features

    def _embed_both(self, model: Arrays) -> NDArray[np.float32]:
        """The same of the samples that it reports on, and behind them of those that it has set aside."""
        return np.concatenate([self._embed(model), self._features(self._aside)])

    @property
    def _aside(self) -> Samples:
        """The validation samples, of which there may be none."""
        none = Samples(self.samples.images[:0], self.samples.labels[:0])
        return none if self.validation is None else self.validation

    def _known_by(self, ask: Ask) -> str:
        return self._both if ask.aside else self._samples

    @cached_property
    def _samples(self) -> str:
        """What the samples are known by: with others, features under the same model are others."""
        return fingerprint(_named(self.samples))

    @cached_property
    def _both(self) -> str:
        """The same of them and of the validation samples."""
        return fingerprint(_named(self.samples) | {f"aside {name}": a for name, a in _named(self._aside).items()})


def set_aside(held: Samples, share: float, rng: np.random.Generator) -> tuple[Samples, Samples]:
    """What a vehicle trains and reports on, and the share of each class that it evaluates on."""
    parts = map(torch.from_numpy, validation_split(held.labels.cpu().numpy(), share, rng))
    kept, aside = (Samples(held.images[part], held.labels[part]) for part in parts)
    return (kept, aside) if len(aside.labels) else (held, aside)


def _named(samples: Samples) -> dict[str, NDArray[Any]]:
    return {"images": samples.images.cpu().numpy(), "labels": samples.labels.cpu().numpy()}


def arrays(state: Mapping[str, torch.Tensor]) -> dict[str, NDArray[Any]]:
    """A state dict as NumPy arrays of their own memory."""
    return {name: np.array(tensor.detach().cpu().numpy(), order="C") for name, tensor in state.items()}


def tensors(model: Arrays) -> dict[str, torch.Tensor]:
    """NumPy arrays as a state dict of its own memory."""
    return {name: torch.from_numpy(np.array(array)) for name, array in model.items()}


def load(model: Classifier, state: Arrays) -> None:
    """Load arrays into the architecture; `FleetError` where they do not fit."""
    try:
        model.load_state_dict(tensors(state))
    except (RuntimeError, TypeError) as error:
        raise FleetError(f"model: it does not fit the backbone ({str(error).splitlines()[0]})") from None
