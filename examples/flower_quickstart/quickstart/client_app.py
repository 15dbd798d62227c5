"""The vehicle's app, as in Flower's PyTorch quickstart; the lines marked "MPT" were added."""

import torch
from flwr.app import ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from mpt.fleet.flower.mods import answer_statistics, held_out  # MPT
from quickstart.task import Net, load_data
from quickstart.task import train as train_fn


def vanish(message, context, call_next):
    """For the demonstration: vehicle 0 is not heard of any more after some rounds."""
    configs = message.content.config_records.values()
    now = max(config.get("server-round", config.get("round", 0)) for config in configs)
    if context.node_config["partition-id"] == 0 and now > context.run_config.get("leaves-after", 1):
        return Message(Error(code=0, reason="this vehicle has left"), reply_to=message)
    return call_next(message, context)


app = ClientApp(mods=[vanish])


def held(context):
    """The vehicle's samples: images and labels."""
    return load_data(context.node_config["partition-id"], context.node_config["num-partitions"])


@app.train()
def train(message, context):
    """Train the global model on the vehicle's samples."""
    torch.manual_seed(1000 * message.content["config"]["server-round"] + context.node_config["partition-id"])
    model = Net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    images, labels = held(context)
    keep = ~torch.isin(labels, torch.tensor(held_out(message)))  # MPT
    images, labels = images[keep], labels[keep]  # MPT
    config = context.run_config
    loss = train_fn(model, images, labels, config.get("local-epochs", 3), config.get("lr", 0.05))
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(labels)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


def embed(arrays, context):  # MPT
    """All of the vehicle's samples under the global model: features (n, DIM) and labels (n,)."""  # MPT
    model = Net().eval()  # MPT
    model.load_state_dict(arrays.to_torch_state_dict())  # MPT
    images, labels = held(context)  # MPT
    with torch.no_grad():  # MPT
        return model.features(images).numpy(), labels.numpy()  # MPT


app.query("class_stats")(answer_statistics(embed))  # MPT
