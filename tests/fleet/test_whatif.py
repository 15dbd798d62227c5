"""What would be lost, before any training."""

import json
import tomllib
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpt.fleet import FleetError
from mpt.fleet.whatif import (
    alike_classes,
    alike_vehicles,
    as_json,
    dangers,
    joint_groups,
    read_counts,
    smallest_groups,
    to_watch,
)
from mpt.tracking.coverage import Coverage, Watch, watch_next
from mpt.tracking.roster import Roster
from mpt.tracking.settings import TrackerSettings

TABLE = """vehicle,class,count
a,truck,90
b,truck,10
b,car,40
c,bus,5
c,car,60
d,car,0
"""


PAIRS = """vehicle,class,count
a,bus,45
b,bus,45
c,bus,10
a,tram,30
b,tram,40
c,tram,30
b,truck,80
c,truck,20
a,car,1
b,car,1
c,car,1
d,car,1
e,car,1
f,car,1
g,car,1
"""

tables = st.lists(st.lists(st.integers(0, 20), min_size=3, max_size=3), min_size=1, max_size=6)


def coverage_of(rows):
    return Coverage.of({str(i): np.array(row) for i, row in enumerate(rows)}, len(rows[0]))


def read(tmp_path, text):
    path = tmp_path / "counts.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_counts(path)


def test_the_most_dangerous_comes_first(tmp_path):
    found = dangers(*read(tmp_path, TABLE))
    assert [d.vehicle for d in found] == ["c", "a", "b", "d"]
    assert found[0].vanish == ("bus",)
    assert found[0].become_rare == ("car",)
    assert found[1].become_rare == ("truck",)
    assert (found[1].losses[0].count, found[1].losses[0].remaining) == (90, 10)
    assert found[1].largest == 0.9
    assert found[3].losses == ()
    assert dangers(*read(tmp_path, TABLE), 0.95)[1].become_rare == ()
    assert dangers(*read(tmp_path, TABLE), losing=True) == found[:2]
    data = as_json(*read(tmp_path, TABLE))
    assert data["watch_share"] == 0.5
    assert [one["vehicle"] for one in data["vehicles"]] == ["c", "a", "b", "d"]
    assert data["vehicles"][0]["classes"][0] == {
        "class": "bus",
        "count": 5,
        "remaining": 0,
        "share": 1.0,
        "verdict": "vanishes",
    }


def test_columns_may_stand_in_any_order_and_classes_are_sorted_by_number(tmp_path):
    coverage, names = read(tmp_path, "\ufeffcount, class ,vehicle\r\n3,10,x\r\n4,2,x\r\n\r\n1,10,y\r\n")
    assert names == ("2", "10")
    assert coverage.vehicles == ("x", "y")
    np.testing.assert_array_equal(coverage.counts, [[4, 3], [0, 1]])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1: the columns are ''"),
        ("vehicle,class\n", "line 1: the columns are 'vehicle, class'"),
        ("vehicle,class,count\n", "has no rows"),
        ("vehicle,class,count\na,b\n", "line 2: 2 cells, should be 3"),
        ("vehicle,class,count\na,b,1\n\na,c,-1\n", "line 4: count '-1'"),
        ("vehicle,class,count\na,b,1.5\n", "line 2: count '1.5'"),
        ("vehicle,class,count\na,b,\u0663\n", "line 2: count"),
        ("vehicle,class,count\na,b," + "9" * 5000 + "\n", "line 2: count"),
        ("vehicle,class,count\n,b,1\n", "line 2: vehicle ''"),
        ("vehicle,class,count\na,b,1\na,b,2\n", "line 3: vehicle 'a' and class 'b' stand there twice"),
        ('vehicle,class,count\n"a,b,1\n', "not CSV"),
        (b"vehicle,class,count\n\xff\xfe,b,1\n", "not UTF-8"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path, text, words):
    with pytest.raises(FleetError) as error:
        read(tmp_path, text)
    assert words in str(error.value)
    assert "counts.csv" in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FleetError, match="cannot be read"):
        read_counts(tmp_path / "none.csv")
    with pytest.raises(FleetError, match="watch-share"):
        dangers(*read(tmp_path, TABLE), 0.0)


@given(tables)
def test_nothing_is_counted_twice(rows):
    coverage = coverage_of(rows)
    found = dangers(coverage, ("x", "y", "z"))
    assert sum(one.count for d in found for one in d.losses) == sum(map(sum, rows))
    for danger in found:
        for one in danger.losses:
            assert (one.verdict == "vanishes") == (one.remaining == 0)
            assert one.share == pytest.approx(one.count / (one.count + one.remaining))
    assert [len(d.vanish) for d in found] == sorted((len(d.vanish) for d in found), reverse=True)
    losing = [d for d in found if d.vanish or d.become_rare]
    assert list(dangers(coverage, ("x", "y", "z"), losing=True)) == losing


