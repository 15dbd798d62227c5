"""
Track a departed class in a Flower app
======================================

Four vehicles learn handwritten digits as clients of a Flower app. One of them leaves with nearly all nines, and MPT on
the server keeps the class alive. The example needs the extra ``fleet-sim``, which brings Flower's simulation on Ray,
and matplotlib.
"""

# %%
# The data and the model
# ----------------------
#
# A quarter of the digits is the server's test set. Vehicle 0 holds all nines of the rest but three, of which each
# other vehicle holds one.

import logging
import os
import tempfile

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"

import matplotlib.pyplot as plt
import torch
from flwr.app import ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from sklearn.datasets import load_digits
from sklearn.metrics import f1_score
from torch import nn

from mpt.fleet import Tracker
from mpt.fleet.flower.mods import answer_statistics, held_out
from mpt.fleet.flower.tracking import Tracking

NINE, DIM, VEHICLES, ROUNDS, LEAVES_AFTER = 9, 32, 4, 9, 4

pixels, labels = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
pixels = pixels.float() / 16
number = torch.arange(len(labels))
test = number % 4 == 0
owner = number // 4 % VEHICLES
nines = torch.nonzero((labels == NINE) & ~test).flatten()
owner[nines] = 0
owner[nines[:3]] = torch.tensor([1, 2, 3])


def network(arrays=None):
    """A small network; all of it but the last layer makes the features."""
    torch.manual_seed(0)
    hidden = (nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, DIM), nn.ReLU())
    model = nn.Sequential(*hidden, nn.Linear(DIM, 10))
    if arrays is not None:
        model.load_state_dict(arrays.to_torch_state_dict())
    return model.eval()


# %%
# The vehicle
# -----------
#
# This is an ordinary Flower app, with two additions for MPT. In training it leaves out the classes that the server
# holds out. And it answers the server's question for class statistics. ``answer_statistics`` is given a function that
# makes features and labels, and sends only sums of them. ``leave`` plays the vehicle that drives off.


def samples(context):
    """The vehicle's own."""
    mine = (owner == context.node_config["partition-id"]) & ~test
    return pixels[mine], labels[mine]


def leave(message, context, call_next):
    """Vehicle 0 is not heard of any more after some rounds."""
    configs = message.content.config_records.values()
    now = max(config.get("server-round", config.get("round", 0)) for config in configs)
    if context.node_config["partition-id"] == 0 and now > LEAVES_AFTER:
        return Message(Error(code=0, reason="this vehicle has left"), reply_to=message)
    return call_next(message, context)


vehicle = ClientApp(mods=[leave])


@vehicle.train()
def train(message, context):
    """Three epochs on the vehicle's samples."""
    model, (images, classes) = network(message.content["arrays"]), samples(context)
    keep = ~torch.isin(classes, torch.tensor(held_out(message)))  # for MPT
    images, classes = images[keep], classes[keep]
    server_round = message.content["config"]["server-round"]
    torch.manual_seed(10 * server_round + context.node_config["partition-id"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(3):
        for batch in torch.randperm(len(classes)).split(16):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), classes[batch]).backward()
            optimizer.step()
    metrics = MetricRecord({"num-examples": len(classes)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)


def embed(arrays, context):
    """Features and labels of all samples of the vehicle, for MPT."""
    images, classes = samples(context)
    with torch.no_grad():
        return network(arrays)[:-1](images).numpy(), classes.numpy()


answer = vehicle.query("class_stats")(answer_statistics(embed))  # for MPT

# %%
# The server
# ----------
#
# ``Tracking`` is an ``evaluate_fn`` of Flower's strategies. After every round it asks the vehicles, decides who has
# left, and makes the readout of the round. Then it calls the app's own evaluation. ``grace=0`` takes a vehicle for
# departed after one missed round, which suits a run of nine rounds. Real vehicles vanish and return: give them some
# rounds.

f1 = {"fedavg": {}, "mpt": {}}


def say(decisions):
    """What the tracker has decided about the class, without the vehicle's number."""
    for decision in decisions:
        if decision.classes and decision.what != "verdict":
            print(f"round {decision.round}: class {NINE} {decision.what}: {decision.why}")


def server(with_mpt):
    """Federated averaging, with MPT or without."""
    app = ServerApp()

    @app.main()
    def main(grid, context):
        tracking = None

        def evaluate(server_round, arrays):
            model = network(arrays)
            with torch.no_grad():
                features = model[:-1](pixels[test])
                predicted = model[-1](features).argmax(dim=1).numpy()
            if tracking is not None and tracking.outcome is not None:
                predicted = tracking.outcome.readout.predict(features.numpy())
            row = f1["mpt" if with_mpt else "fedavg"]
            row[server_round] = f1_score(labels[test] == NINE, predicted == NINE)

        options = {"evaluate_fn": evaluate}
        if with_mpt:
            tracker = Tracker(num_classes=10, dim=DIM, watch=(NINE,), grace=0)
            tracking = Tracking(grid, tracker, evaluate, log=say)
            options = {"evaluate_fn": tracking, "train_config": tracking.train_config}
        arrays = ArrayRecord(network().state_dict())
        FedAvg(fraction_evaluate=0.0).start(grid, arrays, num_rounds=ROUNDS, **options)

    return app


# %%
# Run it twice
# ------------
#
# Flower's simulation starts two processes, and the vehicles take turns in them. The first run is Flower alone. The
# second run has MPT.

temporary = tempfile.TemporaryDirectory()
os.environ["FLWR_HOME"] = temporary.name
os.environ["RAY_USAGE_STATS_ENABLED"] = os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
logging.getLogger("flwr").setLevel(logging.ERROR)
quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0}, "init_args": {"num_cpus": 2, **quiet}}
for with_mpt in (False, True):
    run_simulation(server(with_mpt), vehicle, num_supernodes=VEHICLES, backend_config=resources)

# %%
# Draw both
# ---------

COLOURS = {"fedavg": "#c8500a", "mpt": "#0b57c4"}
LABELS = {"fedavg": "without MPT: the model's last layer", "mpt": "with MPT: its readout"}

figure, axes = plt.subplots(figsize=(5.2, 3.9), dpi=140, layout="constrained")
rounds = range(1, ROUNDS + 1)
for row, colour in COLOURS.items():
    values = [f1[row][number] for number in rounds]
    axes.plot(rounds, values, "o-", color=colour, linewidth=2.4, label=LABELS[row])
axes.axvline(LEAVES_AFTER, color="0.6", linewidth=1, linestyle=":")
axes.annotate("the vehicle leaves", (LEAVES_AFTER + 0.1, 0.05), color="0.35", fontsize=9)
axes.set(xlabel="round", ylabel="F1 of the 9", ylim=(-0.03, 1.03))
axes.spines[["top", "right"]].set_visible(False)
figure.legend(loc="outside lower center", ncols=1, frameon=False, fontsize=9)
plt.show()
temporary.cleanup()

# %%
# The picture shows the F1 of the nines by round, in a Flower app as it is and in the same app with MPT. Flower adds
# the vehicles' updates in the order in which they arrive, so that the last digits may differ from run to run.
#
# Read on: :doc:`/how-to/flower-app` adds MPT to an app of yours, and :doc:`/how-to/deploy` runs a fleet on real
# machines.
