"""deploy/nginx in front of a real SuperLink: vehicles come through, and the control API is for operators alone."""

import http.client
import json
import os
import re
import shutil
import socket
import ssl
import stat
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

for package in ("torch", "flwr", "cryptography"):
    pytest.importorskip(package, reason="the extra fleet is not installed")

from mpt.fleet.flower.loopback import CONNECTION, Loopback, free_port, program
from mpt.fleet.flower.supernode_program import GAVE_UP
from tests.fleet.flower.test_deployment import SETTINGS, state_of
from tests.fleet.flower.test_revocation import await_nodes, nodes

DEPLOY = Path(__file__).parents[3] / "deploy"
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin")
STRANGER, MALLORY = "stranger", "mallory"
NOT_FOR_VEHICLES = {"/v1/fleet/register-node", "/v1/fleet/unregister-node"}
needs_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


def certificate(name: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    script = ["sh", str(DEPLOY / "operator-certificate.sh"), name, str(folder)]
    return subprocess.run(script, capture_output=True, text=True, check=False)


def edited(path: Path, changes: dict[str, str]) -> str:
    """A file's text with these changes, each of which must have something to change."""
    text = path.read_text(encoding="utf-8")
    for old, new in changes.items():
        assert old in text, f"{path}: has no {old!r}"
        text = text.replace(old, new)
    return text


@dataclass
class Proxied(Loopback):
    """A SuperLink on loopback behind the proxy of deploy/nginx, and an operator's way to it."""

    front: int = field(default_factory=free_port)
    behind: int = 0
    roads: dict[str, int] = field(default_factory=dict)

    def __enter__(self) -> "Proxied":
        try:
            super().__enter__()
            self.behind, self.port = self.port, self.front  # vehicles connect to the front from now on
            assert certificate("alice", self.folder).returncode == 0
            assert certificate(MALLORY, self.folder / "other").returncode == 0
            self.start_front("front", self.front, {})
            self.start_road(CONNECTION, self.folder / "operator-alice")
            self.start_road(MALLORY, self.folder / "other" / f"operator-{MALLORY}")
        except BaseException:
            self.__exit__()
            raise
        tls = f'address = "127.0.0.1:{self.front}"\nroot-certificates = "{self.folder / "ca.crt"}"\n'
        plain = [f'[superlink.{n}]\naddress = "127.0.0.1:{p}"\ninsecure = true\n' for n, p in self.roads.items()]
        config = "\n".join((f'[superlink]\ndefault = "{CONNECTION}"\n', f"[superlink.{STRANGER}]\n{tls}", *plain))
        (self.folder / "flower" / "config.toml").write_text(config, encoding="utf-8")
        return self

    def __exit__(self, *details: object) -> None:
        for name in [name for name in self.processes if name.startswith("nginx-")]:
            self.stop_nginx(name)
        super().__exit__(*details)

    def stop_nginx(self, name: str) -> None:
        """Ask the master alone: it ends its workers, where a killed worker would be replaced by it."""
        process = self.processes.pop(name)
        process.terminate()
        process.wait(30)

    def start_front(self, name: str, port: int, changes: dict[str, str]) -> None:
        """The fleet's proxy, as Debian's nginx.conf would include it."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        usual = {
            "listen 8000 ssl;": f"listen 127.0.0.1:{port} ssl;",
            "listen [::]:8000 ssl;": "",
            "127.0.0.1:8001": f"127.0.0.1:{self.behind}",
            "/etc/mpt/": f"{self.folder}/",
            "/var/log/nginx/": f"{folder}/",
        }
        (folder / "site.conf").write_text(edited(DEPLOY / "nginx" / "mpt-superlink.conf", {**usual, **changes}))
        kinds = ("client_body", "proxy", "fastcgi", "scgi", "uwsgi")
        places = "".join(f"{kind}_temp_path temporary; " for kind in kinds)
        (folder / "nginx.conf").write_text(
            f"daemon off; pid nginx.pid; error_log stderr warn; events {{}} http {{ {places} include site.conf; }}"
        )
        self._nginx(f"nginx-{name}", folder, "nginx.conf", port)

    def start_road(self, name: str, pair: Path) -> None:
        """The operator's own nginx, with this certificate and key."""
        folder, port = self.folder / f"road-{name}", free_port()
        folder.mkdir()
        for source, copy in (("ca.crt", "ca.crt"), (f"{pair}.pem", "operator.pem"), (f"{pair}.key", "operator.key")):
            shutil.copy(self.folder / source, folder / copy)
        changes = {
            "listen 127.0.0.1:8002": f"listen 127.0.0.1:{port}",
            "proxy_pass https://fleet.example.com:8000;": f"proxy_ssl_name localhost; proxy_pass https://127.0.0.1:{self.front};",
        }
        (folder / "mpt-operator.conf").write_text(edited(DEPLOY / "nginx" / "mpt-operator.conf", changes))
        self._nginx(f"nginx-{name}", folder, "mpt-operator.conf", port)
        self.roads[name] = port

    def _nginx(self, name: str, folder: Path, config: str, port: int) -> None:
        root = ("-g", "user root;") if os.geteuid() == 0 else ()
        self._start(name, str(NGINX), "-p", str(folder), "-c", config, *root)
        self._await_port(name, port)

    def flwr(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [program("flwr"), *arguments], cwd=self.folder, env=self.environment, capture_output=True, text=True,
            timeout=1200, check=False,
        )  # fmt: skip

    def call(
        self,
        path: str,
        pair: tuple[str, str] | None = None,
        method: str = "POST",
        headers: dict[str, str] | None = None,
        port: int | None = None,
    ) -> int:
        """The status of a call with an empty body, over TLS to the proxy, with a certificate and its key or without."""
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        if pair is not None:
            context.load_cert_chain(self.folder / pair[0], self.folder / pair[1])
        connection = http.client.HTTPSConnection("127.0.0.1", port or self.front, timeout=60, context=context)
        try:
            connection.request(method, path, headers={"Content-Type": "application/protobuf", **(headers or {})})
            return connection.getresponse().status
        finally:
            connection.close()

    def runs(self) -> list[str]:
        said = self.flwr("list", CONNECTION, "--format", "json").stdout
        return [str(run["run-id"]) for run in json.loads(said[said.index("{") :])["runs"]]


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    with Proxied(tmp_path_factory.mktemp("proxied") / "fleet", DEPLOY / "flower") as started:
        yield started
    assert not started.processes
    assert not started.left_over()


@needs_openssl
def test_an_operators_certificate_is_for_clients_and_of_a_ca_of_its_own(tmp_path: Path) -> None:
    first, second = certificate("alice", tmp_path), certificate("bob", tmp_path)
    assert "a new CA" in first.stdout
    assert "operator-alice.key, operator-alice.pem: new, until" in first.stdout
    assert "were there" in second.stdout
    assert "operator-alice.key, operator-alice.pem: renewed" in certificate("alice", tmp_path).stdout
    kept = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    names = {"operators-ca.key", "operator-alice.key", "operator-bob.key"}
    assert {name for name, mode in kept.items() if mode == 0o600} == names
    assert len(kept) == 6
    for purpose, right in (("sslclient", True), ("sslserver", False)):
        command = ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile"]
        for name in ("alice", "bob"):
            files = [str(tmp_path / "operators-ca.crt"), str(tmp_path / f"operator-{name}.pem")]
            done = subprocess.run([*command, *files], capture_output=True, check=False)
            assert (done.returncode == 0) is right


@needs_openssl
@pytest.mark.parametrize("name", ["", "-x", "a/b", "a b", "../a", "a\nb", "a" * 41])
def test_nonsense_is_refused_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    done = certificate(name, tmp_path)
    assert done.returncode == 2
    assert "name: '" in done.stderr
    assert not list(tmp_path.iterdir())


@needs_openssl
def test_half_a_ca_is_no_ca(tmp_path: Path) -> None:
    certificate("alice", tmp_path)
    (tmp_path / "operators-ca.key").unlink()
    done = certificate("alice", tmp_path)
    assert done.returncode == 2
    assert "alone, should have both" in done.stderr


def test_the_page_binds_the_unit_of_the_superlink_to_loopback() -> None:
    def command(text: str) -> list[str]:
        return re.findall(r"^ExecStart=(\S.*)$", text.replace("\\\n", " "), re.MULTILINE)[0].split()

    unit = (DEPLOY / "systemd" / "mpt-superlink.service").read_text(encoding="utf-8")
    page = (DEPLOY.parent / "docs" / "how-to" / "control-port.md").read_text(encoding="utf-8")
    here = {"0.0.0.0": "127.0.0.1", "8000": "8001"}
    assert command(page) == [here.get(word, word) for word in command(unit)]


@needs_nginx
@needs_openssl
@pytest.mark.slow
def test_every_path_of_flower_is_decided(net: Proxied) -> None:
    from flwr.superlink.main import create_app

    def right(path: str) -> int:
        if path.startswith("/v1/control/"):
            return 403
        for_vehicles = path.startswith("/v1/fleet/") and path not in NOT_FOR_VEHICLES
        return 401 if for_vehicles else 404  # 401: the SuperLink's own word, as nothing is signed

    paths = [*create_app().openapi()["paths"], "/", "/docs", "/openapi.json", "/v1/control/"]
    assert {path: net.call(path) for path in paths} == {path: right(path) for path in paths}
    assert len([path for path in paths if right(path) == 401]) == 10


@needs_nginx
@needs_openssl
@pytest.mark.slow
def test_no_spelling_of_a_path_comes_through(net: Proxied) -> None:
    control = "control/list-runs"
    spelled = {
        f"/v1/fleet/../{control}": 403,
        f"/v1/fleet/pull-messages/../../{control}": 403,
        f"/v1/fleet/pull-messages%2f..%2f..%2f{control}": 403,
        f"//v1//{control}": 403,
        f"/v1/./{control}": 403,
        "/v1/%63ontrol/list-runs": 403,
        "/v1/control%2flist-runs": 403,
        f"/v1/{control}?a=/v1/fleet/pull-messages": 403,
        f"/v1/{control}/../../fleet/pull-messages": 401,
        f"/V1/{control}": 404,
        "/v1/%2563ontrol/list-runs": 404,
        "/v1/fleet/pull-messages/": 404,
    }
    assert {path: net.call(path) for path in spelled} == spelled
    assert net.call("/v1/fleet/pull-messages", method="GET") == 405


@needs_nginx
@needs_openssl
@pytest.mark.slow
def test_only_an_operators_certificate_opens_the_control_api(net: Proxied) -> None:
    alice, path = ("operator-alice.pem", "operator-alice.key"), "/v1/control/list-runs"
    assert net.call(path, alice) == 200
    assert net.call(path) == 403
    assert net.call(path, (f"other/operator-{MALLORY}.pem", f"other/operator-{MALLORY}.key")) == 403
    assert net.call(path, ("server.pem", "server.key")) == 403, "the fleet's own CA makes no operators"
    assert net.call(path, headers={"X-SSL-Client-Verify": "SUCCESS"}) == 403
    logged = (net.folder / "front" / "mpt-control.log").read_text().splitlines()
    assert [line for line in logged if '"CN=alice" SUCCESS POST /v1/control/list-runs 200' in line]
    assert [line for line in logged if f'"CN={MALLORY}" FAILED:' in line]


@needs_nginx
@needs_openssl
@pytest.mark.slow
def test_without_one_nothing_is_registered_and_nothing_is_run(net: Proxied) -> None:
    before, public = (nodes(net), net.runs()), net.key("wanted").with_name("wanted.pub")
    for who in (STRANGER, MALLORY):
        for command in (
            ("list", who),
            ("supernode", "register", str(public), who, "--name", "wanted"),
            ("run", str(net.app), who, "-c", "num-rounds=1"),
        ):
            done = net.flwr(*command)
            assert done.returncode != 0, f"{who}: {command}"
            assert "403" in done.stdout + done.stderr
    assert (nodes(net), net.runs()) == before


@needs_nginx
@needs_openssl
@pytest.mark.slow
def test_the_operators_road_is_for_flwr_alone(net: Proxied) -> None:
    def status(path: str, method: str = "POST", **headers: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", net.roads[CONNECTION], timeout=60)
        try:
            connection.request(method, path, headers={"Content-Type": "application/protobuf", **headers})
            return connection.getresponse().status
        finally:
            connection.close()

    path = "/v1/control/list-runs"
    assert status(path) == 200
    assert status(path, Origin="https://example.com") == 403, "a page in the operator's browser"
    assert status(path, "GET") == 405
    assert status("/v1/fleet/pull-messages") == 404


@needs_nginx
@needs_openssl
@pytest.mark.slow
def test_what_is_too_large_or_too_often_is_turned_away(net: Proxied) -> None:
    push, large = "/v1/fleet/push-object", {"Content-Length": str(33 * 2**20)}
    assert net.call(push, headers=large) == 413
    port = free_port()
    rare = {"burst=500 nodelay": "burst=3 nodelay", "rate=50r/s": "rate=1r/m"}
    net.start_front("rare", port, rare)
    try:
        answers = [net.call(push, headers={"flwr-public-key": "a key"}, port=port) for _ in range(6)]
        assert answers == [401] * 4 + [503] * 2, "503 is what a SuperNode tries again"
        assert net.call(push, headers={"flwr-public-key": "another"}, port=port) == 401
    finally:
        net.stop_nginx("nginx-rare")


def await_knock(port: int) -> None:
    """Until somebody has called in vain. It is reset: a handshake that is ended in order is another test's."""
    with socket.create_server(("127.0.0.1", port)) as door:
        door.settimeout(120)
        with door.accept()[0] as caller:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def cut_handshakes(port: int, until: Callable[[], bool]) -> None:
    """Answer and then end the connection, before TLS has said a word."""
    with socket.create_server(("127.0.0.1", port)) as door:
        door.settimeout(1)
        for _ in range(120):
            if until():
                return
            with suppress(TimeoutError), door.accept()[0] as caller:
                caller.shutdown(socket.SHUT_WR)
                caller.recv(1 << 16)
    raise AssertionError("nobody minds")


@needs_nginx
@needs_openssl
@pytest.mark.slow(minutes=2)
def test_a_fleet_works_through_it(net: Proxied, tmp_path: Path) -> None:
    for number in range(2):
        net.register(f"v{number}")
        net.start_vehicle(f"v{number}", f"partition-id={number} num-partitions=2")
    await_nodes(net, "online", "online")
    run = net.run(**SETTINGS, num_rounds=1, state=tmp_path / "state")
    net.stop_nginx("nginx-front")
    await_knock(net.front)
    net.start_front("front", net.front, {})
    said = net.flwr("log", run, CONNECTION).stdout
    assert "round 1 of 1: 2 of 2 updates" in said, said[-4000:] + net.log("superlink")[-4000:]
    logs = net.log("v0") + net.log("v1")
    assert "Connection successful after" in logs, "a restart of the proxy is no departure"
    assert run in net.runs()
    assert state_of(net, run) == "finished:completed"
    assert sorted(nodes(net).values()) == ["online", "online"]
    logged = (net.folder / "front" / "mpt-control.log").read_text()
    for path in ("register-node", "start-run", "stream-logs"):
        assert f'"CN=alice" SUCCESS POST /v1/control/{path} 200' in logged


@needs_nginx
@needs_openssl
@pytest.mark.slow
def test_a_vehicle_whose_handshake_is_cut_off_ends_and_is_back_when_it_is_started_again(net: Proxied) -> None:
    """Flower's SuperNode gives up there, and its process would stay."""
    others = set(nodes(net))
    net.register("cut")
    (number,) = set(nodes(net)) - others
    net.start_vehicle("cut", "partition-id=0 num-partitions=2")
    await_node(net, number, "online")
    net.stop_nginx("nginx-front")
    cut_handshakes(net.front, until=lambda: net.processes["cut"].poll() is not None)
    net.start_front("front", net.front, {})
    assert net.processes["cut"].returncode == GAVE_UP
    assert "the SuperNode ended by itself; see its lines above: was its connection cut" in net.log("cut")
    await_node(net, number, "offline")
    net.stop("cut")
    net.start_vehicle("cut", "partition-id=0 num-partitions=2")
    await_node(net, number, "online")
    net.stop("cut")


def await_node(net: Proxied, number: str, status: str) -> None:
    """Until Flower gives it this status."""
    until = time.monotonic() + 300
    while (found := nodes(net)[number]) != status:
        assert time.monotonic() < until, f"{found}, should be {status}\n{net.log('cut')[-2000:]}"
        time.sleep(0.5)
