"""All of it on one machine: a server and ten devices, of which one is killed and one says goodbye.

python play.py
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
from machines import TONES, embed, record, unpack

import mpt

HERE = Path(__file__).parent
KILLED, LEAVES, ROUNDS = 5, 8, 16


def start(script, *arguments, **options):
    """A program of this folder in a process of its own."""
    return subprocess.Popen([sys.executable, HERE / script, *map(str, arguments)], **options)


def wait_for_round(address, number):
    """Until a round is closed; what the server says then."""
    while True:
        with urllib.request.urlopen(f"{address}/status", timeout=30) as reply:
            status = json.loads(reply.read())
        if status["closed"] >= number:
            return status
        time.sleep(0.05)


def recall(state):
    """Which share of new windows of each kind is recognised: by what the server has kept, and by the network's head."""
    model = unpack(unpack(state.read_bytes())["readout"].tobytes())
    readout = mpt.LabelledReadout.from_bytes(model.pop("readout").tobytes())
    labels, rng, found = np.array(readout.labels), np.random.default_rng(99), {}
    for label in TONES:
        features = embed(model, record(label, 300, rng))
        head = labels[np.argmax(features @ model["head"][:, :-1].T + model["head"][:, -1], axis=1)]
        found[label] = np.mean(readout.predict(features) == label), np.mean(head == label)
    return found


def main():
    """Start all, kill one, stop all."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state.npz"
        server = start("server.py", "--state", state, "--rounds", ROUNDS, stdout=subprocess.PIPE, text=True)
        processes = [server]
        try:
            address = server.stdout.readline().strip()
            leaves = {1: ["--leave-after", LEAVES]}
            devices = [start("device.py", address, "--number", i, *leaves.get(i, [])) for i in range(10)]
            processes += devices
            wait_for_round(address, KILLED)
            devices[0].send_signal(signal.SIGKILL)
            print(server.stdout.read(), end="")
            for process in processes:
                process.wait()
            for label, (share, head) in recall(state).items():
                print(f"{label:13} {share:4.0%} recognised, {head:4.0%} by the network's own head")
        finally:
            for process in processes:
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
