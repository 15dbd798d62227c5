"""`mpt check-method`: what comes with MPT keeps the protocol, and each way of not keeping it is found."""

import re

import pytest

for package in ("torch", "typer"):
    pytest.importorskip(package, reason="the extra sim is not installed")

from pathlib import Path

from typer.testing import CliRunner

from mpt.checking import check_method
from mpt.cli.main import app
from mpt.methods import METHODS, Uniform, find_space

EXAMPLE = f"{Path(__file__).parents[2] / 'examples' / 'my_method.py'}:MyMethod"
TEMPLATE = """
import numpy as np
from mpt.protocol import on_vehicle

class Mine:
    name, training, needs_departure = "mine", "held-out", True
    {more}

    def depart(self, context):
        {depart}

    def track(self, state, context):
        {track}

    @on_vehicle(sums=("d",), count=())
    def part(self, asked, local):
        {part}
"""
GOOD = {
    "more": "",
    "depart": "return context.prototype()",
    "part": "return {'sums': local.features.sum(axis=0), 'count': float(len(local.labels))}",
    "track": "told = context.total(self.part); return state, told['sums'] / told['count']",
}
REFERENCE = "nothing is known that no method may know"
COUNTED = "what vehicles tell is in bytes that are counted"
SAMPLES = "no answer has data of single samples"
SAME = "the same seed gives the same bytes and outcome"
ORDER = "the order of the vehicles does not matter"
RESUMES = "a run that was stopped can be resumed"
NOTHING = "it works where no sample of the class remains"
GIVES = "depart and track give what they should"

SMUGGLES = {
    "more": "told = []",
    "part": "self.told.append(local.features.sum(axis=0)); return {'sums': np.zeros(24), 'count': 0.0}",
    "track": "self.told = []; context.total(self.part); return state, np.sum([state, *self.told], axis=0)",
}
PREDICTS = "R = type('R', (), {'predict': staticmethod(lambda x: %s)}); return state, R()"
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
    compared = name in ("oracle", "oracle-train", "oracle-train:outward", "oracle-train:duo", "live", "live:duo")
    assert ("as a row to compare with may" in told[REFERENCE]) == compared


def test_the_method_that_the_others_are_made_from_keeps_it(tmp_path):
    assert failed(method(tmp_path)) == {}


@pytest.mark.parametrize(
    ("parts", "expected", "said"),
    [
        ({"track": "return state, context.oracle('train')"}, [REFERENCE], "reads context.oracle in round 3"),
        (SMUGGLES, [COUNTED], "answers tell the server more than they send"),
        (
            {
                "part": "return {'sums': local.features.sum(axis=0) - self.kept, 'count': 1.0}",
                "track": "self.kept = state; return state, context.total(self.part)['sums']",
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
                "track": "self.n = 0; told = context.total(self.part); return state, told['sums'] / told['count']",
            },
            [COUNTED, ORDER],
            "when the vehicles' ids are in another order",
        ),
        (
            {"part": "return {'sums': local.features.sum(axis=0) * np.random.default_rng().random(), 'count': 1.0}"},
            [SAME],
            "other numbers are sent; draw from context.rng alone",
        ),
        (
            {"track": "return state, state + np.random.default_rng().standard_normal(len(state))"},
            [SAME],
            "draw from context.rng alone",
        ),
        ({"depart": "return lambda: 1", "track": "return state, context.head[0][2]"}, [RESUMES], "cannot be pickled"),
        (
            {
                "depart": "self.mine = context.prototype()",
                "track": "return None, getattr(self, 'mine', context.head[0][2])",
            },
            [RESUMES],
            "not in the method",
        ),
        (
            {"track": "p = context.prototype(); assert np.isfinite(p).all(), 'no prototype'; return state, p"},
            [NOTHING],
            "AssertionError: no prototype (mine.py, line ",
        ),
        ({"track": "return state, state[:3]"}, [GIVES], "gave an array of shape (3,), should be a prototype (d,)"),
        ({"track": "return state"}, [GIVES], "track gave ndarray, should be two"),
        ({"track": "return state, state * np.nan"}, [GIVES], "(NaN), though 9 samples of the class remain"),
        ({"track": "raise SystemExit(0)"}, [GIVES], "SystemExit: 0 (mine.py, line "),
        ({"track": PREDICTS % "np.full(len(x), -1)"}, [GIVES], "R.predict gave class -1, should be from 0 to 5"),
        ({"track": PREDICTS % "np.full(len(x), 6)"}, [GIVES], "R.predict gave class 6, should be from 0 to 5"),
        ({"track": PREDICTS % "np.zeros(len(x))"}, [GIVES], "R.predict gave float64 of shape"),
        ({"part": "return local.features.sum(axis=0)"}, [GIVES], "part gave ndarray, should be sums, count, by name"),
        ({"part": "return {'sums': local.earlier().sum(axis=0), 'count': 1.0}"}, [GIVES], "should say so: @on_vehicle"),
        ({"track": "return state, context.total(self.depart)"}, [GIVES], "is not declared to run on vehicles"),
        ({"more": "slow = 3"}, ["attributes are those of the protocol"], "slow is 3, should be True or False"),
        ({"more": "space = 3"}, ["attributes are those of the protocol"], "space is int, should be a dict"),
    ],
)
def test_what_does_not_keep_it_fails_the_check_that_is_meant(tmp_path, parts, expected, said):
    found = failed(method(tmp_path, **parts))
    assert sorted(found) == sorted(expected)
    assert any(said in text for text in found.values()), found


