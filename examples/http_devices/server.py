"""The server: asks devices over plain HTTP, and keeps recognising what those measured that are gone.

    python server.py --state state.npz --devices 10

    GET  /task?after=3          the model and the question of a later round; 204: not yet, 410: it is all over
    POST /answer?device=ID      a device's answer and its trained model; 409 with a sentence where it does not count
    POST /leave?device=ID       this round was the device's last
    GET  /readout               the model and the readout, to recognise with
    GET  /status                for people

What it knows is in one file, whole after every message: killed and started again, it goes on in the middle of a round.
"""

import argparse
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import numpy as np
from machines import averaged, new_model, pack, unpack, with_rows

import mpt

LARGEST = 1 << 20


class Server:
    """The tracker, the model and the models that came back in this round, behind one lock."""

    def __init__(self, path, rounds, seconds, devices):
        self.path, self.rounds, self.seconds = path, rounds, seconds
        self.changed = threading.Condition()
        self.updates, self.readout, self.told = {}, b"", set()
        if path.exists():
            self.load()
            return
        self.tracker, self.model = mpt.LabelledTracker(method="mpt-x", grace=1), new_model(seed=0)
        self.tracker.begin(expected=[f"machine-{i}" for i in range(devices)])  # however long they take to start
        self.save()

    @property
    def over(self):
        """Whether all rounds are closed."""
        return self.tracker.round >= self.rounds

    def save(self):
        """All of it, whole or not at all."""
        parts = {"tracker": self.tracker.to_bytes(), "readout": self.readout}
        parts |= {f"model {name}": array for name, array in self.model.items()}
        for device, (model, samples) in self.updates.items():
            parts |= {f"from {device} {name}": array for name, array in {**model, "samples": samples}.items()}
        partial = self.path.with_suffix(".partial")
        partial.write_bytes(pack(**parts))
        os.replace(partial, self.path)

    def load(self):
        """What `save` wrote."""
        parts = unpack(self.path.read_bytes())
        self.tracker = mpt.LabelledTracker.from_bytes(parts["tracker"].tobytes())
        self.readout = parts["readout"].tobytes()
        self.model = {key.removeprefix("model "): a for key, a in parts.items() if key.startswith("model ")}
        found = {}
        for key, array in parts.items():
            if key.startswith("from "):
                device, _, name = key.removeprefix("from ").rpartition(" ")
                found.setdefault(device, {})[name] = array
        self.updates = {device: (model, int(model.pop("samples"))) for device, model in found.items()}

    def receive(self, device, body):
        """An answer, and the model that came with it; why it does not count, or an empty text."""
        with self.changed:
            try:
                parts = unpack(body)
                answer, samples = parts.pop("answer").tobytes(), int(parts.pop("samples"))
                shapes = {name: array.shape for name, array in parts.items()}
                right = all(np.isfinite(array).all() for array in parts.values()) and 0 <= samples < 1 << 20
            except Exception as error:  # whatever it is, it is this message's own
                return f"the message cannot be read: {error!r}"
            if why := self.tracker.receive(device, answer):
                return why
            if right and samples and shapes == {name: array.shape for name, array in self.model.items()}:
                self.updates[device] = (parts, samples)
            self.save()
            self.changed.notify_all()
            return ""

    def leave(self, device):
        """A device has said goodbye."""
        with self.changed:
            self.tracker.leave(device)
            self.save()
            self.changed.notify_all()

    def task(self, after):
        """What a device is to do next; None as long as there is nothing new."""
        with self.changed:
            self.changed.wait_for(lambda: self.over or self.tracker.question().round > after, timeout=2)
            if self.over or self.tracker.question().round <= after:
                return None
            return pack(question=self.tracker.question().to_bytes(), **self.model)

    def run(self):
        """Close one round after the other, each when everybody is heard or its time is over."""
        while not self.over:
            with self.changed:
                while (outcome := self.tracker.poll()) is None:
                    self.changed.wait(self.tracker.seconds_left)
                self.readout = pack(readout=outcome.readout.to_bytes(), **self.model) if outcome.readout else b""
                if self.updates:
                    self.model = averaged(list(self.updates.values()))
                self.model, self.updates = with_rows(self.model, len(self.tracker.labels)), {}
                if not self.over:
                    self.tracker.begin(self.seconds)
                self.save()
                self.changed.notify_all()
            for said in (*outcome.decisions, *outcome.problems):
                print(said, flush=True)
        give_up = time.monotonic() + 10
        there = self.tracker.roster.having("present", "late", "refused", "suspected")
        while not self.told.issuperset(there) and time.monotonic() < give_up:
            time.sleep(0.05)

    def status(self):
        """For people."""
        with self.changed:
            tracker = self.tracker
            states = {device: member.state for device, member in tracker.roster.members.items()}
            about = {"closed": tracker.round, "labels": tracker.labels, "watched": tracker.watched}
            return {**about, "held out": tracker.held_out, "answered": tracker.answered, "devices": states}


class Handler(BaseHTTPRequestHandler):
    """One request of a device."""

    def do_GET(self):
        """A task, the readout, or the status."""
        server, url = self.server.mine, urlparse(self.path)
        asked = parse_qs(url.query)
        if url.path == "/status":
            self.say(200, json.dumps(server.status(), indent=2).encode() + b"\n")
        elif url.path == "/readout":
            self.say(200 if server.readout else 204, server.readout)
        elif url.path == "/task":
            number = asked.get("after", ["0"])[0]
            task = server.task(int(number) if number.isdecimal() else 0)
            over = server.over
            self.say(200 if task else 410 if over else 204, task or b"")
            if over and not task:
                server.told.add(asked.get("device", [""])[0])
        else:
            self.say(404, b"")

    def do_POST(self):
        """An answer, or a goodbye."""
        server, url = self.server.mine, urlparse(self.path)
        size, device = self.headers.get("Content-Length", ""), parse_qs(url.query).get("device", [""])[0]
        if not size.isdecimal() or int(size) > LARGEST:
            self.say(413, b"")
            return
        body = self.rfile.read(int(size))
        try:
            if url.path == "/answer":
                why = "it is over" if server.over else server.receive(device, body)
                self.say(409 if why else 200, why.encode())
            elif url.path == "/leave":
                server.leave(device)
                self.say(200, b"")
            else:
                self.say(404, b"")
        except mpt.MptError as error:
            self.say(400, str(error).encode())

    def say(self, status, body):
        """Reply."""
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:  # the device is gone
            self.close_connection = True

    def log_message(self, *_):
        """Nothing for every request."""


def main():
    """Serve until all rounds are closed."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--port", type=int, default=0, help="0: any that is free")
    options.add_argument("--state", type=Path, default=Path("state.npz"), help="file to keep the state in")
    options.add_argument("--rounds", type=int, default=16)
    options.add_argument("--seconds", type=float, default=5, help="that a round lasts at most")
    options.add_argument("--devices", type=int, default=10, help="that the first round waits for")
    chosen = options.parse_args()
    http = ThreadingHTTPServer(("127.0.0.1", chosen.port), Handler)
    http.daemon_threads = True
    http.mine = Server(chosen.state, chosen.rounds, chosen.seconds, chosen.devices)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{http.server_port}", flush=True)
    http.mine.run()
    http.shutdown()


if __name__ == "__main__":
    main()
