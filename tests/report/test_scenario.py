"""The page of a scenario's run: escaped, self-contained, the same every time, and it fits a phone."""

import json
import re

import numpy as np
import pytest

from mpt.report.scenario import write_scenario_report
from mpt.report.scenario_files import read_scenario_files, split_names, stretches
from mpt.report.scenario_words import verdict
from mpt.runs.errors import RunError
from mpt.scenario import Presence, parking_lot, with_failures, write_presence
from tests.report import browser
from tests.report.test_page import parsed

METHODS = {"mpt": 0.9, "mpt-x": 0.92, "frozen": 0.2, "oracle-train": 0.93}
HOSTILE = ("car", '<b>&"x', "</script><script>window.pwned = 1</script>")


def presence_of(seed, rounds, name="v1"):
    """Vehicle 1 leaves after round 4 and says so, and is back in round 9."""
    vehicles = (name, "v2", "v3", "<i>v4</i>")
    made = parking_lot(vehicles, rounds, {0: 4 + seed}, {0: 9 + seed} if rounds >= 9 + seed else {})
    goodbye = np.zeros_like(made.there)
    goodbye[3 + seed, 0] = True
    said = Presence(vehicles, made.there, made.silent, goodbye, tuple(f"day {i}" for i in range(1, rounds + 1)))
    return with_failures(said, 0.1, np.random.default_rng(seed))


