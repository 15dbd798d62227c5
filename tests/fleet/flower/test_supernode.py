"""`mpt vehicle` around a process that does what a SuperNode might do; real SuperNodes are in test_deployment.py."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

for package in ("torch", "flwr", "cryptography", "PIL"):
    pytest.importorskip(package, reason="the extra fleet is not installed")

from PIL import Image

from mpt.base.files import exclusive_lock
from mpt.fleet import FleetError
from mpt.fleet.flower.loopback import CONNECTION, Loopback, program
from mpt.fleet.flower.supernode import ENDED, NO_GOODBYE, SuperNode, free_port, keep, leave_path
from mpt.fleet.flower.supernode_program import GAVE_UP
from mpt.fleet.leave import QUIET, LeaveFile

ROOT = Path(__file__).parents[3]
PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----\n"


@dataclass(frozen=True, kw_only=True)
class Standing(SuperNode):
    """Starts something else in the SuperNode's place."""

    script: str = "import time; time.sleep(60)"

    def command(self):
        return [sys.executable, "-c", self.script]


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "vehicle.key"
    path.write_text(PRIVATE)
    return path


def node(key, **given):
    usual = {"leave_timeout": 20.0, "sent_after": 0.1, "port": unused_port()}
    return Standing(superlink="127.0.0.1:1", key=key, **{**usual, **given})


def unused_port():
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return tried.getsockname()[1]


def signals(*after):
    """Send SIGTERM to this process after so many seconds each."""
    timers = [threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGTERM)) for seconds in after]
    for timer in timers:
        timer.start()
    return timers


def test_sigterm_waits_for_the_goodbye(key, capfd):
    before = signal.getsignal(signal.SIGTERM)
    signals(0.5)
    leave = LeaveFile(leave_path(key))

    def app():
        while not leave.asked:
            time.sleep(0.05)
        leave.answered()

    thread = threading.Thread(target=app)
    thread.start()
    assert keep(node(key)) == 0
    thread.join()
    said = capfd.readouterr().err
    assert "leaving: the next message of 127.0.0.1:1 is answered with a goodbye" in said
    assert "left: the server was told" in said
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has names of sockets that no file stands for")
def test_a_port_belongs_to_one_vehicle(key, tmp_path):
    """Flower starts a second one beside the first, and it never hears a message."""
    port = unused_port()
    other = tmp_path / "other.key"
    other.write_text("another key")
    with free_port(port), pytest.raises(FleetError, match=f"port: {port} is in use on this machine, --port should"):
        keep(node(other, port=port))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", port))
        listening.listen()
        with pytest.raises(FleetError, match=f"port: {port} is in use"):
            keep(node(key, port=port))
    assert keep(node(key, port=port, script="raise SystemExit(3)")) == 3


def test_without_a_message_it_leaves_in_the_end(key, capfd):
    signals(0.3)
    assert keep(node(key, leave_timeout=0.5)) == NO_GOODBYE
    assert "left without a goodbye: no message came in time" in capfd.readouterr().err


def test_a_second_signal_does_not_wait(key, capfd):
    signals(0.3, 1.0)
    start = time.monotonic()
    assert keep(node(key)) == NO_GOODBYE
    assert time.monotonic() - start < 15
    assert "asked to hurry" in capfd.readouterr().err


def test_a_supernode_that_ends_by_itself_ends_it_with_its_code(key):
    LeaveFile(leave_path(key)).ask()
    assert keep(node(key, script="raise SystemExit(3)")) == 3
    assert not LeaveFile(leave_path(key)).asked, "a vehicle that is started again is back"


def test_a_supernode_that_ends_by_itself_without_a_reason_is_a_failure(key, capfd):
    assert keep(node(key, script="pass")) == ENDED
    assert "the SuperNode ended by itself; see its lines above" in capfd.readouterr().err


def test_a_supernode_that_ends_before_the_goodbye_is_none(key, capfd):
    script = f"open({str(leave_path(key))!r}, 'w').write('asked')"
    assert keep(node(key, script=script)) == NO_GOODBYE
    assert "left without a goodbye: the SuperNode ended by itself" in capfd.readouterr().err


