import contextlib
import hashlib
import io
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, fields
from pathlib import Path
from types import SimpleNamespace

import pytest

for package in ("typer", "rich", "torch"):
    pytest.importorskip(package, reason="the extra sim is not installed")

from rich.console import Console

from mpt.data import Dataset, load
from mpt.data.npz import save_npz
from mpt.experiments import cells as cells_module
from mpt.experiments import sweep as sweep_module
from mpt.experiments.cells import Cell, CellStore
from mpt.experiments.sets import loaded
from mpt.experiments.sweep import sweep, work
from mpt.federation import engine
from mpt.federation import jobs as jobs_module
from mpt.methods.simple import Frozen
from mpt.runs.config import ConfigError, RunConfig

SMALL = {
    "dataset": "road?train=12&test=6", "rare": "truck", "methods": "frozen,mpt,oracle-train", "rounds": 3,
    "depart_at": 1, "epochs": 1, "eval_every": 1, "image_size": 28, "per_class": 12, "batch_size": 8, "vehicles": 3,
    "remaining": 0.2, "device": "cpu",
}  # fmt: skip


def cell(label="", **changes):
    config = RunConfig(**{**SMALL, **changes})
    dataset = loaded(config.dataset, config.image_size, config.per_class)
    return Cell(config, dataset.fingerprint(), dataset.class_index(config.rare), label)


def quiet():
    return Console(file=io.StringIO())


def test_a_key_changes_with_everything_that_determines_the_numbers(tmp_path, monkeypatch):
    mine, weights = tmp_path / "mine.py", tmp_path / "weights.pt"
    weights.write_bytes(b"one")
    mine.write_text(Path(__file__).parents[2].joinpath("examples/my_method.py").read_text())
    others = [
        {"remaining": 0.3}, {"rounds": 4}, {"depart_at": 2}, {"epochs": 2}, {"lr": 0.02}, {"batch_size": 4},
        {"vehicles": 4}, {"backbone": "vit-tiny"}, {"methods": "frozen,mpt"}, {"eval_every": 3}, {"ridge": 0.2},
        {"cov_ridge": 0.2}, {"augment": "flip"}, {"participation": 0.5}, {"dirichlet": 1.0}, {"readout": "cosine"},
        {"engine": "plain"}, {"precision": "float32"}, {"rare": "bus"}, {"per_class": 11}, {"image_size": 32},
        {"dataset": "road?train=12&test=6&seed=1"}, {"dataset": "road?train=12&test=7"},
        {"events": "leave 0 after 1"}, {"slow_every": 3}, {"partition": "vehicle", "vehicles": None, "remaining": 0.02},
        {"loss": "fedlc"}, {"loss": "fedlc(tau=1.0)"}, {"methods": "frozen,mpt(ridge=0.2)"},
        {"momentum": 0.5}, {"weight_decay": 0.0}, {"local_steps": 3}, {"prox": 0.1}, {"schedule": "cosine"},
        {"server": "adam"}, {"aggregation": "median"}, {"attack": "shift@0"}, {"gate": "on"},
        {"server": "momentum", "server_lr": 0.5}, {"server": "momentum", "server_momentum": 0.5},
        {"first_seed": 1}, {"freeze": True}, {"weights": str(weights)}, {"methods": f"frozen,{mine}:MyMethod"},
    ]  # fmt: skip
    keys = [cell().key, *(cell(**change).key for change in others)]
    assert len(set(keys)) == len(keys)
    changed = {name for change in others for name in change}
    assert changed | {"seeds", "device", "record", "models"} == {field.name for field in fields(RunConfig)}
    mine.write_text(mine.read_text() + "\n# another\n")
    assert cell(methods=f"frozen,{mine}:MyMethod").key != keys[-1]
    assert cell(weights=str(weights)).key == keys[-2]
    weights.write_bytes(b"another")
    assert cell(weights=str(weights)).key != keys[-2]
    monkeypatch.setattr(cells_module, "ENGINE", cells_module.ENGINE + 1)
    assert cell().key != keys[0]


def test_a_key_does_not_change_with_what_does_not_matter(tmp_path):
    first = cell()
    road = load("road?train=12&test=6", image_size=28)
    assert cell(seeds=3).key == cell(device="auto").key == first.key
    assert cell("another label").key == first.key
    assert cell(rare=str(road.class_index("truck"))).key == first.key
    save_npz(Dataset("moved", road.classes, road.train, road.test), tmp_path / "moved.npz")
    assert cell(dataset=f"npz:{tmp_path / 'moved.npz'}", image_size=None, per_class=1000).key == first.key


