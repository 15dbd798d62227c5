"""A vehicle's key is revoked with `flwr supernode unregister`, on a real SuperLink with TLS and node authentication."""

import json
import subprocess
import time
from pathlib import Path

import pytest

for package in ("torch", "flwr", "cryptography"):
    pytest.importorskip(package, reason="the extra fleet is not installed")

from mpt.fleet.flower.loopback import CONNECTION, Loopback, program

APP = Path(__file__).parents[3] / "deploy" / "flower"
CONFIG = "partition-id=0 num-partitions=2"


def flwr(net, *arguments):
    command = [program("flwr"), "supernode", *arguments]
    return subprocess.run(command, cwd=net.folder, env=net.environment, capture_output=True, text=True, check=False)


def nodes(net):
    said = flwr(net, "list", CONNECTION, "--format", "json").stdout
    return {node["node-id"]: node["status"] for node in json.loads(said[said.index("{") :])["nodes"]}


def await_nodes(net, *statuses, seconds=300):
    """The nodes' ids, once Flower gives them these statuses."""
    until = time.monotonic() + seconds
    while sorted((found := nodes(net)).values()) != sorted(statuses):
        assert time.monotonic() < until, f"{found}, should be {statuses}\n{net.log('v0')[-2000:]}"
        time.sleep(0.5)
    return list(found)


@pytest.mark.slow
def test_a_revoked_key_is_out_at_once_and_for_good(tmp_path):
    with Loopback(tmp_path, APP) as net:
        net.register("v0")
        net.start_vehicle("v0", CONFIG)
        (node,) = await_nodes(net, "online")

        assert flwr(net, "unregister", node, CONNECTION).returncode == 0
        assert await_nodes(net, "unregistered") == [node]
        assert net.processes["v0"].wait(300) == 1
        assert "the SuperNode ended by itself" in net.log("v0")

        net.stop("v0")
        before = len(net.log("v0"))
        net.start_vehicle("v0", CONFIG)
        assert net.processes["v0"].wait(300) == 1
        assert "Failed to activate SuperNode" in net.log("v0")[before:]
        again = flwr(net, "register", str(net.key("v0")) + ".pub", CONNECTION, "--name", "v0")
        assert again.returncode != 0
        assert "Public key already in use" in again.stdout + again.stderr
        assert nodes(net) == {node: "unregistered"}
    assert not net.left_over()
