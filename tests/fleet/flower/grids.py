"""A Flower grid without Flower's processes: every message goes straight to a client app."""

import pytest

pytest.importorskip("flwr", reason="the extra fleet is not installed")

from flwr.app import Context, Error, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity


def identified(monkeypatch):
    """Messages can be made, as in a server app's process (Flower's own name for it is internal)."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class DirectGrid(Grid):
    """Nodes 10, 11, ... are partitions 0, 1, ...; those in `away` do not answer, those in `offline` are not there.

    Node 10 was registered as "vehicle-0"; `started` has what Flower says of its last start.
    """

    def __init__(self, app, partitions, node_config=None, run_config=None):
        self.app, self.replies, self.sent = app, {}, []
        self.away, self.offline = set(), set()
        self.contexts = {
            10 + p: Context(
                1, 10 + p, {"partition-id": p, **(node_config or {}).get(p, {})}, RecordDict(), dict(run_config or {})
            )
            for p in range(partitions)
        }
        self.started = dict.fromkeys(self.contexts, "2026-11-16T10:00:00")

    def get_node_ids(self):
        return [node for node in self.contexts if node not in self.offline]

    def get_nodes(self):
        return [
            NodeInfo(node_id=node, name=f"vehicle-{node - 10}", last_activated_at=self.started[node])
            for node in self.get_node_ids()
        ]

    def push_messages(self, messages):
        pushed = []
        for message in messages:
            number, node = f"message-{len(self.sent)}", message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = number
            self.sent.append(message)
            pushed.append(number)
            if node not in self.away:
                try:
                    self.replies[number] = self.app(message, self.contexts[node])
                except Exception as error:
                    self.replies[number] = Message(Error(2, str(error)), reply_to=message)
        return pushed

    def pull_messages(self, message_ids):
        return [self.replies.pop(number) for number in message_ids if number in self.replies]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *arguments, **options):
        raise NotImplementedError
