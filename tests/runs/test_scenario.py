"""A scenario's run: its settings, the files that it writes, and the figures over the pairs."""

import csv
import json
import statistics
import tomllib

import pytest

pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.base.errors import ConfigError
from mpt.runs.scenario import TABLES, play, summary
from mpt.runs.scenario_config import DEFAULT_METHODS, ScenarioConfig, make_scenario_config
from mpt.scenario import PlanError, read_presence

SCENARIO = """
about = "One leaves for good, one comes back."
rounds = 6
vehicles = 4

[presence]
kind = "parking-lot"
leaves = { v1 = 3, v2 = 2 }
returns = { v2 = 5 }

[holdings]
holders = { "9" = "v1", "8" = "v2" }
remaining = 0.1
"""
AWAY = {(4, "9"), (5, "9"), (6, "9"), (3, "8"), (4, "8")}
METHODS = ("mpt", "frozen", "oracle-train")
COLUMNS = {
    "classes": "seed round class samples share absent deposit held_out",
    "decisions": "seed round what vehicle classes why",
    "metrics": "seed round method class f1 precision recall absent deposit",
    "summary": "method pairs f1 deviation with_deposit f1_with_deposit others_f1 bytes_up",
}


def small(path, **settings):
    """Of a scenario's file, so small that a round takes a fraction of a second."""
    return make_scenario_config(
        {"scenario": str(path), "dataset": "digits", "per_class": 10, "epochs": 1, "batch_size": 16, "grace": 0}
        | {"methods": METHODS, **settings}
    )