def test_a_key_changes_with_a_methods_version_from_2_on(monkeypatch):
    first, other = cell(), cell(methods="mpt,oracle-train").key
    elsewhere = {"dataset", "rare", "image_size", "per_class", "seeds", "device", "record", "models"}
    left_out = elsewhere | set(cells_module._LATER)
    known = {
        "engine": cells_module.ENGINE, "samples": first.fingerprint, "rare": first.rare, "files": {},
        "settings": {name: value for name, value in asdict(first.config).items() if name not in left_out},
    }  # fmt: skip
    assert first.key == hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:20]
    keys = []
    for version in (1, 2, 3):
        monkeypatch.setattr(Frozen, "version", version, raising=False)
        keys.append(cell().key)
        assert cell(methods="mpt,oracle-train").key == other
    assert keys[0] == first.key
    assert len(set(keys)) == 3


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    store, cells = CellStore(tmp_path_factory.mktemp("store")), [cell("a"), cell("b", remaining=0.3), cell("a again")]
    return store, cells, sweep(cells, store, console=quiet())


def test_a_cell_is_a_run_with_its_report_and_is_computed_once(swept):
    store, cells, result = swept
    assert len(result.computed) == len(result.done) == 2  # the third is the first
    assert not result.failed
    folder = store.folder(cells[0])
    assert (folder / "report.html").exists()
    assert {r["method"] for r in store.tables(cells[0]).metrics} == {"frozen", "mpt", "oracle-train"}
    before = (folder / "metrics.csv").stat().st_mtime_ns
    assert sweep(cells, store, console=quiet()).computed == ()
    assert (folder / "metrics.csv").stat().st_mtime_ns == before


def test_more_seeds_extend_a_cell_without_computing_the_first_again(swept):
    store, cells, _ = swept
    first = store.tables(cells[0]).metrics
    more = cell("a", seeds=2)
    assert not store.finished(more)
    assert sweep([more], store, console=quiet()).computed == (more.key,)
    both = store.tables(more).metrics
    assert both[: len(first)] == first
    assert {r["seed"] for r in both} == {0, 1}
    assert store.tables(cells[0]).metrics == first  # who asks for one seed gets one


def trained_in(monkeypatch):
    """Every job that is trained from now on, as its seed and its round."""
    trained = []

    def work_of(train, model, jobs):
        trained.extend((job.seed, job.round) for job in jobs)
        return jobs_module.work_of(train, model, jobs)

    monkeypatch.setattr(engine, "work_of", work_of)
    return trained


def untimed(tables):
    return [[{k: v for k, v in r.items() if not k.endswith("_seconds")} for r in vars(tables)[t]] for t in vars(tables)]


FEW, MORE = {"methods": "frozen,mpt"}, {"methods": "fedavg,mpt-x,oracle-train", "eval_every": 3}
"""What is read out of one training; of the second, a training that goes on is read too."""


def test_cells_of_one_training_are_trained_once_and_measure_what_each_does_by_itself(tmp_path, monkeypatch):
    both, alone = CellStore(tmp_path / "both"), CellStore(tmp_path / "alone")
    cells = [cell("few", **FEW, seeds=2), cell("more", **MORE, seeds=2), cell("other", **FEW, remaining=0.3)]
    assert cells[0].training == cells[1].training != cells[2].training
    for one in cells:
        sweep([one], alone, console=quiet())
    sweep([cell("few", **FEW)], both, console=quiet())
    trained = trained_in(monkeypatch)
    swept = sweep(cells, both, console=quiet())
    assert sorted(swept.computed) == sorted(one.key for one in cells)
    for one in cells:
        assert untimed(both.tables(one)) == untimed(alone.tables(one))
        assert (both.folder(one) / "report.html").exists()
        assert {file.name for file in (both.folder(one) / "models").iterdir()} == {
            file.name for file in (alone.folder(one) / "models").iterdir()
        }
    # of seed 0 the second cell and the third, of seed 1 the first two; two trainings are one until the departure
    assert Counter(trained) == {(0, 1): 2, (0, 2): 3, (0, 3): 3, (1, 1): 1, (1, 2): 2, (1, 3): 2}


def test_cells_that_were_stopped_inside_a_seed_end_it_alone_and_go_on_together(tmp_path, monkeypatch):
    store, cells = CellStore(tmp_path), [cell("few", **FEW, seeds=2), cell("more", **MORE, seeds=2)]

    def stop(seed, number, rows):
        if number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"after round 2 of seed 0.*; stopped after round 1 of seed 0"):
        store.compute_together(cells, "cpu", [stop, lambda *_: None], [print, print])
    trained = trained_in(monkeypatch)
    assert len(sweep(cells, store, console=quiet()).computed) == 2
    assert Counter(trained) == {(0, 2): 2, (0, 3): 3, (1, 1): 1, (1, 2): 2, (1, 3): 2}


