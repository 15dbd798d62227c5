"""What a vehicle keeps for methods such as "mpt-x": its samples' features under models that may be asked about again.

They are known by what they were made of, the samples and the model, and stand in a dict, the latest last: those under
the models of the last two reports, one of which may become a reference model, and those under the reference models.
"""

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from mpt.fleet.exchange import Arrays, Ask, fingerprint

_Features = NDArray[Any]
Memory = dict[str, _Features]


def recall(memory: Memory, samples: str, ask: Ask, embed: Callable[[Arrays], _Features]) -> dict[int, _Features]:
    """By round, the samples' features under the reference models; others but the latest are forgotten.

    Args:
        memory: changed.
        samples: what the samples are known by now: of others nothing is recalled.
        ask: names the reference models, and has those along that the vehicle said it lacks.
        embed: the samples' features under a model.
    """
    named = {f"{samples} {model}" for model in ask.references.values()}
    for name in list(memory)[:-1]:
        if name not in named:
            del memory[name]
    for model in ask.models.values():
        remember(memory, samples, model, embed(model))
    return at_hand(memory, samples, ask)


def at_hand(memory: Memory, samples: str, ask: Ask) -> dict[int, _Features]:
    """Those that are there already; nothing is forgotten."""
    named = {number: f"{samples} {model}" for number, model in ask.references.items()}
    return {number: memory[name] for number, name in named.items() if name in memory}


def known(memory: Memory, samples: str, model: Arrays) -> _Features | None:
    """The samples' features under a model, where they are kept."""
    return memory.get(f"{samples} {fingerprint(model)}")


def remember(memory: Memory, samples: str, model: Arrays, features: _Features) -> None:
    """Keep the samples' features under a model, as the latest."""
    name = f"{samples} {fingerprint(model)}"
    memory.pop(name, None)
    memory[name] = features
