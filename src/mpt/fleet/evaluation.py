"""How well a server's readout recognises test samples, where the server has any."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpt.federation.metrics import confusion_matrix, score
from mpt.fleet.exchange import Arrays
from mpt.fleet.vehicle import load
from mpt.learning import Classifier, Samples, embed
from mpt.methods import Readout


def evaluate_readout(
    architecture: Classifier, model: Arrays, readout: Readout | None, test: Samples, classes: Sequence[str]
) -> dict[str, Any]:
    """Accuracy and each class's F1; None where there is no readout yet, or no test sample of the class."""
    if readout is None:
        return {"accuracy": None, "f1": dict.fromkeys(classes)}
    load(architecture, model)
    features, labels = embed(architecture, test.images).double().cpu().numpy(), test.labels.cpu().numpy()
    confusion = confusion_matrix(readout.predict(features), labels, len(classes))
    scores, there = score(confusion), np.bincount(labels, minlength=len(classes))
    f1 = {name: round(float(s), 6) if n else None for name, s, n in zip(classes, scores.f1, there, strict=True)}
    return {"accuracy": round(scores.accuracy, 6), "f1": f1}
