"""The vehicle's app: `mpt.fleet.flower.vehicle_app:app` in a Flower project."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp import ClientApp

from mpt.data import Dataset, Holding, hold
from mpt.federation.scenario import left_after, parse_events, present
from mpt.fleet.errors import FleetError
from mpt.fleet.exchange import Ask
from mpt.fleet.flower.config import AppConfig
from mpt.fleet.flower.records import FEATURES, absence, array_record, arrays_of, read_ask, reply_content
from mpt.fleet.holdings import loaded, named, samples, shared
from mpt.fleet.leave import LeaveFile
from mpt.fleet.vehicle import Vehicle
from mpt.learning import build, numpy_generator


def vehicle_app(**defaults: Any) -> ClientApp:
    """The app of a vehicle; `defaults` are settings of `AppConfig` for what the run's configuration leaves open."""
    made = ClientApp()

    @made.train()
    def train(message: Message, context: Context) -> Message:
        return answer(message, context, "train", defaults)

    @made.query("class_stats")
    def class_stats(message: Message, context: Context) -> Message:
        return answer(message, context, "report", defaults)

    return made


def answer(message: Message, context: Context, kind: str, defaults: Mapping[str, Any]) -> Message:
    """The reply to a question of either kind."""
    config = AppConfig.of({**defaults, **context.run_config})
    place = tuple(context.node_config.get(key) for key in ("partition-id", "num-partitions", "dataset", "name"))
    vehicle = vehicle_of(config, *place)
    ask = read_ask(message.content, kind)
    leave = LeaveFile(Path(str(context.node_config["leave-file"]))) if "leave-file" in context.node_config else None
    plays = _role(config, vehicle, ask)
    if plays == "absent":
        return Message(absence(), reply_to=message)
    leaving = plays == "leaving" or (leave is not None and leave.asked)
    vehicle = replace(vehicle, memory=_memory(context), min_samples=min_samples(context.node_config))
    reply = vehicle.answer(ask, leaving=leaving)
    if ask.keep:
        context.state[FEATURES] = array_record(vehicle.memory)
    if leave is not None and leaving:
        leave.answered()
    return Message(reply_content(reply), reply_to=message)


def min_samples(node_config: Mapping[str, Any]) -> int:
    """Of how many samples a class has to be for the vehicle to report on it."""
    given = node_config.get("min-samples", 1)
    if not isinstance(given, int) or given < 1:
        raise FleetError(f"node config: min-samples = {given!r}, should be a whole number of at least 1")
    return given


def _memory(context: Context) -> dict[str, Any]:
    """The features that this vehicle keeps between two messages; they stay on it."""
    record = context.state.get(FEATURES)
    return arrays_of(record) if isinstance(record, ArrayRecord) else {}


@cache
def vehicle_of(config: AppConfig, partition: object, partitions: object, dataset: object, name: object) -> Vehicle:
    """The vehicle, from the run's configuration and its own."""
    if dataset is None and not (isinstance(partition, int) and isinstance(partitions, int)):
        raise FleetError("node config: should have a dataset, or partition-id and num-partitions")
    data: Dataset | Holding
    if isinstance(partition, int) and isinstance(partitions, int):
        data = loaded(str(dataset or config.dataset), image_size=config.image_size, per_class=config.per_class)
        held = shared(data, partition, partitions, rare=config.rare, remaining=config.remaining, seed=config.seed)
    else:
        if not config.class_names:
            raise FleetError(
                "config: classes is empty, should name the fleet's where vehicles have datasets of their own"
            )
        data = hold(str(dataset), image_size=config.image_size or None, per_class=config.per_class or None)
        held = samples(data.train, grey_as_colour=config.channels == 3)
    classes = config.class_names or data.classes
    _, channels, size, _ = held.images.shape
    model = build(config.backbone, num_classes=len(classes), in_channels=channels, image_size=size, seed=config.seed)
    return Vehicle(
        str(name if partition is None else partition), model, named(held, data, classes), config.training, config.seed
    )


def _role(config: AppConfig, vehicle: Vehicle, ask: Ask) -> Literal["present", "absent", "leaving"]:
    """In a simulation, what the scenario has for this vehicle."""
    if config.fail and numpy_generator(config.seed, "failure", ask.round, vehicle.name).random() < config.fail:
        return "absent"
    events = parse_events(config.events)
    if not events:
        return "present"
    number = int(vehicle.name)
    if number not in present([number], events, ask.round):
        return "absent"
    return "leaving" if ask.kind == "report" and number in left_after(events, ask.round) else "present"


app = vehicle_app()