@pytest.mark.parametrize("last", ["return", "raise RuntimeError('lost')"])
def test_a_supernode_that_has_given_up_ends_though_a_thread_of_it_lives_on(last):
    script = f"""
import sys, threading, time
from importlib.metadata import EntryPoint
from mpt.fleet.flower import supernode_program

def program():
    threading.Thread(target=time.sleep, args=(600,)).start()
    print(sys.argv)
    {last}

class Fake(EntryPoint):
    def load(self):
        return program

supernode_program.entry_points = lambda **asked: [Fake(asked["name"], "", asked["group"])]
supernode_program.main()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == GAVE_UP
    assert ended.stdout == "['flower-supernode']\n"
    assert ("RuntimeError: lost" in ended.stderr) == ("lost" in last)


@pytest.mark.slow
def test_a_real_supernode_that_is_refused_is_a_failure_and_flwr_works_in_the_clone(tmp_path):
    with Loopback(tmp_path / "fleet", tmp_path) as net:
        net.start_vehicle("stranger", "partition-id=0 num-partitions=2")
        assert net.processes["stranger"].wait(120) == ENDED
        assert "is the key registered, is the clock right?" in net.log("stranger")
        listed = subprocess.run(
            [program("flwr"), "list", CONNECTION], cwd=ROOT, env=net.environment, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert listed.returncode == 0, listed.stdout + listed.stderr


def test_the_documented_connection_is_no_folder_here():
    named = re.findall(r"\[superlink\.(.+)\]", (ROOT / "docs" / "how-to" / "deploy.md").read_text())
    assert named == [CONNECTION]
    assert not (ROOT / CONNECTION).exists()


def test_the_dataset_is_tried_at_the_start(key, tmp_path, capfd):
    folder = tmp_path / "images"
    (folder / "train" / "truck").mkdir(parents=True)
    tried = {"node_config": f'dataset="folder:{folder}"', "script": "raise SystemExit(3)"}
    with pytest.raises(FleetError, match=r"node config: folder:.*: no images in .*train, should have at least one"):
        keep(node(key, **tried))
    Image.new("RGB", (300, 200)).save(folder / "train" / "truck" / "1.png")
    (folder / "train" / "truck" / "2.png").write_bytes(b"half")
    assert keep(node(key, **tried)) == 3
    said = capfd.readouterr().err
    assert "left out: broken images 1 (train/truck/2.png)" in said
    assert f"mpt: folder:{folder}: truck 1 training samples" in said


def test_it_does_not_start_where_the_leave_file_cannot_be_written(key):
    leave_path(key).mkdir()
    with pytest.raises(FleetError, match=r"leave-file: .*\.leave cannot be written \(Is a directory\), should be in a"):
        keep(node(key, script="raise SystemExit(3)"))
    assert keep(node(key, leave_path=key.with_name("elsewhere"), script="raise SystemExit(3)")) == 3


def test_a_leave_file_that_cannot_be_written_any_more_ends_it_in_a_sentence(key, tmp_path, capfd):
    folder = tmp_path / "run"
    folder.mkdir()
    script = f"import shutil, time; shutil.rmtree({str(folder)!r}); time.sleep(60)"
    signals(2.0)
    assert keep(node(key, leave_path=folder / "leave", script=script)) == NO_GOODBYE
    assert "left without a goodbye: " in (said := capfd.readouterr().err)
    assert "leave cannot be written (No such file or directory)" in said


def test_where_a_further_question_may_follow_the_goodbye_is_said_after_a_while(tmp_path):
    leave = LeaveFile(tmp_path / "v0.leave")
    leave.ask()
    leave.answered(may_follow=True)
    assert (leave.asked, leave.done) == (True, False)
    past = time.time() - QUIET - 1
    os.utime(leave.path, (past, past))
    assert leave.done
    leave.answered(may_follow=True)
    assert not leave.done
    leave.answered()
    assert leave.done


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user, as whom only root can start processes")
def test_a_leave_file_of_another_user_is_answered(tmp_path):
    leave = LeaveFile(tmp_path / "leave")
    leave.ask()
    tmp_path.chmod(0o777)
    other = "import os; from mpt.fleet.leave import *; os.setuid(65534); LeaveFile(Path('leave')).answered()"
    subprocess.run([sys.executable, "-c", other], cwd=tmp_path, timeout=120, check=True)
    assert leave.done


def test_the_supernode_is_told_where_to_look(key, tmp_path):
    (tmp_path / "ca.crt").write_text("a certificate")
    made = SuperNode(
        superlink="a:1", key=key, root_certificates=tmp_path / "ca.crt", node_config="partition-id=0 num-partitions=2"
    )
    command = made.command()
    assert (
        command[command.index("--node-config") + 1] == f'partition-id=0 num-partitions=2 leave-file="{leave_path(key)}"'
    )
    assert "--insecure" not in command
    own = SuperNode(superlink="a:1", key=key, node_config='dataset="folder:/data" min-samples=5').command()
    kept = key.with_name(f"{key.name}.images")
    assert own[own.index("--node-config") + 1] == (
        f'dataset="folder:/data" min-samples=5 leave-file="{leave_path(key)}" images-file="{kept}"'
    )
    elsewhere = SuperNode(superlink="a:1", key=key, node_config='dataset="road"', images_path=tmp_path / "kept")
    assert f'images-file="{tmp_path / "kept"}"' in elsewhere.command()[-1]
    assert "--insecure" in SuperNode(superlink="a:1", key=key, node_config='dataset="road"').command()
    own_app = SuperNode(superlink="[::1]:9092", key=key, node_config='own-settings="city" city="Ulm"')
    assert own_app.command()[-1].startswith("own-settings"), "an app of one's own knows where its samples are"


def test_files_may_be_named_in_the_node_config_or_by_options_but_not_by_both(key, tmp_path):
    config = f'dataset="road" leave-file="{tmp_path / "leave"}" images-file="{tmp_path / "images"}"'
    made = SuperNode(superlink="a:1", key=key, node_config=config)
    assert made.leave_file.path == tmp_path / "leave"
    assert made.command()[-1] == config
    for path in ("leave_path", "images_path"):
        name = path.replace("_path", "-file")
        with pytest.raises(FleetError, match=f"{name}: given by --{name} and in the node config, should be once"):
            SuperNode(superlink="a:1", key=key, node_config=config, **{path: tmp_path / "other"}).command()


def test_what_is_missing_is_said(key, tmp_path):
    with pytest.raises(FleetError, match="is no file, should be the vehicle's private key"):
        SuperNode(superlink="a:1", key=tmp_path / "none").command()
    with pytest.raises(FleetError, match=r"root-certificates: .* is no file"):
        SuperNode(superlink="a:1", key=key, root_certificates=tmp_path / "none").command()
    with pytest.raises(FleetError, match="node config: names no dataset, so the vehicle could answer in no round"):
        SuperNode(superlink="a:1", key=key, node_config="min-samples=5").command()
    for address in ("localhost", "https://fleet.example.com:8000", "a:b", "a: 1"):
        with pytest.raises(FleetError, match=r"superlink: '.*', should be host:port"):
            SuperNode(superlink=address, key=key, node_config='dataset="road"').command()
    public = key.with_name("vehicle.key.pub")
    public.write_text("ecdsa-sha2-nistp384 AAAA")
    with pytest.raises(FleetError, match=r"vehicle\.key\.pub is no private key, should be .*, perhaps .*vehicle\.key;"):
        SuperNode(superlink="a:1", key=public, node_config='dataset="road"').command()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "superlink: should be given"),
        (["--superlink", "a:1"], "root-certificates: should be given; --insecure does without"),
        (["--superlink", "a:1", "--insecure", "--key", "none"], "key: none is no file"),
        (["leave", "--key", "none"], "key: none is no file"),
        (["--node-config", "min_samples=5000"], "node config: unknown key 'min_samples', should it be 'min-samples'?"),
        (["--node-config", 'datset="folder:/data"'], "node config: unknown key 'datset', should it be 'dataset'?"),
        (["--node-config", 'min-samples="five"'], "node config: min-samples = 'five', should be a whole number"),
        (["--node-config", "dataset=folder:/data"], "node config: dataset = folder:/data, should be a number"),
        (["--node-config", "camera=1"], "node config: unknown key 'camera', known are dataset"),
    ],
)
def test_the_command_says_what_is_wrong(arguments, said, tmp_path):
    (tmp_path / "key").write_text(PRIVATE)
    where = ["--superlink", "a:1", "--insecure", "--key", str(tmp_path / "key")] if "--node-config" in arguments else []
    done = subprocess.run(
        [sys.executable, "-m", "mpt", "vehicle", *where, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def mpt_leave(key, *more):
    command = [sys.executable, "-m", "mpt", "vehicle", "leave", "--key", str(key), *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_leave_is_told_by_a_file_beside_the_key(key):
    LeaveFile(leave_path(key)).stays()
    with exclusive_lock(key):
        assert mpt_leave(key).returncode == 0
        assert LeaveFile(leave_path(key)).asked
        elsewhere = mpt_leave(key, "--leave-file", "elsewhere")
    assert elsewhere.returncode == 2
    assert "leave-file: there is no elsewhere, should be what the vehicle was started with" in elsewhere.stderr


def test_leave_without_a_vehicle_says_so(key):
    LeaveFile(leave_path(key)).stays()  # of one that was killed
    done = mpt_leave(key)
    assert done.returncode == 2
    assert f"key: no vehicle runs with {key} on this machine" in " ".join(done.stderr.split())
    assert not LeaveFile(leave_path(key)).asked


def test_a_second_vehicle_with_the_same_key_is_refused(key):
    with exclusive_lock(key), pytest.raises(FleetError, match=r"key: a vehicle runs with .*vehicle.key already"):
        keep(node(key, leave_path=key.with_name("elsewhere")))
    assert keep(node(key, script="raise SystemExit(3)")) == 3


def test_sighup_is_a_leave_too_unless_it_is_ignored(key, capfd):
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        script = "import os, signal, time; time.sleep(1); os.kill(os.getppid(), signal.SIGHUP); time.sleep(60)"
        assert keep(node(key, leave_timeout=0.5, script=script)) == NO_GOODBYE
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        assert keep(node(key, script=script.replace("60", "0"))) == ENDED
    finally:
        signal.signal(signal.SIGHUP, before)


KEEPER = """
from pathlib import Path
from mpt.fleet.flower.supernode import keep
from tests.fleet.flower.test_supernode import Standing
script = "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(120)"
keep(Standing(superlink="a:1", key=Path("vehicle.key"), script=script))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent has ended")
def test_the_supernode_does_not_outlive_mpt_vehicle(key, tmp_path):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    keeper = subprocess.Popen([sys.executable, "-c", KEEPER], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path})
    child = 0
    try:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        child = int((tmp_path / "pid").read_text())
        keeper.kill()
        keeper.wait()
        until(lambda: not running(child))
    finally:
        keeper.kill()
        if child and running(child):
            os.kill(child, signal.SIGKILL)


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
