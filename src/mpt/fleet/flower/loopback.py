"""A whole fleet on one machine: certificates, keys, a SuperLink and vehicles on loopback, all ended at the end."""

import datetime
import ipaddress
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mpt.tracking.errors import FleetError

CONNECTION = "mpt"
"""Not "fleet": where there is a folder of that name, flwr takes it for an app's."""
_YEAR = datetime.timedelta(days=365)


@dataclass
class Loopback:
    """A SuperLink with TLS and node authentication on a free port, and vehicles that `mpt vehicle` starts.

    Attributes:
        folder: for certificates, keys, the SuperLink's database, logs and Flower's own files.
        app: the Flower app to run.
    """

    folder: Path
    app: Path
    port: int = 0
    processes: "dict[str, subprocess.Popen[bytes]]" = field(default_factory=dict)
    _logs: list[IO[bytes]] = field(default_factory=list)

    def __enter__(self) -> "Loopback":
        self.folder, self.app, self.port = self.folder.resolve(), self.app.resolve(), self.port or free_port()
        (self.folder / "keys").mkdir(parents=True, exist_ok=True)
        if not (self.folder / "ca.crt").exists():
            make_certificates(self.folder)
        home = self.folder / "flower"
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "127.0.0.1:{self.port}"\nroot-certificates = "{self.folder / "ca.crt"}"\n',
            encoding="utf-8",
        )
        self.start_superlink()
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.processes):
            self.stop(name)
        until = time.monotonic() + 10
        while (left := self.left_over()) and time.monotonic() < until:
            for pid in left:
                _signal(pid, signal.SIGKILL)
            time.sleep(0.1)
        for log in self._logs:
            log.close()

    @property
    def environment(self) -> dict[str, str]:
        """For everything that is started: nothing is fetched, nothing phones home, one thread a process."""
        return {
            **os.environ,
            "FLWR_HOME": str(self.folder / "flower"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        }

    def start_superlink(self) -> None:
        """On its database, where there is one."""
        tls = ("--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.pem", "--ssl-keyfile", "server.key")
        here = ("--host", "127.0.0.1", "--port", str(self.port), "--database", "superlink.db")
        self._start("superlink", program("flower-superlink"), *tls, *here, "--enable-supernode-auth",
                    "--disable-runtime-dependency-installation")  # fmt: skip
        self._await_port("superlink", self.port)

    def register(self, name: str) -> Path:
        """Make a vehicle's key, if it has none, and let it in; the private key's path."""
        key = self.key(name)
        self._flwr("supernode", "register", str(key.with_name(f"{name}.pub")), CONNECTION, "--name", name)
        return key

    def key(self, name: str) -> Path:
        """A vehicle's private key, made where it has none."""
        path = self.folder / "keys" / name
        if not path.exists():
            make_key(path)
        return path

    def start_vehicle(self, name: str, node_config: str, *arguments: str) -> None:
        """Let `mpt vehicle` start its SuperNode; its key need not be registered."""
        where = ("--superlink", f"127.0.0.1:{self.port}", "--root-certificates", str(self.folder / "ca.crt"))
        own = ("--key", str(self.key(name)), "--port", str(free_port()), "--node-config", node_config)
        self._start(name, sys.executable, "-m", "mpt", "vehicle", *where, *own, *arguments)

    def run(self, **config: Any) -> str:
        """Start a run of the app with these settings; the run's id."""
        given = " ".join(f"{k.replace('_', '-')}={_toml(v)}" for k, v in config.items())
        said = self._flwr("run", str(self.app), CONNECTION, "-c", given, "--format", "json")
        answer = json.loads(said[said.index("{") :])
        if not answer.get("success"):
            raise FleetError(f"flwr run: {answer.get('error-message')}")
        return str(answer["run-id"])

    def stop(self, name: str, number: int = signal.SIGKILL) -> None:
        """End what was started under this name, and all that it has started, by their group."""
        process = self.processes.pop(name, None)
        if process is None:
            return
        for pid in family(process.pid):
            _signal(pid, number)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()

    def left_over(self) -> list[int]:
        """What still runs of all that was started here: a client's process can outlive its SuperNode."""
        mark = f"FLWR_HOME={self.folder / 'flower'}".encode()
        return [pid for pid in _pids() if pid != os.getpid() and mark in _read(pid, "environ").split(b"\0")]

    def log(self, name: str) -> str:
        """What a process has printed."""
        path = self.folder / "logs" / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def _start(self, name: str, *command: str) -> None:
        if name in self.processes:
            raise FleetError(f"{name}: it is running already")
        (self.folder / "logs").mkdir(exist_ok=True)
        log = (self.folder / "logs" / f"{name}.log").open("ab")
        self._logs.append(log)
        self.processes[name] = subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )

    def _await_port(self, name: str, port: int, seconds: float = 60.0) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.processes[name].poll() is not None:
                break
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.2)
        raise FleetError(f"{name}: it did not start; its log ends with:\n{self.log(name)[-2000:]}")

    def _flwr(self, *arguments: str) -> str:
        done = subprocess.run(
            [program("flwr"), *arguments], cwd=self.folder, env=self.environment, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        if done.returncode:
            raise FleetError(f"flwr {' '.join(arguments[:2])}: {(done.stdout + done.stderr)[-2000:]}")
        return done.stdout


def program(name: str) -> str:
    """A command that was installed beside Python."""
    return str(Path(sys.executable).with_name(name))


def free_port() -> int:
    """One that nobody uses on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_key(path: Path) -> None:
    """An ECDSA key (P-384) as ssh-keygen would make it: PATH and PATH.pub."""
    key = ec.generate_private_key(ec.SECP384R1())
    form, none = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    _private(path, key.private_bytes(serialization.Encoding.PEM, form, none))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    path.with_name(f"{path.name}.pub").write_bytes(public + b"\n")


def make_certificates(folder: Path) -> None:
    """`ca.crt`, and `server.pem` and `server.key` signed with it, for localhost and 127.0.0.1.

    They have what `deploy/certificates.sh` gives them: `openssl verify -x509_strict` takes them.
    """
    now = datetime.datetime.now(datetime.UTC)
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "MPT fleet CA")])

    def certificate(name: x509.Name, key: Any, *extensions: x509.ExtensionType) -> bytes:
        made = x509.CertificateBuilder().subject_name(name).issuer_name(issuer).public_key(key.public_key())
        made = made.serial_number(x509.random_serial_number()).not_valid_before(now).not_valid_after(now + _YEAR)
        for extension in (*extensions, x509.SubjectKeyIdentifier.from_public_key(key.public_key())):
            critical = isinstance(extension, x509.BasicConstraints | x509.KeyUsage)
            made = made.add_extension(extension, critical=critical)
        return made.sign(authority, hashes.SHA384()).public_bytes(serialization.Encoding.PEM)

    signs = _key_usage(key_cert_sign=True, crl_sign=True)
    ca = certificate(issuer, authority, x509.BasicConstraints(ca=True, path_length=0), signs)
    (folder / "ca.crt").write_bytes(ca)
    pem = certificate(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "MPT fleet server")]),
        server,
        x509.BasicConstraints(ca=False, path_length=None),
        _key_usage(digital_signature=True),
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
        x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))],
        ),
    )
    (folder / "server.pem").write_bytes(pem)
    form, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    _private(folder / "server.key", server.private_bytes(serialization.Encoding.PEM, form, none))


def _key_usage(**granted: bool) -> x509.KeyUsage:
    """What is named and nothing else."""
    uses = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{use: granted.get(use, False) for use in uses})


def _private(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)


def family(pid: int) -> list[int]:
    """A process and all that descend from it; children first."""
    parents: dict[int, list[int]] = {}
    for one in _pids():
        fields = _read(one, "stat").rpartition(b")")[2].split()
        if fields:
            parents.setdefault(int(fields[1]), []).append(one)
    found, stack = [], [pid]
    while stack:
        one = stack.pop()
        found.append(one)
        stack += parents.get(one, [])
    return found[::-1]


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _read(pid: int, name: str) -> bytes:
    """From /proc; nothing where the process has ended or is another user's."""
    try:
        return (Path("/proc") / str(pid) / name).read_bytes()
    except OSError:
        return b""


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str | Path) else str(value)
