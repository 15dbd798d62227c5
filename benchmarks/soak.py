"""A fleet for a long time: 200 nodes over Flower's messages for 300 rounds, nodes and server killed at random.

python benchmarks/soak.py                               # the table, and what happened
python benchmarks/soak.py --out soak.csv --seconds 1200 # a line a round; ends after 20 minutes at the latest
python benchmarks/soak.py --kill-every 0                # one server from the beginning to the end: does it leak?
python benchmarks/soak.py --ray 5                       # seconds a round in Flower's simulation on Ray, undisturbed

The server is MPT's app with checkpoints, in a process of its own; the vehicles are MPT's app at every node, in another
(`benchmarks/soak_fleet.py` has what befalls them). The server is killed about every 25 rounds: by turns with SIGKILL,
and by an exception from the grid, after which the same process begins anew from the checkpoints.
"""

import argparse
import contextlib
import csv
import json
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from flwr.simulation import run_simulation
from soak_fleet import SocketGrid, fleet_process
from soak_server import LOG_BYTES, Plan, server_process

from mpt.fleet import log
from mpt.fleet.flower.config import AppConfig
from mpt.fleet.flower.server_app import server_app
from mpt.fleet.flower.vehicle_app import vehicle_app
from mpt.fleet.server import Finished
from mpt.fleet.status import read_status
from mpt.fleet.store import existing_store
from mpt.tracking.roster import STATES

MOST_STARTS = 60
BY_ROUND = ("round", "start", "seconds", "cpu_seconds", "rss_mb", "checkpoint", "decisions", "rounds", "state", *STATES)
"""Columns: whether the round was the first of a server's process; seconds, and those of a core that the server worked;
its memory; bytes of the newest checkpoint, of each log with what was rotated of it, and of the whole state folder;
vehicles by state."""


@dataclass
class Soak:
    """A server after the other, until the rounds are done.

    Attributes:
        config: of the server.
        folder: of everything that is not its state.
        plan: when it is killed.
        ends: when to stop, by `time.monotonic`.
        out: takes a line a round, as CSV; None: nothing does.
        rows: by round.
        parts: of each round's checkpoint, in bytes.
        decided: decisions so far, by what they are.
        ended: how often a server ended, and how.
        whys: why servers gave up by themselves.
    """

    config: AppConfig
    folder: Path
    plan: Plan
    ends: float
    out: Path | None = None
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    parts: dict[int, Counter[str]] = field(default_factory=dict)
    decided: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    whys: list[str] = field(default_factory=list)

    def run(self) -> None:
        """All servers."""
        spawn = multiprocessing.get_context("spawn")
        signals = dict(self.plan.signals)
        for _ in range(MOST_STARTS):
            ours, theirs = spawn.Pipe()
            crashes = {r: call for r, call in self.plan.crashes.items() if r > max(self.rows, default=0)}
            options = (str(self.folder / "grid"), theirs, self.config, crashes, str(self.folder / "stderr.txt"))
            process = spawn.Process(target=server_process, args=options)
            process.start()
            theirs.close()
            if self._watch(ours, signals):
                process.join(60)
                return
            process.kill()
            process.join()
            self._drain(ours)
            if time.monotonic() > self.ends:
                return
            self.ended["killed with SIGKILL"] += 1
        raise SystemExit(f"the server was started {MOST_STARTS} times and is not done: {self.whys[-1:]}")

    def _watch(self, pipe: Connection, signals: dict[int, float]) -> bool:
        """Take a server's lines until it is done, True, or to be killed, False."""
        while True:
            if not pipe.poll(max(0.0, self.ends - time.monotonic())):
                return False
            what, row, decided = pipe.recv()
            if what == "over":
                return True
            if what != "round":
                self.ended[what] += 1
                self.whys += [row["why"]] if "why" in row else []
                if sum(self.ended.values()) > MOST_STARTS:
                    return False
                continue
            self.decided.update(decided)
            self._note(row)
            due = [number for number in signals if number <= row["round"]]
            if due:
                time.sleep(signals.pop(due[0]) * min(10.0, row["seconds"]))
                return False

    def _drain(self, pipe: Connection) -> None:
        """Take what a server has sent before it was killed."""
        with contextlib.suppress(EOFError, OSError):
            while pipe.poll(0):
                what, row, decided = pipe.recv()
                if what == "round":
                    self.decided.update(decided)
                    self._note(row)

    def _note(self, row: dict[str, Any]) -> None:
        """A line, with what the server has written."""
        state = Path(self.config.state)
        store, number = existing_store(state), row["round"]
        states, found = Counter(v.state for v in read_status(store).vehicles), store.latest()
        self.parts[number] = parts = Counter[str]()
        for name, part in ({} if found is None else found.payload).items():
            parts["reference models" if name.startswith("model of") else name] += len(part)
        sizes = {
            "checkpoint": sum(parts.values()),
            **{name: sum(_size(p) for p in log.logs_of(state / f"{name}.jsonl")) for name in ("decisions", "rounds")},
            "state": sum(_size(p) for p in state.iterdir()),
        }
        self.rows[number] = {**row, **sizes, **{name: states[name] for name in STATES}}
        if self.out is not None:
            with self.out.open("w" if len(self.rows) == 1 else "a", newline="") as file:
                writer = csv.DictWriter(file, BY_ROUND)
                if len(self.rows) == 1:
                    writer.writeheader()
                writer.writerow(self.rows[number])


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # removed in the meantime
        return 0