def read(folder, name):
    with open(folder / f"{name}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two seeds; every other round is read out, and the last."""
    folder = tmp_path_factory.mktemp("scenario")
    (folder / "mine.toml").write_text(SCENARIO, encoding="utf-8")
    seen = []
    config = small(folder / "mine.toml", seeds=2, first_seed=3, eval_every=2)
    made = play(
        config,
        out=folder / "out",
        begin=lambda manifest, rounds: seen.append((manifest["scenario"], rounds)),
        progress=lambda seed, one: seen.append((seed, one.round)),
    )
    return made, seen


def test_progress_is_told_round_by_round(run):
    _, seen = run
    assert seen == [("mine", 12), *((seed, number) for seed in (3, 4) for number in range(1, 7))]


def test_the_files_are_those_that_were_promised(run):
    made, _ = run
    files = {"config.toml", "manifest.json", "presence-3.csv", "presence-4.csv", *(f"{name}.csv" for name in TABLES)}
    files -= {"evidence.csv"}  # nothing was set aside to have evidence from
    assert {path.name for path in made.folder.iterdir()} == files
    for name, columns in COLUMNS.items():
        lines = read(made.folder, name)
        assert list(lines[0]) == columns.split()
        assert lines == [{key: str(value) for key, value in line.items()} for line in made.tables[name]]
    rounds = read(made.folder, "rounds")
    first = "seed round label here trained answered present_vehicles suspected_vehicles departed_vehicles state_bytes"
    assert list(rounds[0])[:10] == first.split()
    assert list(rounds[0])[10:] == ["bytes_up frozen", "bytes_up mpt"]


def test_settings_and_manifest_are_read_back(run):
    made, _ = run
    again = tomllib.loads((made.folder / "config.toml").read_text(encoding="utf-8"))
    assert make_scenario_config(again) == made.config
    manifest = json.loads((made.folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest == made.manifest
    assert manifest["lost_with"] == {seed: {"8": "v2", "9": "v1"} for seed in ("3", "4")}
    assert manifest["pairs"] == {"3": len(AWAY), "4": len(AWAY)}
    presence = read_presence(made.folder / "presence-3.csv")
    assert [presence.stays(v) for v in range(4)] == [[(1, 3)], [(1, 2), (5, 6)], [(1, 6)], [(1, 6)]]


def test_every_round_and_class_has_its_line(run):
    made, _ = run
    rounds, classes = made.tables["rounds"], made.tables["classes"]
    assert [(line["seed"], line["round"]) for line in rounds] == [(s, r) for s in (3, 4) for r in range(1, 7)]
    assert [line["here"] for line in rounds[:6]] == [4, 4, 3, 2, 3, 3]
    assert len(classes) == 2 * 6 * 10
    for line in classes:
        assert line["absent"] == ((line["round"], line["class"]) in AWAY)
        assert line["share"] == pytest.approx(line["samples"] / 10)
        assert line["deposit"] >= line["held_out"]
    said = [(d["round"], d["what"], d["vehicle"], d["classes"]) for d in made.tables["decisions"] if d["seed"] == 3]
    for expected in ((3, "deposited", "v2", "8"), (4, "held-out", "v1", "9"), (5, "recovered", "v2", "8")):
        assert expected in said


def test_read_out_rounds_have_a_line_a_method_and_class(run):
    made, _ = run
    metrics = made.tables["metrics"]
    assert [(m["seed"], m["round"], m["method"], m["class"]) for m in metrics] == [
        (s, r, name, str(c)) for s in (3, 4) for r in (2, 4, 6) for name in METHODS for c in range(10)
    ]
    for line in metrics:
        assert line["absent"] == ((line["round"], line["class"]) in AWAY)
        precision, recall = line["precision"], line["recall"]
        expected = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        assert line["f1"] == pytest.approx(expected, abs=2e-6)


def test_the_summary_is_what_the_metrics_say(run):
    """Recomputed from the files: pairs, means a seed, then over the seeds, and bytes a round."""
    made, _ = run
    metrics, rounds = read(made.folder, "metrics"), read(made.folder, "rounds")
    for line in read(made.folder, "summary"):
        mine = [m for m in metrics if m["method"] == line["method"]]
        by_seed = {seed: [m for m in mine if m["seed"] == seed] for seed in ("3", "4")}

        def mean(kept, by_seed=by_seed):
            return [statistics.fmean(float(m["f1"]) for m in some if kept(m)) for some in by_seed.values()]

        away = mean(lambda m: m["absent"] == "1")
        assert int(line["pairs"]) == 2 * sum(number % 2 == 0 for number, _ in AWAY)
        assert float(line["f1"]) == pytest.approx(statistics.fmean(away), abs=1e-6)
        assert float(line["deviation"]) == pytest.approx(statistics.stdev(away), abs=1e-6)
        stored = mean(lambda m: m["absent"] == "1" and m["deposit"] == "1")
        assert float(line["f1_with_deposit"]) == pytest.approx(statistics.fmean(stored), abs=1e-6)
        assert float(line["others_f1"]) == pytest.approx(statistics.fmean(mean(lambda m: m["absent"] == "0")), abs=1e-6)
        if line["method"] == "oracle-train":
            assert line["bytes_up"] == ""
        else:
            sent = [int(r[f"bytes_up {line['method']}"]) for r in rounds]
            assert int(line["bytes_up"]) == round(statistics.fmean(sent))


def line(seed, method, f1, absent, deposit=0):
    return {"seed": seed, "method": method, "f1": f1, "absent": absent, "deposit": deposit}


def test_means_are_taken_a_seed_and_then_over_the_seeds():
    """A seed with three pairs counts as much as one with a single pair."""
    metrics = [*(line(0, "mpt", 0.2, 1, 1) for _ in range(3)), line(1, "mpt", 0.8, 1), line(1, "mpt", 0.5, 0)]
    (found,) = summary(metrics, [{"bytes_up mpt": 100}, {"bytes_up mpt": 201}])
    assert found == {
        "method": "mpt", "pairs": 4, "f1": 0.5, "deviation": round(statistics.stdev([0.2, 0.8]), 6), "with_deposit": 3,
        "f1_with_deposit": 0.2, "others_f1": 0.5, "bytes_up": 150,
    }  # fmt: skip


def test_where_no_class_is_away_there_is_nothing_to_say():
    (found,) = summary([line(0, "live", 0.9, 0)], [{}])
    assert (found["pairs"], found["f1"], found["deviation"], found["f1_with_deposit"]) == (0, "", "", "")
    assert (found["others_f1"], found["bytes_up"]) == (0.9, "")
    assert summary([], []) == []


def test_the_same_settings_write_the_same_tables(run, tmp_path):
    """And nothing but the first seed's lines where there is one seed."""
    made, _ = run
    config = small(made.config.scenario, first_seed=3, eval_every=2, methods=("mpt",))
    again = play(config, out=tmp_path / "deep" / "out")
    for name in ("classes", "decisions"):
        assert again.tables[name] == [one for one in made.tables[name] if one["seed"] == 3]
    mine = [one for one in made.tables["metrics"] if one["seed"] == 3 and one["method"] == "mpt"]
    assert again.tables["metrics"] == mine
    assert [one["bytes_up mpt"] for one in again.tables["rounds"]] == [
        one["bytes_up mpt"] for one in made.tables["rounds"] if one["seed"] == 3
    ]
    assert again.tables["summary"][0]["deviation"] == ""


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"depart_at": 3}, "depart_at: is for the paper's departure, should be left out with --scenario"),
        ({"remaining": 0.1}, "remaining: is for the paper's departure, should be left out with --scenario"),
        ({"events": "leave 1 after 2"}, "events: is for the paper's departure, should be left out with --scenario"),
        ({"rounds": 9}, "rounds: is for the paper's departure, should be left out with --scenario"),
        ({"askd": 0.5}, "askd: there is no such setting, did you mean asked?"),
        ({"asked": 0.0}, "asked: 0.0, should be above 0"),
        ({"asked": 1.5}, "asked: 1.5, should be at most 1"),
        ({"grace": -1}, "grace: -1, should be at least 0"),
        ({"returns": "yes"}, "returns: 'yes', should be off, pooled or own"),
        ({"seeds": 0}, "seeds: 0, should be at least 1"),
    ],
)
def test_wrong_settings_are_one_sentence(settings, sentence):
    with pytest.raises(ConfigError) as told:
        make_scenario_config(settings)
    assert sentence in str(told.value)