def test_two_vehicles_together_hold_a_class(tmp_path):
    coverage, names = read(tmp_path, PAIRS)
    held = smallest_groups(coverage, names)
    assert [(one.name, one.vehicles) for one in held] == [
        ("truck", ("b",)),
        ("bus", ("a", "b")),
        ("tram", ("b", "a")),
        ("car", ()),
    ]
    assert (held[1].samples, held[1].share, held[1].remaining) == (100, 0.9, 10)
    assert held[0].also == ()
    assert held[1].also == ("truck", "tram")
    (pair,) = joint_groups(coverage, names, held)
    assert (pair.vehicles, pair.holds, pair.vanish) == (("a", "b"), ("bus", "tram"), ())
    assert pair.become_rare == ("bus", "truck", "tram")
    assert [len(one.vehicles) for one in smallest_groups(coverage, names, largest=1)] == [1, 0, 0, 0]
    assert smallest_groups(coverage, names, largest=9)[-1].vehicles == ("a", "b", "c", "d")
    with pytest.raises(FleetError, match="group: 0, should be at least 1"):
        smallest_groups(coverage, names, largest=0)


@given(tables, st.sampled_from([0.3, 0.5, 0.9, 1.0]), st.integers(1, 4))
def test_no_smaller_group_holds_the_share_and_no_other_holds_more(rows, watch_share, largest):
    coverage, names = coverage_of(rows), ("x", "y", "z")
    held = {one.name: one for one in smallest_groups(coverage, names, watch_share, largest)}
    for c, name in enumerate(names):
        total = sum(row[c] for row in rows)
        best = [max(sum(row[c] for row in some) for some in combinations(rows, k + 1)) for k in range(len(rows))]
        sizes = [k + 1 for k, count in enumerate(best) if total and count / total >= watch_share and k < largest]
        assert len(held[name].vehicles) == min(sizes, default=0)
        if sizes:
            assert held[name].remaining == total - best[sizes[0] - 1]
            mine = np.array([rows[int(v)] for v in held[name].vehicles]).sum(axis=0)
            lost = {
                n
                for n, mine, all in zip(names, mine, coverage.totals, strict=True)
                if all and mine / all >= watch_share
            }
            assert {name, *held[name].also} == lost
        else:
            assert (held[name].share, held[name].remaining) == (0.0, total)


@given(tables)
def test_what_to_watch_is_what_the_server_would_watch(rows):
    coverage, names = coverage_of(rows), ("x", "y", "z")
    found = to_watch(coverage, names)
    server, _ = watch_next(TrackerSettings(num_classes=3, dim=1), Watch(), coverage, (), Roster(), 1)
    wanted = {names[c] for c in (*server.classes, *server.crowded)}
    assert {*found.classes, *found.crowded} == (wanted if sum(map(any, rows)) > 1 else set())
    shares = [coverage.largest[names.index(name)] for name in (*found.classes, *found.crowded)]
    assert shares == sorted(shares, reverse=True)
    assert len(found.classes) <= found.most == TrackerSettings(num_classes=3, dim=1).capacity


def test_the_line_to_paste_is_read_by_flower(tmp_path):
    rows = [
        "a,van,9",
        'a,"van, old",9',
        'a,"the ""van""",9',
        "a,driver's van,9",
        "a,back\\slash,8",
        "a,gr\u00fcn = 1,7",
    ]
    rows += [f"{vehicle},{i},1" for i in range(20) for vehicle in "abc"]
    found = to_watch(*read(tmp_path, "\n".join(["vehicle,class,count", *rows])))
    assert found.classes == ("van", "back\\slash", "gr\u00fcn = 1")
    assert set(found.unwritable) == {"van, old", 'the "van"', "driver's van"}
    assert tuple(tomllib.loads(found.line)["watch"].split(",")) == found.classes
    config = pytest.importorskip("flwr.common.config", reason="the extra fleet is not installed")
    given = config.parse_config_args([f"num-rounds=3 {found.line} min-vehicles=2"])
    assert given == {"num-rounds": 3, "watch": ",".join(found.classes), "min-vehicles": 2}


def test_more_than_may_be_watched_and_nothing_to_watch(tmp_path):
    found = to_watch(*read(tmp_path, TABLE))
    assert (found.classes, found.crowded, found.most, found.line) == (("bus",), ("truck", "car"), 1, 'watch="bus"')
    assert to_watch(*read(tmp_path, "vehicle,class,count\na,x,1\na,y,1\nb,x,0\n")).line == ""
    assert to_watch(*read(tmp_path, "vehicle,class,count\na,x,9\nb,x,1\n")).crowded == ("x",)


@pytest.mark.parametrize(
    ("one", "other", "classes", "vehicles"),
    [
        ("Car", "car", True, True),
        ("pick-up", "pick_up", True, False),
        ("pick  up", "PickUp", True, True),
        ("pick up", "pick-up", True, False),
        ("v 1", "v1", True, True),
        ("gr\u00fcn", "gru\u0308n", True, True),
        ("1-1", "11", False, False),
        ("1 1", "11", False, False),
        ("1-1", "1_1", True, False),
        ("-1", "1", False, False),
        ("A-", "A", False, False),
        ("car", "cars", False, False),
    ],
)
def test_names_that_are_nearly_the_same(tmp_path, one, other, classes, vehicles):
    coverage, names = read(tmp_path, f"vehicle,class,count\n{one},{one},3\n{other},{other},4\nx,y,5\n")
    assert [set(alike) for alike in alike_classes(coverage, names)] == [{(one, 3), (other, 4)}] * classes
    assert [set(alike) for alike in alike_vehicles(coverage)] == [{(one, 3), (other, 4)}] * vehicles


