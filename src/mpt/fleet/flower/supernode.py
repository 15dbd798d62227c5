"""`mpt vehicle`: a SuperNode that says goodbye. On SIGTERM it announces that it leaves, and only then stops."""

import ctypes
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from mpt.base.files import LockedError, exclusive_lock
from mpt.data import DataError, load, load_local
from mpt.data.encoded import SMALLEST_SIDE
from mpt.fleet.flower import supernode_program
from mpt.fleet.flower.given import given
from mpt.fleet.leave import LeaveFile
from mpt.fleet.node import NodeConfig
from mpt.tracking.errors import FleetError

PAUSE = 0.2
PR_SET_PDEATHSIG = 1
NO_GOODBYE = 75
"""Exit code of a vehicle that has left without telling the server."""
_ADDRESS = re.compile(r"(\[[^\]\s]+\]|[^:/\s]+):\d{1,5}")
ENDED = 1
"""Exit code of a vehicle whose SuperNode ended by itself, with 0 as where the SuperLink refuses it."""


@dataclass(frozen=True, kw_only=True)
class SuperNode:
    """How a vehicle's SuperNode is started.

    Attributes:
        superlink: its address, host:port.
        key: the vehicle's private key, by which the server knows it.
        root_certificates: that the SuperLink's certificate is checked with; None: no TLS, for tests on one machine.
        port: of the vehicle's own runtime API, on loopback.
        node_config: for the app: `dataset="folder:/data"`, or `partition-id=0 num-partitions=4`.
        leave_path: the file by which it is told to leave; None: KEY.leave. The vehicle's user writes to its folder.
        images_path: the file in which its decoded images are kept between messages; None: KEY.images.
        leave_timeout: seconds to wait for the next message once the vehicle is to leave.
        sent_after: seconds that a reply has to reach the SuperLink before the SuperNode is stopped.
    """

    superlink: str
    key: Path
    root_certificates: Path | None = None
    port: int = 9094
    node_config: str = ""
    leave_path: Path | None = None
    images_path: Path | None = None
    leave_timeout: float = 600.0
    sent_after: float = 5.0

    @property
    def leave_file(self) -> LeaveFile:
        """Where it is told to leave."""
        return LeaveFile(self.leave_path or self.settings.leave_file or leave_path(self.key))

    @property
    def settings(self) -> NodeConfig:
        """The node config, checked."""
        return NodeConfig.of(given([self.node_config], "node config"))

    @property
    def own_settings(self) -> bool:
        """Whether the node config has settings for an app of the user's own."""
        return "own-settings" in given([self.node_config], "node config")

    def command(self) -> list[str]:
        """The SuperNode's."""
        if not _ADDRESS.fullmatch(self.superlink):
            raise FleetError(f"superlink: {self.superlink!r}, should be host:port, such as fleet.example.com:8000")
        if not self.key.is_file():
            raise FleetError(f"key: {self.key} is no file, should be the vehicle's private key (ssh-keygen makes one)")
        if not os.access(self.key, os.R_OK):
            raise FleetError(f"key: {self.key} cannot be read, should be readable by the vehicle's user")
        if b"PRIVATE KEY-----" not in self.key.read_bytes()[:200]:
            other = f", perhaps {self.key.with_suffix('')}" if self.key.suffix == ".pub" else ""
            raise FleetError(f"key: {self.key} is no private key, should be the vehicle's{other}; ssh-keygen makes one")
        if self.root_certificates is not None and not self.root_certificates.is_file():
            raise FleetError(f"root-certificates: {self.root_certificates} is no file")
        secure = (
            ["--insecure"] if self.root_certificates is None else ["--root-certificates", str(self.root_certificates)]
        )
        settings, config = self.settings, self.node_config
        if settings.dataset is None and settings.partition_id is None and not self.own_settings:
            raise FleetError(
                "node config: names no dataset, so the vehicle could answer in no round; should have "
                'dataset="folder:/data", or own-settings where an app of your own finds its samples'
            )
        for name, here, there in (
            ("leave-file", self.leave_path, settings.leave_file),
            ("images-file", self.images_path, settings.images_file),
        ):
            if here is not None and there is not None:
                raise FleetError(f"{name}: given by --{name} and in the node config, should be once")
        if settings.leave_file is None:
            config += f" leave-file={_quoted(self.leave_file.path)}"
        if settings.images_file is None and settings.dataset is not None and settings.partition_id is None:
            config += f" images-file={_quoted(self.images_path or beside(self.key, 'images'))}"
        return [
            *(sys.executable, "-P", supernode_program.__file__),
            *secure,
            *("--superlink", self.superlink),
            *("--host", "127.0.0.1", "--port", str(self.port)),
            *("--auth-supernode-private-key", str(self.key)),
            *("--node-config", config.strip()),
        ]


def beside(key: Path, what: str) -> Path:
    """A file of the vehicle with this key, where nothing else is said: KEY.leave, KEY.images."""
    return key.with_name(f"{key.name}.{what}")


def leave_path(key: Path) -> Path:
    """Where the leave file of the vehicle with this key is if nothing else is said."""
    return beside(key, "leave")