def test_a_cell_that_is_finished_before_another_of_its_training_fails_has_its_page(tmp_path):
    store, cells = CellStore(tmp_path), [cell("one seed", **FEW), cell("two", **MORE, seeds=2)]

    def fail(seed, number, rows):
        if seed == 1:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        store.compute_together(cells, "cpu", [lambda *_: None, fail], [print, print])
    assert store.paged(cells[0])
    assert not store.finished(cells[1])


def test_an_attack_is_trained_for_its_own_cell():
    lying, other = (cell(**changes, attack=("shift@0",)) for changes in (FEW, MORE))
    assert lying.training != other.training


def test_a_method_that_fails_leaves_the_cells_of_its_training(tmp_path):
    mine = tmp_path / "mine.py"
    example = Path(__file__).parents[2].joinpath("examples/my_method.py").read_text()
    mine.write_text(example.replace("prototype, classes, then = state", "prototype, classes, then = state[:2]"))
    store, cells = CellStore(tmp_path / "store"), [cell("a", methods=f"{mine}:MyMethod"), cell("b")]
    console = Console(file=io.StringIO(), width=400)
    swept = sweep(cells, store, console=console)
    assert swept.computed == (cells[1].key,)
    assert list(swept.failed) == [cells[0].key]
    assert store.paged(cells[1])
    assert "b: not computed with others of its training" in console.file.getvalue()