def call(*arguments):
    for package in ("typer", "rich"):
        pytest.importorskip(package, reason="the extra sim is not installed")
    from typer.testing import CliRunner

    from mpt.cli.main import app

    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def printed(tmp_path, text, *options):
    path = tmp_path / "counts.csv"
    path.write_bytes(text.encode())
    done = call("whatif", path, *options)
    assert done.exit_code == 0
    return [line.rstrip() for line in done.output.splitlines()]


def test_the_command(tmp_path):
    text = "vehicle,class,count\na,truck,9\nb,truck,1\nb,[b]car,5\nb,:bus:,2\nc,:bus:,2\nd,van,0\nA,tram,3\n"
    lines = printed(tmp_path, text)
    assert lines[:8] == [
        "5 vehicles (1 without samples), 5 classes, 22 samples",
        "Vehicles, by what their departure would do:",
        "        2  would make a class vanish",
        "        2  would make a class rare: at least 50% of it would go",
        "        1  would make no class vanish or rare",
        "Classes, by the fewest vehicles that hold at least 50% of them:",
        "        4  on 1 vehicle: [b]car, tram, truck, :bus:",
        "        1  without samples: van",
    ]
    cells = [line.split() for line in lines]
    assert ["truck", "10", "a", "90%", "1", "0"] in cells
    assert ["[b]car", "5", "b", "100%", "0", "1"] in cells
    assert ["b", "[b]car", ":bus:", "(2", "of", "4", "remain)"] in cells
    assert "  'A' (3 samples), 'a' (9 samples)" in lines
    assert 'watch="[b]car,tram"' in lines
    assert "left out: truck, :bus:." in " ".join(lines)
    data = json.loads(call("whatif", tmp_path / "counts.csv", "--json", "--watch-share", "0.95").output)
    assert data == json.loads(json.dumps(as_json(*read_counts(tmp_path / "counts.csv"), 0.95)))
    assert {"watch_share", "vehicles", "classes", "groups", "watch", "alike_classes", "alike_vehicles"} <= data.keys()


def test_the_command_says_what_is_wrong(tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text("vehicle,class,count\na,truck,many\n")
    done = call("whatif", path)
    assert done.exit_code == 2
    assert "line 2: count 'many'" in done.stderr
    path.write_text(TABLE)
    for option, value in (("--watch-share", 2), ("--group", 0), ("--most", 0)):
        done = call("whatif", path, option, value)
        assert done.exit_code == 2
        assert f"{option[2:]}: {value}" in done.stderr


def test_groups_are_printed(tmp_path):
    lines = [line.split() for line in printed(tmp_path, PAIRS)]
    assert ["2", "on", "2", "vehicles:", "bus,", "tram"] in lines
    assert ["1", "on", "more", "vehicles"] in lines
    assert ["tram", "100", "b,", "a", "70%", "30", "2"] in lines
    assert ["a,", "b", "bus,", "truck,", "tram"] in lines


def test_a_large_fleet_is_a_short_text(tmp_path):
    rows = [f"vehicle-{v:04},class-{c:02},{900 if v == c else 1}" for v in range(500) for c in range(40)]
    text = "\n".join(["vehicle,class,count", *rows])
    lines = printed(tmp_path, text)
    assert "      460  would make no class vanish or rare" in lines
    assert "and 20 more classes: --all prints them, --json has them" in lines
    assert "and 20 more vehicles: --all prints them, --json has them" in lines
    assert len(lines) < 70
    assert all(len(line) <= 80 for line in lines if not line.startswith("watch="))
    assert len(printed(tmp_path, text, "--most", "1")) == len(lines) - 2 * 19
    everything = printed(tmp_path, text, "--all")
    assert sum(line.startswith("vehicle-") for line in everything) == 40
    assert not any("more" in line for line in everything)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("vehicle,class,count\na,car,1\n", "1 vehicle, 1 class, 1 sample"),
        ("vehicle,class,count\na,car,1\n", "Nothing to watch: fewer than two vehicles have samples"),
        ("vehicle,class,count\na,car,0\nb,car,0\n", "2 vehicles (2 without samples), 1 class, 0 samples"),
        ("vehicle,class,count\na,car,9\nb,car,1\n", "with one class there is no reference class"),
        ("\ufeffvehicle,class,count\r\na,car,1\r\nb,car,1\r\nc,car,1\r\n", "no class hangs on one vehicle"),
    ],
)
def test_small_tables(tmp_path, text, words):
    assert words in " ".join(printed(tmp_path, text))


def test_a_share_is_neither_all_nor_nothing_where_it_is_not(tmp_path):
    lines = printed(tmp_path, "vehicle,class,count\na,car,99999\nb,car,1\n")
    assert ["car", "100,000", "a", ">99%", "1", "0"] in [line.split() for line in lines]
