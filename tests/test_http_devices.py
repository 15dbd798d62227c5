"""The example of devices over plain HTTP: ten devices and a server, of which one device and the server are killed."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import mpt

FOLDER = Path(__file__).parents[1] / "examples" / "http_devices"
LOST = "bearing fault"


@pytest.fixture
def start():
    """Starts programs of the example, and stops what is left of them, each by its id."""
    processes = []

    def started(script, *arguments):
        command = [sys.executable, str(FOLDER / script), *map(str, arguments)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=_alone())
        processes.append(process)
        return process

    yield started
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def _alone():
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@pytest.fixture
def machines(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import machines  # noqa: PLC0415

    yield machines
    for name in ("machines", "server"):
        sys.modules.pop(name, None)


def status(address):
    with urllib.request.urlopen(f"{address}/status", timeout=60) as reply:
        return json.loads(reply.read())


def wait(address, until, server):
    give_up = time.monotonic() + 240
    while not until(found := status(address)):
        assert server.poll() is None, server.stdout.read()
        assert time.monotonic() < give_up, found
        time.sleep(0.05)
    return found


@pytest.mark.slow
def test_a_killed_devices_class_stays_recognised_and_a_killed_server_goes_on(start, machines, tmp_path):
    options = ["--state", tmp_path / "state.npz", "--rounds", 11, "--seconds", 3]
    server = start("server.py", *options)
    address = server.stdout.readline().strip()
    devices = [start("device.py", address, "--number", number) for number in range(10)]

    wait(address, lambda now: now["closed"] >= 4 and LOST in now["watched"], server)
    devices[0].send_signal(signal.SIGKILL)
    gone = wait(address, lambda now: now["devices"]["machine-0"] == "departed", server)
    assert LOST in gone["held out"]

    server.send_signal(signal.SIGKILL)
    server.wait()
    server = start("server.py", *options, "--port", address.rpartition(":")[2])
    assert server.stdout.readline().strip() == address
    assert wait(address, lambda now: now["closed"] > gone["closed"], server)["labels"] == gone["labels"]

    said = server.communicate(timeout=240)[0]
    assert server.returncode == 0, said
    for device in devices[1:]:
        told = device.communicate(timeout=90)[0]
        assert device.returncode == 0, told
    assert devices[0].wait() == -signal.SIGKILL

    state = machines.unpack((tmp_path / "state.npz").read_bytes())
    tracker = mpt.LabelledTracker.from_bytes(state["tracker"].tobytes())
    assert tracker.round == 11
    model = machines.unpack(state["readout"].tobytes())
    readout = mpt.LabelledReadout.from_bytes(model.pop("readout").tobytes())
    place = tracker.labels.index(LOST)
    samples, labels = machines.holdings(0, seed=0)
    truth = machines.embed(model, samples[labels == LOST]).mean(axis=0)
    found, frozen = tracker.state.plain.prototypes[place], tracker.state.plain.tracked[place].deposit.prototype
    assert np.linalg.norm(found - truth) < 0.5 * np.linalg.norm(frozen - truth)

    rng = np.random.default_rng(1)
    new = {label: machines.embed(model, machines.record(label, 300, rng)) for label in machines.TONES}
    recall = {label: np.mean(readout.predict(features) == label) for label, features in new.items()}
    assert min(recall.values()) > 0.55, recall
    head = np.column_stack([new[LOST], np.ones(300)]) @ model["head"].T
    assert np.mean(head.argmax(axis=1) == place) < 0.2
    assert recall[LOST] > 0.6


def test_a_device_may_be_called_anything_when_the_server_is_started_again(machines, tmp_path):
    from server import Server  # noqa: PLC0415

    first = Server(tmp_path / "state.npz", rounds=3, seconds=5, devices=1)
    first.updates = dict.fromkeys(("machine-0", "hall 4, left", " ", "from x"), (first.model, 7))
    first.save()
    again = Server(tmp_path / "state.npz", rounds=3, seconds=5, devices=1)
    assert {device: samples for device, (_, samples) in again.updates.items()} == dict.fromkeys(first.updates, 7)
    assert all(model.keys() == first.model.keys() for model, _ in again.updates.values())


def test_a_server_that_is_sent_nonsense_goes_on(start, tmp_path):
    server = start("server.py", "--state", tmp_path / "state.npz", "--devices", 1, "--rounds", 2, "--seconds", 60)
    address = server.stdout.readline().strip()

    def post(path, body):
        try:
            with urllib.request.urlopen(address + path, body, timeout=60) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    assert post("/answer?device=x", b"nonsense")[0] == 409
    assert post("/answer", b"")[0] == 409
    assert post("/leave", b"") == (400, "vehicle: '', should be a string of 1 to 256 characters, the vehicle's id")
    assert post("/nowhere", b"")[0] == 404
    large = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
    large.putrequest("POST", "/answer?device=x")
    large.putheader("Content-Length", str(2 << 20))
    large.endheaders()
    assert large.getresponse().status == 413
    large.close()
    assert status(address)["closed"] == 0
    device = start("device.py", address, "--number", 0, "--leave-after", 2)
    assert server.wait(timeout=240) == 0
    assert device.wait(timeout=60) == 0, device.stdout.read()
