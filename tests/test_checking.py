"""`mpt check-method`: what comes with MPT keeps the protocol, and each way of not keeping it is found."""

import re

import pytest

for package in ("pydantic", "torch", "typer"):
    pytest.importorskip(package, reason="the extra sim is not installed")

from pathlib import Path

from typer.testing import CliRunner

from mpt.checking import check_method
from mpt.commands import app
from mpt.methods import METHODS

EXAMPLE = f"{Path(__file__).parents[1] / 'examples' / 'my_method.py'}:MyMethod"
TEMPLATE = """
import numpy as np
from mpt.protocol import on_vehicle

class Mine:
    name, training, needs_departure = "mine", "held-out", True
    {more}

    def depart(self, now):
        {depart}

    def track(self, kept, now):
        {track}

    @on_vehicle(sums=("d",), count=())
    def part(self, asked, local):
        {part}
"""
GOOD = {
    "more": "",
    "depart": "return now.prototype()",
    "part": "return {'sums': local.features.sum(axis=0), 'count': float(len(local.labels))}",
    "track": "told = now.total(self.part); return kept, told['sums'] / told['count']",
}
REFERENCE = "nothing is known that no method may know"
COUNTED = "what vehicles tell is in bytes that are counted"
SAMPLES = "no answer has data of single samples"
SAME = "the same seed gives the same bytes and outcome"
ORDER = "the order of the vehicles does not matter"
GOES_ON = "a run that was stopped goes on"
NOTHING = "it works where no sample of the class remains"
GIVES = "depart and track give what they should"

SMUGGLES = {
    "more": "told = []",
    "part": "self.told.append(local.features.sum(axis=0)); return {'sums': np.zeros(24), 'count': 0.0}",
    "track": "self.told = []; now.total(self.part); return kept, np.sum([kept, *self.told], axis=0)",
}
PREDICTS = "R = type('R', (), {'predict': staticmethod(lambda x: %s)}); return kept, R()"
MEDOID = "c = local.features.mean(axis=0); i = np.argmin(((local.features - c) ** 2).sum(axis=1)); "


def method(tmp_path, **parts):
    path = tmp_path / "mine.py"
    text = TEMPLATE.format(**{**GOOD, **parts})
    path.write_text(text)
    return f"{path}:Mine"


def failed(spec):
    return {check.name: check.said for check in check_method(spec) if check.passed is False}


@pytest.mark.parametrize(
    "name", [*(n for n in METHODS if n != "ccvr"), EXAMPLE, pytest.param("ccvr", marks=pytest.mark.slow)]
)
def test_what_comes_with_mpt_keeps_the_protocol(name):
    checks = check_method(name)
    assert [check for check in checks if not check.passed] == []
    told = {check.name: check.said for check in checks}
    compared = name in ("oracle", "oracle-train", "oracle-train:outward", "live")
    assert ("as a row to compare with may" in told[REFERENCE]) == compared


def test_the_method_that_the_others_are_made_from_keeps_it(tmp_path):
    assert failed(method(tmp_path)) == {}