def write_lines(path, lines):
    """A CSV file of texts without commas."""
    text = "".join(",".join(str(one) for one in line) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")


def write_files(folder, *, classes=("car", "truck", "traffic light"), seeds=1, rounds=12, absent=True, methods=METHODS):
    """A run in which the last class is on vehicle 1."""
    lost, presences = classes[-1], [presence_of(seed, rounds) for seed in range(seeds)]
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text('scenario = "mine"\ncarry_share = 0.25\nbackbone = "cnn3"\n', encoding="utf-8")
    manifest = {"scenario": "mine <1>", "about": "One & all.", "dataset": "digits", "classes": list(classes)}
    manifest["lost_with"] = {str(seed): {lost: "v1"} if absent else {} for seed in range(seeds)}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    table = [("seed", "round", "class", "samples", "share", "absent", "deposit", "held_out")]
    metrics = [("seed", "round", "method", "class", "f1", "precision", "recall", "absent", "deposit")]
    decisions = [("seed", "round", "what", "vehicle", "classes", "why")]
    pairs = 0
    for seed, presence in enumerate(presences):
        write_presence(presence, folder / f"presence-{seed}.csv")
        for r in range(1, rounds + 1):
            for c, name in enumerate(classes):
                away = absent and name == lost and not presence.there[r - 1, 0]
                pairs += away
                kept = int(away and r > 6)
                share = 0.02 if away else 1.0
                quoted = '"' + name.replace('"', '""') + '"'
                table.append((seed, r, quoted, 5, share, int(away), int(away), kept))
                for method, level in methods.items():
                    f1 = level - 0.01 * c if away else 0.95
                    metrics.append((seed, r, f'"{method}"', quoted, f1, 0.5, 0.5, int(away), int(away)))
        named = '"' + lost.replace('"', '""') + '"'
        for r, what in enumerate(
            ("joined", "watched", "suspected", "deposited", "departed", "held-out", "recovered"), 1
        ):
            decisions.append(
                (seed, r, what, "v1", named if what not in ("joined", "departed") else "", f"why <u>{what}")
            )
    for name, lines in {"classes": table, "metrics": metrics}.items():
        write_lines(folder / f"{name}.csv", lines)
    write_lines(folder / "decisions.csv", decisions if absent else [])
    summary = [("method", "pairs", "f1", "deviation", "with_deposit", "f1_with_deposit", "others_f1", "bytes_up")]
    for method, level in methods.items():
        f1 = level if pairs else ""
        size = "" if method == "oracle-train" else 12345
        summary.append((f'"{method}"', pairs, f1, 0.01 if seeds > 1 and pairs else "", pairs, f1, 0.95, size))
    write_lines(folder / "summary.csv", summary)
    return folder


@pytest.mark.parametrize("case", [{}, {"seeds": 3}, {"absent": False}, {"rounds": 7}, {"methods": {"mine": 0.5}}])
def test_every_kind_of_run_gives_a_page(tmp_path, case):
    page = write_scenario_report(write_files(tmp_path, **case)).read_text(encoding="utf-8")
    tags = parsed(page)
    assert sum(tag == "h1" for tag, _ in tags) == 1
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\(", page)
    charts = [attributes for tag, attributes in tags if tag == "svg" and "chart" in attributes.get("class", "")]
    assert charts
    assert all(one["role"] == "img" and one["aria-label"] for one in charts)
    identifiers = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    assert (sum("strips" in one["class"] for one in charts) > 0) is case.get("absent", True)


def test_lanes_states_and_decisions_are_there(tmp_path):
    page = write_scenario_report(write_files(tmp_path)).read_text(encoding="utf-8")
    tags = parsed(page)
    stays = re.findall(r'<rect class="lane holder"[^>]*><title>([^<]*)</title>', page)
    told = "v1 (holds traffic light): there in rounds"
    assert stays == [f"{told} 1 (day 1) to 4 (day 4)", f"{told} 9 (day 9) to 12 (day 12)"] * 2  # wide, and for a phone
    assert page.count("v1 says goodbye in round 4 (day 4)") == 2
    presence = read_scenario_files(tmp_path).presences[0]
    assert page.count("does not answer in") == 2 * presence.silent.sum()
    made = re.findall(r'<g class="decision ([a-z-]*)"', page)
    assert made == ["watched", "suspected", "deposited", "departed", "held-out", "recovered"] * 2
    states = re.findall(r'<rect class="is-[a-z-]*"[^>]*><title>([^<]*)</title>', page)
    expected = ["measured in rounds 1 to 4", "deposit in rounds 5 to 6", "held out in rounds 7 to 8"]
    assert states == [f"traffic light: {one}" for one in [*expected, "measured in rounds 9 to 12"]] * 2
    assert sum(attributes.get("data-chart") == "f1-0" for _, attributes in tags) == 2
    assert "F1 of traffic light by round; is absent in rounds 5 to 8" in page
    assert "<td>recovered</td><td>v1</td><td>traffic light</td>" in page


def test_lanes_and_classes_share_their_axis(tmp_path):
    page = write_scenario_report(write_files(tmp_path)).read_text(encoding="utf-8")
    found = {}
    for match in re.finditer(
        r'<svg class="chart (?:lanes|strips)" viewBox="0 0 (\d+) (.*?)</svg>', page, flags=re.DOTALL
    ):
        found.setdefault(match[1], set()).add(tuple(re.findall(r'class="upright" d="M([\d.]+) ', match[2])))
    assert {len(rules) for rules in found.values()} == {1}


def test_the_verdict(tmp_path):
    first, second, *_ = verdict(read_scenario_files(write_files(tmp_path / "one")))
    assert first == "One class was absent for a time: traffic light with v1 for 4 rounds."
    assert second.startswith("Meanwhile the mean F1 of an absent class is .900 with mpt, .920 with mpt-x and .200 with")
    assert second.endswith("oracle-train, which reads the absent samples themselves, reaches .930.")
    several = verdict(read_scenario_files(write_files(tmp_path / "two", seeds=2, classes=("car", "8"))))
    assert (
        several[0]
        == "One class was absent for a time: class 8. Over 2 seeds that makes 8 pairs of a class and a round."
    )
    nobody = verdict(read_scenario_files(write_files(tmp_path / "none", absent=False)))
    assert nobody == ["No class was absent in any round, so these files do not say what an absence does."]


def test_the_same_files_give_the_same_page(tmp_path):
    folder = write_files(tmp_path, seeds=2)
    first = write_scenario_report(folder).read_bytes()
    assert write_scenario_report(folder).read_bytes() == first
    assert sorted(p.name for p in folder.iterdir() if p.suffix in {".html", ".tmp"}) == ["report.html"]


def test_names_are_escaped(tmp_path):
    methods = {"mpt": 0.9, "<s>mine": 0.5}
    page = write_scenario_report(write_files(tmp_path, classes=HOSTILE, methods=methods)).read_text(encoding="utf-8")
    tags = parsed(page)
    assert sum(tag == "script" for tag, _ in tags) == 2
    assert not {"b", "s", "u"} & {tag for tag, _ in tags}
    assert all(attributes.get("class", "").startswith("patch") for tag, attributes in tags if tag == "i")
    assert "<title>Scenario mine &lt;1&gt;" in page


def test_names_with_blanks_and_stretches():
    names = ("light", "traffic", "traffic light", "a b c")
    assert split_names("traffic light light a b c", names) == ("traffic light", "light", "a b c")
    assert split_names("", names) == ()
    assert split_names("traffic jam", names) is None
    assert stretches([1, 0, 1, 1]) == [(1, 1), (3, 4)]


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("metrics.csv", None, "there is no such file"),
        ("config.toml", lambda text: "a = ", "is no TOML"),
        ("config.toml", lambda text: "rounds = 3", "has no scenario"),
        ("manifest.json", lambda text: "{", "is no JSON"),
        ("manifest.json", lambda text: "{}", "classes should be a list"),
        ("presence-0.csv", None, "has no presence-0.csv"),
        ("presence-0.csv", lambda text: text.replace("v1,1,4", "v1,1,400"), "line"),
        ("classes.csv", lambda text: "".join(text.splitlines(True)[:-1]), "11 rounds of class traffic light in seed 0"),
        ("classes.csv", lambda text: text.replace("0,2,", "0,3,"), "line 5: round is 3, should be 2"),
        ("decisions.csv", lambda text: text.replace('"traffic light"', "tram", 1), "classes is 'tram'"),
        ("metrics.csv", lambda text: text.replace("0.9,", "1.9,"), "f1 is"),
        ("summary.csv", lambda text: text.replace("others_f1", "others"), "there is no column others_f1"),
    ],
)
def test_a_broken_file_is_one_sentence(tmp_path, name, change, sentence):
    path = write_files(tmp_path) / name
    if change is None:
        path.unlink()
    else:
        before = path.read_text(encoding="utf-8")
        assert change(before) != before
        path.write_text(change(before), encoding="utf-8")
    with pytest.raises(RunError, match=re.escape(sentence)) as told:
        write_scenario_report(tmp_path)
    assert "\n" not in str(told.value)
    assert not (tmp_path / "report.html").exists()


