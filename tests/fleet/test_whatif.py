"""What would be lost, before any training."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpt.fleet import FleetError
from mpt.fleet.spread import Spread
from mpt.fleet.whatif import as_json, dangers, read_counts

TABLE = """vehicle,class,count
a,truck,90
b,truck,10
b,car,40
c,bus,5
c,car,60
d,car,0
"""


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
    data = as_json(found, 0.5)
    assert data["vehicles"][0]["classes"][0] == {
        "class": "bus",
        "count": 5,
        "remaining": 0,
        "share": 1.0,
        "verdict": "vanishes",
    }


def test_columns_may_stand_in_any_order_and_classes_are_sorted_by_number(tmp_path):
    spread, names = read(tmp_path, "\ufeffcount, class ,vehicle\r\n3,10,x\r\n4,2,x\r\n\r\n1,10,y\r\n")
    assert names == ("2", "10")
    assert spread.vehicles == ("x", "y")
    np.testing.assert_array_equal(spread.counts, [[4, 3], [0, 1]])


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


@given(st.lists(st.lists(st.integers(0, 20), min_size=3, max_size=3), min_size=1, max_size=6))
def test_nothing_is_counted_twice(rows):
    spread = Spread.of({str(i): np.array(row) for i, row in enumerate(rows)}, 3)
    found = dangers(spread, ("x", "y", "z"))
    assert sum(one.count for d in found for one in d.losses) == sum(map(sum, rows))
    for danger in found:
        for one in danger.losses:
            assert (one.verdict == "vanishes") == (one.remaining == 0)
            assert one.share == pytest.approx(one.count / (one.count + one.remaining))
    assert [len(d.vanish) for d in found] == sorted((len(d.vanish) for d in found), reverse=True)