@pytest.mark.parametrize("damage", [lambda text: text[:-40], lambda text: text[: len(text) // 2], lambda text: "?"])
def test_a_finished_cell_whose_tables_are_cut_off_is_said(swept, tmp_path, damage):
    mine, copy = swept[1][1], CellStore(tmp_path)
    shutil.copytree(swept[0].folder(mine), copy.folder(mine))
    assert copy.tables(mine) == swept[0].tables(mine)
    path = copy.folder(mine) / "metrics.csv"
    path.write_text(damage(path.read_text()))
    with pytest.raises(ConfigError, match="cut off or cannot be read; should be whole"):
        copy.tables(mine)


def test_data_that_has_moved_is_gone_on_with(swept, tmp_path):
    store, cells, _ = swept
    road = load("road?train=12&test=6", image_size=28)
    save_npz(road, tmp_path / "moved.npz")
    moved = cell("b", remaining=0.3, dataset=f"npz:{tmp_path / 'moved.npz'}", seeds=2)
    first = store.tables(cells[1]).metrics
    assert not sweep([moved], store, console=quiet()).failed
    assert store.tables(moved).metrics[: len(first)] == first


def test_a_cell_that_fails_is_said_and_leaves_the_others(tmp_path, swept):
    broken = tmp_path / "broken.py"
    broken.write_text(
        "class Broken:\n    name, training = 'broken', 'held-out'\n    def depart(self, context): pass\n"
        "    def track(self, state, context): raise RuntimeError('no such luck')\n"
    )
    store, bad, good = CellStore(tmp_path / "store"), cell(methods=f"frozen,{broken}:Broken"), cell()
    result = sweep([bad, good], store, console=quiet())
    assert result.computed == (good.key,)
    assert "no such luck" in result.failed[bad.key]
    assert "no such luck" in store.failure(bad)
    assert store.tables(bad) is None
    assert store.failure(good) is None


def test_what_a_cell_has_stays_where_it_cannot_go_on(tmp_path, monkeypatch):
    """Only another run in its folder is begun anew, not one that has no room."""
    store, one = CellStore(tmp_path), cell()

    def stop(seed, number, rows):
        if number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.compute(one, "cpu", stop, lambda _: None)
    before = sorted(path.name for path in store.folder(one).rglob("*") if path.is_file())
    assert any(name.endswith(".checkpoint") for name in before)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
        with pytest.raises(ConfigError, match="has 10 B left"):
            store.compute(one, "cpu", lambda *_: None, lambda _: None)
    after = sorted(path.name for path in store.folder(one).rglob("*") if path.is_file())
    assert [name for name in after if name != "error.txt"] == before
    store.compute(one, "cpu", lambda *_: None, lambda _: None)
    assert store.finished(one)


def test_a_cell_that_runs_when_the_time_is_over_ends_and_none_is_begun_after_it(tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(
        sweep_module, "time", SimpleNamespace(time=lambda: clock[0], perf_counter=time.perf_counter, sleep=time.sleep)
    )
    store, cells, messages = CellStore(tmp_path), [cell("a"), cell("b", remaining=0.3)], []

    def report(message):
        messages.append(message)
        clock[0] = 200.0

    work(cells, store, "cpu", 0.0, report, until=150.0)
    assert [store.finished(one) for one in cells] == [True, False]
    assert {key for _, key, _ in messages} == {cells[0].key}
    work(cells, store, "cpu", 0.0, report, until=250.0)
    assert store.finished(cells[1])


@pytest.mark.slow
def test_several_processes_begin_nothing_when_the_time_is_over(tmp_path):
    cells = [cell("a"), cell("b", remaining=0.3)]
    result = sweep(cells, CellStore(tmp_path), jobs=2, device="cpu", until=time.time(), console=quiet())
    assert (result.done, result.computed, result.failed) == ((), (), {})


def test_a_claimed_cell_is_left_alone_until_it_is_given_back(tmp_path):
    store, one = CellStore(tmp_path), cell()
    with store.claimed(one) as ours, store.claimed(one) as theirs:
        assert (ours, theirs) == (True, False)
    with store.claimed(one) as ours:
        assert ours


def _compute_all(path, cells, counts):
    messages = []
    work(cells, CellStore(path), "cpu", time.time() - 1, messages.append)
    counts.put([key for kind, key, figures in messages if kind == "done" and figures is not None])


@pytest.mark.slow
def test_two_processes_share_a_sweep_and_compute_no_cell_twice(tmp_path):
    cells = [cell(str(i), remaining=0.1 + 0.02 * i) for i in range(6)]
    context = multiprocessing.get_context("spawn")
    counts = context.Queue()
    processes = [context.Process(target=_compute_all, args=(tmp_path, cells, counts)) for _ in range(2)]
    for process in processes:
        process.start()
    computed = [key for _ in processes for key in counts.get(timeout=300)]
    for process in processes:
        process.join()
    assert sorted(computed) == sorted(c.key for c in cells)
    assert all(CellStore(tmp_path).finished(c) for c in cells)


def _compute_slowly(path, one, begun):
    def report(message):
        if message[0] == "round" and message[2][1] == 2:
            begun.put(message[2])
            time.sleep(60)

    work([one], CellStore(path), "cpu", time.time(), report)


@pytest.mark.slow
def test_a_killed_process_gives_its_cell_back_and_another_goes_on_with_it(tmp_path, swept):
    context = multiprocessing.get_context("spawn")
    begun, one = context.Queue(), cell("killed")
    process = context.Process(target=_compute_slowly, args=(tmp_path, one, begun))
    process.start()
    assert begun.get(timeout=300)[:2] == (0, 2)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    store, messages = CellStore(tmp_path), []
    assert not store.finished(one)
    work([one], store, "cpu", time.time(), messages.append)
    assert [m[2][1] for m in messages if m[0] == "round"] == [3]  # rounds 1 and 2 were there
    assert any("resumes after round 2" in m[2] for m in messages if m[0] == "note")
    expected = swept[0].tables(swept[1][0]).metrics
    found = store.tables(one).metrics
    times = dict.fromkeys(("seconds", "vehicle_seconds", "server_seconds"))
    assert [r | times for r in found] == [r | times for r in expected]


@pytest.mark.slow
def test_a_sweep_over_several_jobs(tmp_path):
    cells = [cell(str(i), remaining=0.1 + 0.02 * i) for i in range(3)]
    result = sweep(cells, CellStore(tmp_path), jobs=2, device="cpu", console=quiet())
    assert sorted(result.computed) == sorted(c.key for c in cells)
    assert not result.failed
    manifest = json.loads((CellStore(tmp_path).folder(cells[0]) / "manifest.json").read_text())
    assert manifest["device"] == "cpu"


STOPPED = """
import sys
from pathlib import Path
from mpt.experiments.cells import CellStore
from mpt.experiments.sweep import sweep
from tests.experiments.test_cells import cell, quiet

if __name__ == "__main__":
    cells = [cell(str(i), remaining=0.1 + 0.02 * i, rounds=5000, methods="frozen") for i in range(2)]
    try:
        sweep(cells, CellStore(Path(sys.argv[1])), jobs=2, device="cpu", console=quiet())
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.slow
def test_ctrl_c_stops_all_processes_with_their_checkpoints_written(tmp_path):
    script, store = tmp_path / "stopped.py", CellStore(tmp_path / "store")
    script.write_text(STOPPED)
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"}
    process = subprocess.Popen(
        [sys.executable, script, store.path], env=environment, start_new_session=True, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 300
    try:
        while len({p.parent for p in store.path.glob("*/checkpoint/*.checkpoint")}) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=120) == 130
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    one, other = (cell(str(i), remaining=0.1 + 0.02 * i, rounds=5000, methods="frozen") for i in range(2))
    with store.claimed(one) as ours, store.claimed(other) as too:
        assert ours
        assert too
    assert not store.finished(one)
    messages = []

    def until_it_goes_on(message):
        messages.append(message)
        if message[0] == "round":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work([one], store, "cpu", time.time(), until_it_goes_on)
    assert any("it resumes after round" in m[2] for m in messages if m[0] == "note")
