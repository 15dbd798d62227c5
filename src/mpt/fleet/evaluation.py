"""How well a server's readout recognises samples: test samples of its own, or what vehicles have set aside."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mpt.base.errors import MptError
from mpt.core.two_views import JoinedViews
from mpt.core.validation import Floats, Ints
from mpt.federation.metrics import confusion_matrix, score
from mpt.fleet.exchange import Arrays, Ask, Failure, Reply, fingerprint
from mpt.fleet.phase import Phase
from mpt.fleet.vehicle import load
from mpt.learning import Classifier, Samples, embed
from mpt.methods import Readout
from mpt.protocol.evaluation import FEW, EvaluationRequest, Evidence, JointLayer
from mpt.tracking.errors import FleetError
from mpt.tracking.rounds import Outcome

if TYPE_CHECKING:
    from mpt.fleet.server import Server


def evaluate_readout(
    architecture: Classifier,
    model: Arrays,
    readout: Readout | None,
    test: Samples,
    classes: Sequence[str],
    earlier: Sequence[Arrays] = (),
) -> dict[str, Any]:
    """Accuracy and each class's F1; None where there is no readout yet, or no test sample of the class.

    `earlier` are the models that a readout of several views reads beside the current one; without all of them the
    current view decides alone.
    """
    if readout is None:
        return {"accuracy": None, "f1": dict.fromkeys(classes)}
    if isinstance(readout, JoinedViews) and readout.views != 1 + len(earlier):
        readout, earlier = readout.current, ()
    views, labels = list[Floats](), test.labels.cpu().numpy()
    for one in (model, *earlier):
        load(architecture, one)
        views.append(embed(architecture, test.images).double().cpu().numpy())
    features = np.concatenate(views, axis=1)
    confusion = confusion_matrix(readout.predict(features), labels, len(classes))
    scores, there = score(confusion), np.bincount(labels, minlength=len(classes))
    f1 = {name: round(float(s), 6) if n else None for name, s, n in zip(classes, scores.f1, there, strict=True)}
    return {"accuracy": round(scores.accuracy, 6), "f1": f1}


class Evaluation(Phase):
    """The last question of a round: how a vehicle's validation samples are recognised by the round's readout.

    It goes to those who have answered in the round and stay. Whoever does not answer this one has missed nothing.

    Attributes:
        evidence: what all have counted; None where nobody has.
    """

    def __init__(self, server: "Server", number: int) -> None:
        super().__init__(server, "evaluate", number)
        self.evidence: Evidence | None = None
        self._request: EvaluationRequest | None = None

    def put(self, model: Arrays, outcome: Outcome, leaving: Collection[str]) -> Ask:
        """Ask, where the readout can be sent; what was asked. What is wrong is a problem, and no more than that."""
        ask = Ask("evaluate", self.number, model)
        try:
            self._request = request = request_of(outcome)
        except MptError as error:
            self.problems.append(f"evaluate: left out, {error}")
            return ask
        ask = replace(ask, request=request.to_bytes(), largest_answer=request.largest_answer)
        if request.joint is not None:
            kept = self.server.models.kept
            known = {r: fingerprint(kept[r]) for r in request.joint.references if r in kept}
            ask = replace(ask, references=known, aside=True)
        nodes = self.server.models.nodes
        self.ask(ask, {nodes[v] for v in outcome.answered if v in nodes and v not in leaving})
        if self.evidence is None:
            self.problems.append("evaluate: no vehicle has counted, so the evidence is as it was")
        elif self.evidence.alone:
            told = f"{self.evidence.alone} of {self.evidence.vehicles} vehicles have no features"
            self.problems.append(f"evaluate: {told} under the earlier model yet, the current one decided there alone")
        return ask

    def _hear(self, node: str, reply: Reply | Failure, known: str) -> None:
        """A reply says nothing here but counts, and only of the vehicle that was asked."""
        if isinstance(reply, Reply):
            if reply.vehicle != known:
                reply = Failure("its reply has another vehicle's id", refused=True)
            elif reply.answer is None:
                reply = Failure("its reply has no answer, which is missing", refused=True)
            else:
                reply = replace(reply, leaving=False)
        super()._hear(node, reply, known)

    def _take_answer(self, vehicle: str, answer: bytes) -> bool:
        assert self._request is not None
        told = self._request.read(answer)
        check_share(told, self.server.tracker.state.counts.get(vehicle), self.server.policy.validation)
        self.evidence = told if self.evidence is None else self.evidence.merge(told)
        return True


def request_of(outcome: Outcome) -> EvaluationRequest:
    """A round's readout as vehicles are sent it; `MptError` where it is no linear layer."""
    if isinstance(outcome.readout, JoinedViews):
        alone, joint = outcome.readout.layers()
        return EvaluationRequest(outcome.round, *alone, JointLayer(outcome.references, *joint))
    layer = getattr(outcome.readout, "to_linear", None)
    if layer is None:
        what = "no class has a prototype" if outcome.readout is None else "the readout is no linear layer"
        raise FleetError(f"{what}, so there is nothing that vehicles could evaluate")
    return EvaluationRequest(outcome.round, *layer())


def check_share(evidence: Evidence, reported: Ints | None, share: float) -> None:
    """Refuse more validation samples of a class than go with what the vehicle has reported of it.

    Of n samples share * n are set aside, which is below twice that share of the others, as share is at most one half.
    """
    known = np.zeros(evidence.num_classes) if reported is None else reported
    most = 2 * share * known + FEW
    if np.any(evidence.samples > most):
        c = int(np.argmax(evidence.samples - most))
        raise FleetError(
            f"answer: {evidence.samples[c]} validation samples of class {c}, should be at most {most[c]:.0f} with "
            f"{known[c]:.0f} reported"
        )
