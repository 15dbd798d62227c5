"""The server's app, as in Flower's PyTorch quickstart; the lines marked "MPT" were added."""

import torch
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from mpt.fleet import Tracker  # MPT
from mpt.fleet.flower.tracking import Tracking  # MPT
from quickstart.task import DIM, NUM_CLASSES, RARE, Net, load_test_data

app = ServerApp()


@app.main()
def main(grid, context):
    """Train for some rounds, and evaluate on the server after each."""
    torch.manual_seed(context.run_config.get("seed", 0))
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0)
    shadow = context.run_config.get("shadow", False)  # MPT
    tracker = Tracker(num_classes=NUM_CLASSES, dim=DIM, watch=(RARE,), grace=0, shadow=shadow)  # MPT
    tracking = Tracking(grid, tracker, deadline=60)  # MPT

    def evaluate(server_round, arrays):
        model = Net().eval()
        model.load_state_dict(arrays.to_torch_state_dict())
        images, labels = load_test_data()
        with torch.no_grad():
            features = model.features(images)
            predicted = model.head(features).argmax(1)
        scores = {"accuracy": accuracy(predicted, labels), "rare-accuracy": rare_accuracy(predicted, labels)}
        if tracking.outcome is not None:  # MPT
            predicted = torch.from_numpy(tracking.outcome.readout.predict(features.numpy()))  # MPT
            scores["mpt-accuracy"] = accuracy(predicted, labels)  # MPT
            scores["mpt-rare-accuracy"] = rare_accuracy(predicted, labels)  # MPT
        return MetricRecord(scores)

    tracking.evaluate = evaluate  # MPT
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        num_rounds=context.run_config.get("num-server-rounds", 3),
        train_config=tracking.train_config,  # MPT
        evaluate_fn=tracking,  # MPT: was evaluate
    )


def accuracy(predicted, labels):
    """The share of test samples that are recognised."""
    return float((predicted == labels).float().mean())


def rare_accuracy(predicted, labels):
    """The same, of the rare class."""
    return accuracy(predicted[labels == RARE], labels[labels == RARE])