def settings_of(rounds: int, method: str) -> dict[str, Any]:
    """Of both apps: little work for a message, and little patience."""
    backbone = Path(__file__).resolve().with_name("soak_backbone.py")
    return {
        "dataset": "road?train=250&test=10", "backbone": f"{backbone}:Tiny", "batch_size": 32, "watch": "truck",
        "method": method, "num_rounds": rounds, "deadline": 20.0, "timeout": 20.0, "quorum": 0.7, "tail": 0.7,
        "tail_seconds": 0.3,
    }  # fmt: skip


def table(rows: Mapping[int, Mapping[str, Any]]) -> None:
    """The means of the first and of the last rounds."""
    ordered = [rows[number] for number in sorted(rows)]
    some = max(1, min(20, len(ordered) // 2))
    first, last = ordered[:some], ordered[-some:]
    print(f"{'mean of':<42}{f'the first {some} rounds':>22}{f'the last {some}':>16}")
    shown: dict[str, str] = {
        "seconds": "seconds a round (without the first of a process)",
        "cpu_seconds": "seconds that the server works (likewise)",
        "rss_mb": "memory of the server (RSS), MB",
        "checkpoint": "newest checkpoint, bytes",
        "decisions": "decisions.jsonl and rotated ones, bytes",
        "rounds": "rounds.jsonl and rotated ones, bytes",
        "state": "state folder, bytes",
        **{name: f"vehicles {name}" for name in STATES},
    }
    for name, title in shown.items():
        cells = [
            _mean([r for r in part if not (name.endswith("seconds") and r["start"])], name) for part in (first, last)
        ]
        print(f"{title:<48}" + "".join(f"{cell:>16,.{3 if name.endswith('seconds') else 1}f}" for cell in cells))


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    found = [row[name] for row in rows if row[name] is not None]
    return float(np.mean(found)) if found else float("nan")


def growth(rows: Mapping[int, Mapping[str, Any]], name: str) -> float:
    """Of a figure within the lives of the server's processes: by how much it rises in 100 rounds, least squares.

    The first five rounds of a life are left out, in which libraries take what they need.
    """
    lives = list[list[tuple[int, float]]]()
    for number in sorted(rows):
        if rows[number]["start"] or not lives:
            lives.append([])
        lives[-1].append((number, rows[number][name]))
    x, y = list[float](), list[float]()
    for life in (np.array(one[5:]) for one in lives if len(one) > 10):
        x += list(life[:, 0] - life[:, 0].mean())
        y += list(life[:, 1] - life[:, 1].mean())
    return 100 * float(np.dot(x, y) / np.dot(x, x)) if x else float("nan")


def report(soak: Soak, counts: Mapping[str, int], size: int, seconds: float) -> None:
    """What was printed is what goes to the docs."""
    print(f"{size} nodes, {len(soak.rows)} rounds, {seconds:.0f} s; logs are rotated at {LOG_BYTES} bytes")
    table(soak.rows)
    print(f"memory within a server's life: {growth(soak.rows, 'rss_mb'):+.2f} MB in 100 rounds")
    print(f"server: {sum(soak.ended.values())} restarts: {_listed(soak.ended)}")
    for why in soak.whys:
        print(f"  {why}")
    status = read_status(existing_store(Path(soak.config.state)))
    print(f"refusals: {sum(status.refusals.values())}: {_listed(status.refusals)}")
    print(f"departures: {soak.decided['departed']}; decisions of the tracker: {_listed(soak.decided)}")
    print(f"nodes: {_listed(counts)}")
    for when, number in (("first", min(soak.parts)), ("last", max(soak.parts))):
        print(f"{when} checkpoint, bytes: {_listed(soak.parts[number])}")


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in sorted(counts.items(), key=lambda item: -item[1]))


def on_ray(nodes: int, rounds: int, method: str) -> None:
    """The same apps in Flower's own simulation, where nothing befalls nodes; seconds of every round."""
    patient = {"vehicle_ids": "partition", "deadline": 600.0, "timeout": 600.0, "tail_seconds": 600.0}
    settings, last = {**settings_of(rounds, method), **patient}, time.monotonic()

    def after(finished: Finished) -> None:
        nonlocal last
        print(f"Ray, round {finished.round}: {time.monotonic() - last:.2f} s, {finished.updated} updates", flush=True)
        last = time.monotonic()

    workers: dict[str, Any] = {
        "client_resources": {"num_cpus": 1},
        "init_args": {"num_cpus": 2, "include_dashboard": False},
    }
    run_simulation(server_app(after, **settings), vehicle_app(**settings), nodes, backend_config=workers)


def soak(given: argparse.Namespace, folder: Path) -> None:
    """Run it, print the table."""
    began, settings = time.monotonic(), settings_of(given.rounds, given.method)
    config = AppConfig(**settings, state=str(folder / "state"))
    counts, address, errors = folder / "counts.json", str(folder / "grid"), folder / "stderr.txt"
    options = (address, str(folder), str(counts), settings, given.nodes, given.seed)
    fleet = multiprocessing.get_context("spawn").Process(target=fleet_process, args=options)
    fleet.start()
    try:
        while not Path(address).exists() and fleet.is_alive():
            time.sleep(0.1)
        plan = Plan.drawn(given.rounds, given.kill_every, given.seed)
        made = Soak(config, folder, plan, began + given.seconds, given.out)
        made.run()
        if fleet.is_alive() and time.monotonic() > made.ends:
            SocketGrid(address).over()
        fleet.join(60)
        report(made, json.loads(counts.read_text()), given.nodes, time.monotonic() - began)
    except BaseException:
        print(errors.read_text()[-3000:] if errors.exists() else "", file=sys.stderr)
        raise
    finally:
        fleet.kill()


def main() -> None:
    """As the options say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--out", type=Path, help="a CSV file, a line a round")
    parser.add_argument("--seconds", type=float, default=86400.0, help="end after so many at the latest")
    parser.add_argument("--kill-every", type=int, default=25, help="rounds between two kills of the server; 0: none")
    parser.add_argument("--folder", type=Path, help="a new one, for the state and all else, which stays")
    parser.add_argument("--method", default="mpt-x")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ray", type=int, default=0, help="so many rounds in Flower's simulation instead")
    given = parser.parse_args()
    if given.ray:
        on_ray(given.nodes, given.ray, given.method)
        return
    if given.folder is not None:
        given.folder.mkdir(parents=True)
        soak(given, given.folder)
        return
    with tempfile.TemporaryDirectory(prefix="mpt-soak-") as folder:
        soak(given, Path(folder))


if __name__ == "__main__":
    main()