def try_dataset(settings: NodeConfig) -> None:
    """Load the dataset that the node config names, if it does, with small images, and say what there is.

    Raises:
        FleetError: it cannot be loaded; it could not in any round either.
    """
    if settings.dataset is None:
        return
    spec = settings.dataset
    try:
        data = (load_local if settings.partition_id is None else load)(spec, image_size=SMALLEST_SIDE, say=_say)
    except DataError as error:
        raise FleetError(f"node config: {error}") from error
    except OSError as error:
        raise FleetError(f"node config: {spec}: {error.filename} cannot be read ({error.strerror})") from error
    counts = zip(data.classes, data.train.counts(len(data.classes)), strict=True)
    _say(f"{spec}: {', '.join(f'{name} {count}' for name, count in counts)} training samples")


def keep(node: SuperNode) -> int:
    """Run the SuperNode until it ends or the vehicle has left; 0 after a goodbye alone, `NO_GOODBYE`, or its exit code.

    A second signal does not wait for the goodbye. While it runs, `alone` holds the key.
    """
    command = node.command()
    try:
        with exclusive_lock(node.key), free_port(node.port):
            return _keep(node, command)
    except LockedError:
        raise FleetError(f"key: a vehicle runs with {node.key} already, each should have a key of its own") from None


@contextmanager
def free_port(port: int) -> Iterator[None]:
    """Inside, no other vehicle of this machine has the port; Flower tells two that start together nothing.

    Raises:
        FleetError: another vehicle has it, or another program listens there.
    """
    taken = FleetError(f"port: {port} is in use on this machine, --port should give each vehicle one of its own")
    with socket.socket(socket.AF_UNIX) as held, socket.socket() as tried:
        try:
            if sys.platform == "linux":
                held.bind(f"\0mpt-vehicle-port-{port}")
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            raise taken from None
        tried.close()
        yield


def runs(key: Path) -> bool:
    """Whether a vehicle with this key runs on this machine."""
    try:
        with exclusive_lock(key):
            return False
    except LockedError:
        return True


def _keep(node: SuperNode, command: Sequence[str]) -> int:
    signals: list[int] = []
    try_dataset(node.settings)
    try:
        node.leave_file.stays()
    except OSError as error:
        raise FleetError(
            f"leave-file: {node.leave_file.path} cannot be written ({error.strerror}), should be in a folder that the "
            "vehicle's user may write to; --leave-file names another"
        ) from None

    def goodbye(number: int, frame: FrameType | None) -> None:
        signals.append(number)

    heard = [n for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, goodbye) for number in heard}
    process = subprocess.Popen(
        command,
        env=_environment(),
        start_new_session=True,
        preexec_fn=_dies_with_its_parent(),  # noqa: PLW1509  # one call of libc, and no other threads
    )
    ended = Ended(ENDED, "")
    try:
        ended = _wait(node, process, signals)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _stop(process)
        node.leave_file.clear()
    _say(ended.sentence)
    return ended.code


class Ended(NamedTuple):
    """How a vehicle has ended: its exit code, and a sentence."""

    code: int
    sentence: str


def _wait(node: SuperNode, process: "subprocess.Popen[bytes]", signals: Sequence[int]) -> Ended:
    leave, until, why = node.leave_file, float("inf"), ""
    while process.poll() is None:
        if signals and not leave.asked:
            try:
                leave.ask()
            except OSError as error:
                why = f"{leave.path} cannot be written ({error.strerror})"
        if leave.asked and until == float("inf"):
            until = time.monotonic() + node.leave_timeout
            _say(
                f"leaving: the next message of {node.superlink} is answered with a goodbye, within "
                f"{node.leave_timeout:g} s; a second signal does not wait for it"
            )
        if leave.done:
            time.sleep(node.sent_after)
            return Ended(0, "left: the server was told")
        if len(signals) > 1:
            why = "asked to hurry"
        elif time.monotonic() > until:
            why = "no message came in time"
        if why:
            return Ended(NO_GOODBYE, f"left without a goodbye: {why}; the server will suspect a failure")
        time.sleep(PAUSE)
    if leave.done:
        return Ended(0, "left: the server was told")
    if leave.asked:
        why = "left without a goodbye: the SuperNode ended by itself; the server will suspect a failure"
        return Ended(NO_GOODBYE, why)
    asked = "was its connection cut, is the key registered, is the clock right?"
    why = f"the SuperNode ended by itself; see its lines above: {asked}"
    return Ended(process.returncode or ENDED, why)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """The SuperNode and the processes it has started; the server sees one that is ended by SIGTERM leave at once."""
    for number, seconds in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(process.pid, number)
            process.wait(seconds)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def _dies_with_its_parent() -> Callable[[], object] | None:
    """For the child to call on Linux: it gets SIGTERM when this process ends, however that happens."""
    if sys.platform != "linux":
        return None
    return partial(ctypes.CDLL(None).prctl, PR_SET_PDEATHSIG, int(signal.SIGTERM))


def _say(sentence: str) -> None:
    print(f"mpt: {sentence}", file=sys.stderr, flush=True)


def _environment() -> dict[str, str]:
    """With the folder of Python first in PATH: a SuperNode starts Flower's other programs by their names."""
    path = os.pathsep.join(filter(None, (str(Path(sys.executable).parent), os.environ.get("PATH"))))
    return {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", **os.environ, "PATH": path}


def _quoted(path: Path) -> str:
    text = str(path.resolve())
    if '"' in text or "\\" in text:
        raise FleetError(f"key: {shlex.quote(text)} has a quote or a backslash in its path, should not")
    return f'"{text}"'
