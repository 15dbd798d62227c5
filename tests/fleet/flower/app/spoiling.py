"""The vehicle's app, spoiled: with `spoils="nan"` or `spoils="shape"` in its node config it sends nonsense."""

import numpy as np
from flwr.app import Array, Context, Message
from flwr.clientapp import ClientApp

from mpt.fleet.flower.vehicle_app import answer

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    reply, spoils = answer(message, context, "train", {}), context.node_config.get("spoils")
    if spoils:
        bias = reply.content["model"]["head.bias"].numpy()
        bad = np.full_like(bias, np.nan) if spoils == "nan" else np.zeros(3, np.float32)
        reply.content["model"]["head.bias"] = Array(bad)
    return reply


@app.query("class_stats")
def class_stats(message: Message, context: Context) -> Message:
    reply = answer(message, context, "report", {})
    if context.node_config.get("spoils") == "shape":
        reply.content["mpt.reply"]["answer"] = b"nonsense"
    return reply