def test_the_methods_in_the_docs_are_what_they_say(tmp_path):
    text = (Path(EXAMPLE.rpartition(":")[0]).parents[1] / "docs" / "how-to" / "add-a-method.md").read_text()
    example, nearest, pulled = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert Path(EXAMPLE.rpartition(":")[0]).read_text().endswith(example)
    path = tmp_path / "pulled.py"
    path.write_text(pulled)
    assert failed(f"{path}:Pulled") == {}
    assert find_space(f"{path}:Pulled") == {"share": Uniform(0, 1)}
    path = tmp_path / "nearest.py"
    path.write_text(nearest)
    assert failed(f"{path}:Nearest") == {}
    leaky = nearest.replace(
        "told = context.total(self.drift, prototype=state)",
        "self.kept = state\n        told = context.total(self.drift)",
    )
    leaky = leaky.replace('asked["prototype"]', "self.kept")
    path.write_text(leaky.replace("local.earlier(), local.features", "local.earlier()[:20], local.features[:20]"))
    found = failed(f"{path}:Nearest")
    assert sorted(found) == sorted([COUNTED, SAMPLES])
    words = " ".join(text.split())  # the page breaks long lines
    assert all(" ".join(f"FAILED {name}: {said}".split()) in words for name, said in found.items())


def test_the_command_lists_the_checks_and_leaves_with_what_they_say(tmp_path):
    runner = CliRunner()
    good = runner.invoke(app, ["check-method", EXAMPLE])
    assert good.exit_code == 0, good.output
    *lines, last = good.stdout.splitlines()
    assert len(lines) == 9
    assert all(line.startswith("ok ") for line in lines)
    assert last == f"{EXAMPLE} keeps the protocol"
    bad = runner.invoke(app, ["check-method", method(tmp_path, track="return state, context.oracle('test')")])
    assert bad.exit_code == 1
    assert "FAILED  nothing is known that no method may know: it reads context.oracle in round 3" in bad.stdout
    assert bad.stdout.endswith(":Mine: 1 of 9 checks failed\n")
    broken = runner.invoke(app, ["check-method", method(tmp_path, track="return state")])
    assert broken.exit_code == 1
    assert broken.stdout.count("not tried") == 7
    for spec, message in (("mtp", "method: 'mtp' is none"), ("no.py:Mine", "method: there is no file no.py")):
        nonsense = runner.invoke(app, ["check-method", spec])
        assert nonsense.exit_code == 2
        assert nonsense.stderr.startswith(f"mpt: {message}")