@pytest.mark.parametrize(
    ("parts", "expected", "said"),
    [
        ({"track": "return kept, now.reference('train')"}, [REFERENCE], "reads now.reference in round 3"),
        (SMUGGLES, [COUNTED], "answers tell the server more than they send"),
        (
            {
                "part": "return {'sums': local.features.sum(axis=0) - self.kept, 'count': 1.0}",
                "track": "self.kept = kept; return kept, now.total(self.part)['sums']",
            },
            [COUNTED],
            "with the vehicles' memory apart from the server's: method: mine: AttributeError",
        ),
        (
            {"part": "return {'sums': local.features.T.copy(), 'count': 1.0}"},
            [GIVES],
            "sums of part has shape (24,",
        ),
        (
            {"part": MEDOID + "return {'sums': local.features[i], 'count': 1.0}"},
            [SAMPLES],
            "has a sample's features in it",
        ),
        (
            {"part": "return {'sums': local.features[:10].sum(axis=0), 'count': 10.0}"},
            [SAMPLES],
            "has its samples in another order",
        ),
        (
            {
                "more": "n = 0",
                "part": "self.n += 1; return {'sums': self.n * local.features.sum(axis=0), 'count': self.n * 1.0}",
                "track": "self.n = 0; told = now.total(self.part); return kept, told['sums'] / told['count']",
            },
            [COUNTED, ORDER],
            "when the vehicles' ids are in another order",
        ),
        (
            {"part": "return {'sums': local.features.sum(axis=0) * np.random.default_rng().random(), 'count': 1.0}"},
            [SAME],
            "other numbers are sent; draw from now.rng alone",
        ),
        (
            {"track": "return kept, kept + np.random.default_rng().standard_normal(len(kept))"},
            [SAME],
            "draw from now.rng alone",
        ),
        ({"depart": "return lambda: 1", "track": "return kept, now.head[0][2]"}, [GOES_ON], "cannot be pickled"),
        (
            {"depart": "self.mine = now.prototype()", "track": "return None, getattr(self, 'mine', now.head[0][2])"},
            [GOES_ON],
            "not in the method",
        ),
        (
            {"track": "p = now.prototype(); assert np.isfinite(p).all(), 'no prototype'; return kept, p"},
            [NOTHING],
            "AssertionError: no prototype (mine.py, line ",
        ),
        ({"track": "return kept, kept[:3]"}, [GIVES], "gave an array of shape (3,), should be a prototype (d,)"),
        ({"track": "return kept"}, [GIVES], "track gave ndarray, should be two"),
        ({"track": "return kept, kept * np.nan"}, [GIVES], "(NaN), though 9 samples of the class remain"),
        ({"track": "raise SystemExit(0)"}, [GIVES], "SystemExit: 0 (mine.py, line "),
        ({"track": PREDICTS % "np.full(len(x), -1)"}, [GIVES], "R.predict gave class -1, should be from 0 to 5"),
        ({"track": PREDICTS % "np.full(len(x), 6)"}, [GIVES], "R.predict gave class 6, should be from 0 to 5"),
        ({"track": PREDICTS % "np.zeros(len(x))"}, [GIVES], "R.predict gave float64 of shape"),
        ({"part": "return local.features.sum(axis=0)"}, [GIVES], "part gave ndarray, should be sums, count, by name"),
        ({"part": "return {'sums': local.earlier().sum(axis=0), 'count': 1.0}"}, [GIVES], "should say so: @on_vehicle"),
        ({"track": "return kept, now.total(self.depart)"}, [GIVES], "is not declared to run on vehicles"),
        ({"more": "slow = 3"}, ["attributes are those of the protocol"], "slow is 3, should be True or False"),
    ],
)
def test_what_does_not_keep_it_fails_the_check_that_is_meant(tmp_path, parts, expected, said):
    found = failed(method(tmp_path, **parts))
    assert sorted(found) == sorted(expected)
    assert any(said in text for text in found.values()), found


def test_the_methods_in_the_docs_are_what_they_say(tmp_path):
    text = (Path(EXAMPLE.rpartition(":")[0]).parents[1] / "docs" / "add-a-method.md").read_text()
    example, nearest = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert Path(EXAMPLE.rpartition(":")[0]).read_text().endswith(example)
    path = tmp_path / "nearest.py"
    path.write_text(nearest)
    assert failed(f"{path}:Nearest") == {}
    leaky = nearest.replace(
        "told = now.total(self.drift, prototype=kept)", "self.kept = kept\n        told = now.total(self.drift)"
    )
    leaky = leaky.replace('asked["prototype"]', "self.kept")
    path.write_text(leaky.replace("local.earlier(), local.features", "local.earlier()[:20], local.features[:20]"))
    found = failed(f"{path}:Nearest")
    assert sorted(found) == sorted([COUNTED, SAMPLES])
    assert all(f"    FAILED  {name}: {said}\n" in text for name, said in found.items())


def test_the_command_lists_the_checks_and_leaves_with_what_they_say(tmp_path):
    runner = CliRunner()
    good = runner.invoke(app, ["check-method", EXAMPLE])
    assert good.exit_code == 0, good.output
    *lines, last = good.stdout.splitlines()
    assert len(lines) == 9
    assert all(line.startswith("ok ") for line in lines)
    assert last == f"{EXAMPLE} keeps the protocol"
    bad = runner.invoke(app, ["check-method", method(tmp_path, track="return kept, now.reference('test')")])
    assert bad.exit_code == 1
    assert "FAILED  nothing is known that no method may know: it reads now.reference in round 3" in bad.stdout
    assert bad.stdout.endswith(":Mine: 1 of 9 checks failed\n")
    broken = runner.invoke(app, ["check-method", method(tmp_path, track="return kept")])
    assert broken.exit_code == 1
    assert broken.stdout.count("not tried") == 7
    for spec, message in (("mtp", "method: 'mtp' is none"), ("no.py:Mine", "method: there is no file no.py")):
        nonsense = runner.invoke(app, ["check-method", spec])
        assert nonsense.exit_code == 2
        assert nonsense.stderr.startswith(f"mpt: {message}")
