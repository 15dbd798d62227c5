"""`make fleet-demo`: a SuperLink and four vehicles on loopback, with TLS and keys; the one with the trucks leaves.

python -m mpt.fleet.flower.demo [FOLDER]
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from mpt.fleet.flower.loopback import Loopback
from mpt.fleet.flower.server_app import tracked_classes
from mpt.fleet.flower.supernode import leave_path
from mpt.fleet.leave import LeaveFile
from mpt.tracking.errors import FleetError

VEHICLES, ROUNDS, LEAVES_AFTER = 4, 5, 2
SETTINGS = {
    "dataset": "road?train=150&test=50",
    "epochs": 2,
    "watch": "truck",
    "min_vehicles": VEHICLES - 1,
    "deadline": 120.0,
}
LONGEST = 900.0
"""Seconds after which the demo gives up."""


def main(folder: Path, app: Path) -> None:
    """Start everything, tell one vehicle to leave, show what the server decides, stop everything."""
    shutil.rmtree(folder, ignore_errors=True)
    state = folder.resolve() / "state"
    with Loopback(folder, app) as net:
        say(f"SuperLink on 127.0.0.1:{net.port}, TLS and keys in {folder}")
        for number in range(VEHICLES):
            net.register(f"v{number}")
            net.start_vehicle(f"v{number}", f"partition-id={number} num-partitions={VEHICLES}")
        say(f"{VEHICLES} vehicles started; v{VEHICLES - 1} holds nearly all trucks")
        net.run(**SETTINGS, num_rounds=ROUNDS, state=state)
        say(f"flwr run: {ROUNDS} rounds; each message starts a process on the vehicle, so a round takes a while")
        follow(net, state)
    say(f"everything is stopped; logs are in {folder / 'logs'}")
    subprocess.run([sys.executable, "-m", "mpt", "fleet", "status", str(state)], check=True)


def follow(net: Loopback, state: Path) -> None:
    """Print decisions and rounds as they come, until the last."""
    shown, until, left = {"decisions": 0, "rounds": 0}, time.monotonic() + LONGEST, False
    while shown["rounds"] < ROUNDS:
        if time.monotonic() > until or net.processes["superlink"].poll() is not None:
            raise FleetError(f"the demo does not go on; see {net.folder / 'logs'}:\n{net.log('superlink')[-2000:]}")
        for name in shown:
            lines = read(state / f"{name}.jsonl")
            for line in lines[shown[name] :]:
                say(as_round(line) if name == "rounds" else as_decision(line))
            shown[name] = len(lines)
        if shown["rounds"] >= LEAVES_AFTER and not left:
            LeaveFile(leave_path(net.key(f"v{VEHICLES - 1}"))).ask()
            left = True
            say(f"$ mpt vehicle leave --key {net.folder / 'keys' / f'v{VEHICLES - 1}'}")
        time.sleep(0.5)


def read(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file, if it is there."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def as_round(line: dict[str, Any]) -> str:
    """A round in a line."""
    tracked = f", tracked: {tracked_classes(line)}" if line["tracked"] else ""
    return (
        f"round {line['round']}: {line['updated']} updates, {line['answered']} reports, {line['seconds']:.0f} s, "
        f"F1 of truck {line['f1'].get('truck') or 0:.3f}{tracked}"
    )


def as_decision(line: dict[str, Any]) -> str:
    """A decision in a line."""
    vehicle = f" {line['name'] or line['vehicle']}" if line["vehicle"] else ""
    classes = f" {', '.join(map(str, line['classes']))}" if line["classes"] else ""
    return f"  round {line['round']}:{vehicle}{classes} {line['event']}: {line['why']}"


def say(sentence: str) -> None:
    """To the terminal, at once."""
    print(sentence, flush=True)


if __name__ == "__main__":
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("runs/fleet-demo")
    main(given, Path(sys.argv[2]) if len(sys.argv) > 2 else Path("deploy/flower"))
