"""The vehicle's app: `mpt.fleet.flower.vehicle_app:app` in a Flower project."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Literal

from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp import ClientApp

from mpt.data import Dataset, LocalData, load_local, load_local_cached
from mpt.fleet.exchange import Ask, Kind
from mpt.fleet.flower.config import AppConfig, dashed, known
from mpt.fleet.flower.records import FEATURES, absence, array_record, arrays_of, read_ask, reply_content
from mpt.fleet.leave import LeaveFile
from mpt.fleet.local_data import loaded, named, samples, shared
from mpt.fleet.node import NodeConfig
from mpt.fleet.vehicle import Vehicle, set_aside
from mpt.learning import build, numpy_generator
from mpt.scenario import Presence, left_after, parse_events, present, read_presence
from mpt.tracking.errors import FleetError


def vehicle_app(**defaults: Any) -> ClientApp:
    """The app of a vehicle; `defaults` are settings of `AppConfig` for what the run's configuration leaves open."""
    made = ClientApp()

    @made.train()
    def train(message: Message, context: Context) -> Message:
        return answer(message, context, "train", defaults)

    @made.query("class_stats")
    def class_stats(message: Message, context: Context) -> Message:
        return answer(message, context, "report", defaults)

    @made.query("evaluation")
    def evaluation(message: Message, context: Context) -> Message:
        return answer(message, context, "evaluate", defaults)

    return made


def answer(message: Message, context: Context, kind: Kind, defaults: Mapping[str, Any]) -> Message:
    """The reply to a question of any kind. Whoever is to leave says so when it is asked to train or to report."""
    config, node = AppConfig.of(known({**dashed(defaults), **context.run_config})), NodeConfig.of(context.node_config)
    vehicle = vehicle_of(config, node)
    ask = read_ask(message.content, kind)
    leave = None if node.leave_file is None else LeaveFile(node.leave_file)
    plays = role(config, vehicle, ask)
    if plays == "absent":
        return Message(absence(), reply_to=message)
    leaving = kind != "evaluate" and (plays == "leaving" or (leave is not None and leave.asked))
    vehicle = replace(vehicle, memory=_memory(context))
    reply = vehicle.answer(ask, leaving=leaving)
    if ask.keep:
        context.state[FEATURES] = array_record(vehicle.memory)
    if leave is not None and leaving:
        leave.answered(may_follow=ask.may_follow)
    return Message(reply_content(reply), reply_to=message)


def _memory(context: Context) -> dict[str, Any]:
    """The features that this vehicle keeps between two messages; they stay on it."""
    record = context.state.get(FEATURES)
    return arrays_of(record) if isinstance(record, ArrayRecord) else {}


@cache
def vehicle_of(config: AppConfig, node: NodeConfig) -> Vehicle:
    """The vehicle, from the run's configuration and its own."""
    data: Dataset | LocalData
    if node.partition_id is not None and node.num_partitions is not None:
        data = loaded(node.dataset or config.dataset, image_size=config.image_size, per_class=config.per_class)
        held = shared(
            data, node.partition_id, node.num_partitions, rare=config.rare, remaining=config.remaining, seed=config.seed
        )
    else:
        data = _own(config, node)
        held = samples(data.train, grey_as_colour=config.channels == 3)
    classes = config.class_names or data.classes
    _, channels, size, _ = held.images.shape
    model = build(
        config.backbone,
        num_classes=len(classes),
        in_channels=channels,
        image_size=size,
        seed=config.seed,
        freeze=config.freeze,
    )
    ours, unknown = named(held, data, classes)
    share = config.validation if node.validation is None else min(config.validation, node.validation)
    kept, aside = set_aside(ours, share, numpy_generator(config.seed, "validation", 0, node.vehicle))
    return Vehicle(
        node.vehicle,
        model,
        kept,
        config.training,
        config.seed,
        node.min_samples,
        config.method,
        config.loss,
        unknown,
        validation=aside,
    )


def _own(config: AppConfig, node: NodeConfig) -> LocalData:
    """A vehicle's own samples; decoded once where there is a file to keep them in."""
    if node.partition_id is not None or node.num_partitions is not None:
        lacking = "num-partitions" if node.num_partitions is None else "partition-id"
        raise FleetError(f"node config: {lacking} is missing, should be given with the other of the two")
    if node.dataset is None:
        raise FleetError("node config: should have a dataset, or partition-id and num-partitions")
    if not config.class_names:
        raise FleetError("config: classes is empty, should name the fleet's where vehicles have datasets of their own")
    size, most = config.image_size or None, config.per_class or None
    if node.images_file is None:
        return load_local(node.dataset, image_size=size, per_class=most)
    return load_local_cached(node.dataset, path=node.images_file, image_size=size, per_class=most)


def role(config: AppConfig, vehicle: Vehicle, ask: Ask) -> Literal["present", "absent", "leaving"]:
    """In a simulation, what the scenario has for this vehicle."""
    if config.fail and numpy_generator(config.seed, "failure", ask.round, vehicle.name).random() < config.fail:
        return "absent"
    if not config.events:
        return "present"
    if not vehicle.name.isdecimal():
        raise FleetError("node config: partition-id is missing, should be given where the run has events")
    here, leaving = _there(config.events, int(vehicle.name), ask.round)
    if not here:
        return "absent"
    return "leaving" if ask.kind == "report" and leaving else "present"


def _there(events: str, number: int, round: int) -> tuple[bool, bool]:
    """Whether a vehicle is there and answers in a round, and whether it says goodbye; by events, or by a presence."""
    if not events.endswith(".csv"):
        listed = parse_events(events)
        return number in present([number], listed, round), number in left_after(listed, round)
    presence = presence_of(events)
    if round > presence.rounds or number >= len(presence.vehicles):
        return False, False
    return number in presence.answering(round), number in presence.leaving(round)


@cache
def presence_of(path: str) -> Presence:
    """The presence in a file; vehicle 0 of the simulation is its first."""
    return read_presence(path)


app = vehicle_app()