def test_evidence_is_a_section_where_there_is_any(tmp_path):
    folder = write_files(tmp_path)
    assert "Evidence without test data" not in write_scenario_report(folder).read_text(encoding="utf-8")
    (folder / "evidence.csv").write_text(
        "seed,round,class,right,samples,low,high,test_recall,deposit\n"
        "0,1,<b>,9,9,0.70,1.0,0.9,0\n0,2,<b>,3,7,0.158,0.750,0.5,1\n0,2,car,0,0,0.0,1.0,,0\n",
        encoding="utf-8",
    )
    page = write_scenario_report(folder).read_text(encoding="utf-8")
    assert "Recall in round 2" in page
    assert "&lt;b&gt; (deposit)" in page
    assert "3 of 7" in page
    assert "9 of 9" not in page
    assert ".16 to .75" in page


@pytest.mark.skipif(browser.CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.parametrize("width", browser.WIDTHS)
def test_it_fits_a_phone_a_tablet_and_a_laptop(tmp_path, width):
    page = write_scenario_report(write_files(tmp_path, classes=HOSTILE, seeds=2))
    result = browser.look(page, browser.FITS + "result.pwned = window.pwned === 1;", width=width)
    assert result["wrong"] == []
    assert result["requests"] == []
    assert result["wide"] <= result["window"] == width
    assert result["cut"] == []
    assert not result["pwned"]
    assert result["charts"] == 5  # lanes and classes of two seeds, and F1 of a class
