"""The vehicle's side of MPT in a Flower app of your own: answer the server's question for statistics.

    app = ClientApp()
    app.query("class_stats")(answer_statistics(embed))      # with @app.train() and the like
    app = ClientApp(client_fn, mods=[statistics_mod(embed)])    # with a NumPyClient

`mpt.fleet.flower.tracking` is the server's side. Neither needs torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp.typing import ClientAppCallable, Mod
from numpy.typing import ArrayLike, NDArray

from mpt.fleet import node
from mpt.fleet.exchange import Arrays, Ask, Reply, fingerprint
from mpt.fleet.flower.draws import draws_unchanged
from mpt.fleet.flower.records import FEATURES, MODEL, TYPES, array_record, arrays_of, read_ask, reply_content
from mpt.fleet.leave import LeaveFile
from mpt.fleet.memory import recall, remember
from mpt.methods import find_part
from mpt.protocol.parts import Part
from mpt.protocol.question import read_question
from mpt.tracking.errors import FleetError

Embed = Callable[[ArrayRecord, Context], tuple[ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike, ArrayLike]]
"""From a global model and the vehicle's context to features (n, d) and labels (n,) of all its training samples.

They come in the same order under every model. With the method "mpt-x" features are kept for later rounds, as long as
the labels are the same. Where samples may be replaced by others with the same labels, give keys (n,) as a third array,
such as the names of files: then the keys must be the same too.
"""

HELD_OUT = "mpt-held-out"
"""The entry of a training message's configuration that lists the held-out classes."""


def answer_statistics(embed: Embed, *, min_samples: int = 1, method: str = "") -> ClientAppCallable:
    """A function for `app.query("class_stats")`.

    A vehicle that `mpt vehicle leave` was called for (`leave-file` in its node config) says so with its answer. Classes
    that it has fewer samples of than `min_samples`, or than `min-samples` in its node config, are left out of it.

    Args:
        embed: gives features and labels of the vehicle's samples, held-out classes and all, under the global model in
            evaluation mode. Only their statistics leave the vehicle. What it draws from Python's, NumPy's and torch's
            global generators changes nothing that is drawn after it. With the method "mpt-x" it is called with earlier
            global models too, and features are kept in the context.
        min_samples: a class needs so many on a vehicle to be reported; a vehicle's node config may ask for more.
        method: `path.py:Class` of your own, where the server has it too; those that come with MPT are found by name.
    """

    def find(name: str, part: str) -> Part:
        return find_part(name, part, method)

    def answer(message: Message, context: Context) -> Message:
        ask = read_ask(message.content, "report")
        question = read_question(ask.request)
        if question.round != ask.round:
            raise FleetError(f"request: of round {question.round}, but the message is of round {ask.round}")
        record = message.content[MODEL]
        assert isinstance(record, ArrayRecord)
        place = context.node_config
        told = max(min_samples, node.min_samples(place))
        with draws_unchanged():
            found = _Embedded.of(embed(record, context))
            earlier = _earlier(embed, ask, found, context) if ask.keep else {}
        leave = LeaveFile(Path(str(place["leave-file"]))) if "leave-file" in place else None
        leaving = leave is not None and leave.asked
        statistics = question.answer(found.features, found.labels, earlier, min_samples=told, find=find)
        vehicle = str(place.get("partition-id", place.get("name", context.node_id)))
        if leave is not None and leaving:
            leave.answered(may_follow=ask.may_follow)
        return Message(reply_content(Reply(vehicle, ask.round, leaving, answer=statistics)), reply_to=message)

    return answer


@dataclass(frozen=True, eq=False)
class _Embedded:
    """What the user's `embed` gave.

    Attributes:
        features: (n, d).
        labels: (n,).
        samples: what the samples are known by: their labels and keys, in their order.
    """

    features: NDArray[Any]
    labels: NDArray[Any]
    samples: str

    @classmethod
    def of(cls, given: tuple[ArrayLike, ...]) -> "_Embedded":
        if not isinstance(given, tuple | list) or len(given) not in (2, 3):
            raise FleetError("embed: it gave no features and labels, should give both, or both and keys")
        features, labels, *keys = map(np.asarray, given)
        for array in keys:
            if array.dtype.hasobject or array.shape != labels.shape:
                should = f"should be numbers or texts of shape {labels.shape}"
                raise FleetError(f"embed: keys are {array.dtype} of shape {array.shape}, {should}")
        parts = {str(i): np.frombuffer(array.tobytes(), np.uint8) for i, array in enumerate((labels, *keys))}
        return cls(features, labels, fingerprint(parts))


def _earlier(embed: Embed, ask: Ask, now: _Embedded, context: Context) -> dict[int, NDArray[Any]]:
    """By round, the samples' features under the reference models; this round's are kept. None leaves the vehicle."""
    record = context.state.get(FEATURES)
    memory = arrays_of(record) if isinstance(record, ArrayRecord) else {}

    def under(model: Arrays) -> NDArray[Any]:
        found = _Embedded.of(embed(array_record(model), context))
        if found.samples != now.samples:
            raise FleetError("embed: other samples under a reference model, should be the same in the same order")
        return found.features

    earlier = recall(memory, now.samples, ask, under)
    remember(memory, now.samples, ask.model, now.features)
    context.state[FEATURES] = array_record(memory)
    return earlier


def statistics_mod(embed: Embed, *, min_samples: int = 1, method: str = "") -> Mod:
    """The same as a mod, which passes every other message on.

    Flower applies the mods of an app without `client_fn` only to message types that it has a function for; there use
    `app.query("class_stats")(answer_statistics(embed))`.
    """
    answer = answer_statistics(embed, min_samples=min_samples, method=method)

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if message.metadata.message_type == TYPES["report"]:
            return answer(message, context)
        return call_next(message, context)

    return mod


def held_out(message: Message) -> tuple[int, ...]:
    """The classes whose samples a training message asks not to train on: those of departed vehicles."""
    for config in message.content.config_records.values():
        if HELD_OUT in config:
            classes = config[HELD_OUT]
            if not isinstance(classes, list) or not all(isinstance(c, int) for c in classes):
                raise FleetError(f"{HELD_OUT}: {classes!r}, should be a list of classes")
            return tuple(int(c) for c in classes)
    return ()
