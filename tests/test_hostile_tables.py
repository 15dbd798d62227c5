"""The tables of benchmarks/hostile.py: an attack against the lower of the honest run and the run without who lies."""

import csv
import importlib.util
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[1] / "benchmarks" / "hostile_tables.py"
COLUMNS = ("what", "dataset", "rare", "remaining", "place", "gate", "seed", "attack", "method", "round", "f1")
F1 = {
    "honest": {"0": (0.9, 0.7), "1": (0.8, 0.8)},
    "without": {"0": (0.8, 0.6), "1": (0.9, 0.9)},
    "without two": {"0": (0.5, 0.5), "1": (0.5, 0.5)},
    "shift@0": {"0": (0.6, 0.6), "1": (0.75, 0.85)},
    "shift@0+1": {"0": (0.5, 0.4), "1": (0.5, 0.5)},
}


@pytest.fixture
def tables(monkeypatch):
    spec = importlib.util.spec_from_file_location("hostile_tables", PATH)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "attacks.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*COLUMNS, "accuracy", "verdict"])
        for attack, seeds in F1.items():
            for seed, values in seeds.items():
                for round_, f1 in enumerate(values):
                    for method in ("mpt", "mpt-x"):
                        place = ("attacks", "digits", "8", "0.15", "holder", "on", seed, attack, method, round_, f1)
                        writer.writerow([*place, 0.5, "good" if method == "mpt" else "disputed"])
    return path


def test_an_attack_is_compared_seed_by_seed_with_the_lower_of_two_runs(tables, written, capsys):
    lines = list(csv.DictReader(written.read_text().splitlines()))
    assert tables.gaps(lines, "shift@0", "mpt", "f1") == pytest.approx([0.6 - 0.7, 0.8 - 0.8])
    assert tables.gaps(lines, "shift@0+1", "mpt", "f1") == pytest.approx([0.45 - 0.5, 0.0])
    tables.show([written], short=False)
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| shift@0 | mpt |")]
    assert row.startswith("| shift@0 | mpt | 0.700 | -0.050 ± 0.635 | 0.500 | +0.000 ± 0.000 |")


def test_good_verdicts_are_counted_where_f1_of_a_round_has_fallen_by_a_tenth(tables, written, capsys):
    tables.show([written], short=False)
    rows = {tuple(line.split(" | ")[:2]): line for line in capsys.readouterr().out.splitlines() if "shift@0 " in line}
    assert [line.rsplit("|", 2)[1].strip() for line in rows.values()] == ["1 of 1", "0 of 1"]


def test_the_short_form_has_a_line_an_attack(tables, written, capsys):
    tables.show([written], short=True)
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| shift")]
    assert [row.split(" | ")[0] for row in rows] == ["| shift@0", "| shift@0+1"]
    assert rows[0].split(" | ")[1] == "-0.050 / -0.050 ± 0.635"