def test_the_defaults_are_the_trackers_and_the_runs():
    config = ScenarioConfig()
    assert (config.scenario, config.methods, config.asked) == ("parking-lot", DEFAULT_METHODS, 1.0)
    assert (config.server["grace"], config.server["returns"], config.server["carry_share"]) == (3, "pooled", 0.25)
    assert list(ScenarioConfig(seeds=3, first_seed=5).seed_numbers) == [5, 6, 7]
    assert config.plan(7, 40).seed == 7


def test_a_scenario_that_there_is_not_is_suggested(tmp_path):
    with pytest.raises(PlanError, match="there is no 'delivery-flet', did you mean delivery-fleet"):
        play(small("delivery-flet"))
    with pytest.raises(PlanError, match=r"none\.toml cannot be read"):
        play(small(tmp_path / "none.toml"))


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path):
    (tmp_path / "mine.toml").write_text(SCENARIO, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"is not empty \(mine\.toml\), should be a new folder"):
        play(small(tmp_path / "mine.toml"), out=tmp_path)
    with pytest.raises(ConfigError, match="cannot be made a folder"):
        play(small(tmp_path / "mine.toml"), out=tmp_path / "mine.toml")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


def test_a_vehicle_of_the_scenario_or_a_class_of_the_dataset_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(SCENARIO.replace('"9" = "v1"', '"truck" = "v1"'), encoding="utf-8")
    with pytest.raises(PlanError, match="the dataset has no class 'truck'"):
        play(small(path))
    path.write_text(SCENARIO.replace("v1 = 3", "v9 = 3"), encoding="utf-8")
    with pytest.raises(PlanError, match="there is no vehicle 'v9'"):
        play(small(path))


def test_some_are_asked(run):
    """The other vehicles train, and are no less present."""
    made, _ = run
    again = play(small(made.config.scenario, asked=0.5, eval_every=6, methods=("mpt",)))
    rounds = again.tables["rounds"]
    assert [line["trained"] for line in rounds] == [line["here"] for line in rounds]
    assert all(line["answered"] <= 2 for line in rounds)
    assert all(line["suspected_vehicles"] + line["departed_vehicles"] == 0 for line in rounds[:2])
