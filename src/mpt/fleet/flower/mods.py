"""The vehicle's side of MPT in a Flower app of your own: answer the server's question for statistics.

    app = ClientApp()
    app.query("class_stats")(answer_statistics(embed))      # with @app.train() and the like
    app = ClientApp(client_fn, mods=[statistics_mod(embed)])    # with a NumPyClient

`mpt.fleet.flower.tracking` is the server's side. Neither needs torch.
"""

from collections.abc import Callable
from pathlib import Path

from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp.typing import ClientAppCallable, Mod
from numpy.typing import ArrayLike

from mpt.fleet import node
from mpt.fleet.exchange import Reply
from mpt.fleet.flower.records import MODEL, TYPES, read_ask, reply_content
from mpt.fleet.leave import LeaveFile
from mpt.protocol.request import StatisticsRequest
from mpt.tracking.errors import FleetError

Embed = Callable[[ArrayRecord, Context], tuple[ArrayLike, ArrayLike]]
"""From the global model and the vehicle's context to features (n, d) and labels (n,) of all its training samples."""

HELD_OUT = "mpt-held-out"
"""The entry of a training message's configuration that lists the held-out classes."""


def answer_statistics(embed: Embed, *, min_samples: int = 1) -> ClientAppCallable:
    """A function for `app.query("class_stats")`.

    A vehicle that `mpt vehicle leave` was called for (`leave-file` in its node config) says so with its answer. Classes
    that it has fewer samples of than `min_samples`, or than `min-samples` in its node config, are left out of it.

    Args:
        embed: gives features and labels of the vehicle's samples, held-out classes and all, under the global model in
            evaluation mode. Only their statistics leave the vehicle.
        min_samples: a class needs so many on a vehicle to be reported; a vehicle's node config may ask for more.
    """

    def answer(message: Message, context: Context) -> Message:
        ask = read_ask(message.content, "report")
        record = message.content[MODEL]
        assert isinstance(record, ArrayRecord)
        place = context.node_config
        told = max(min_samples, node.min_samples(place))
        features, labels = embed(record, context)
        leave = LeaveFile(Path(str(place["leave-file"]))) if "leave-file" in place else None
        leaving = leave is not None and leave.asked
        request = StatisticsRequest.from_bytes(ask.request)
        statistics = request.answer(features, labels, min_samples=told)
        vehicle = str(place.get("partition-id", place.get("name", context.node_id)))
        if leave is not None and leaving:
            leave.answered()
        return Message(reply_content(Reply(vehicle, ask.round, leaving, answer=statistics)), reply_to=message)

    return answer


def statistics_mod(embed: Embed, *, min_samples: int = 1) -> Mod:
    """The same as a mod, which passes every other message on.

    Flower applies the mods of an app without `client_fn` only to message types that it has a function for; there use
    `app.query("class_stats")(answer_statistics(embed))`.
    """
    answer = answer_statistics(embed, min_samples=min_samples)

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
