"""How well a server's readout recognises test samples, where the server has any."""

from collections.abc import Sequence
from typing import Any

from mpt.core import NearestClassMean
from mpt.data import Split
from mpt.federation.metrics import confusion_matrix, score
from mpt.fleet.exchange import Arrays
from mpt.fleet.holdings import samples
from mpt.fleet.vehicle import load
from mpt.learning import Classifier, embed


def judge(
    architecture: Classifier, model: Arrays, readout: NearestClassMean | None, test: Split, classes: Sequence[str]
) -> dict[str, Any]:
    """Accuracy and each class's F1; None where there is no readout yet."""
    if readout is None:
        return {"accuracy": None, "f1": {}}
    load(architecture, model)
    held = samples(test)
    features = embed(architecture, held.images).double().cpu().numpy()
    confusion = confusion_matrix(readout.predict(features), test.labels, len(classes))
    scores = [score(confusion, number) for number in range(len(classes))]
    f1 = {name: round(s.rare_f1, 6) for name, s in zip(classes, scores, strict=True)}
    return {"accuracy": round(scores[0].accuracy, 6), "f1": f1}
