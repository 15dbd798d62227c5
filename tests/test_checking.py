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
from mpt.protocol.messages import pack, total, unpack

class Mine:
    name, training, needs_departure = "mine", "held-out", True
    {more}

    def depart(self, now):
        {depart}

    def track(self, kept, now):
        def answer(question, local):
            {answer}
        {track}
"""
GOOD = {
    "more": "",
    "depart": "return now.prototype()",
    "answer": "return pack(local.features.sum(axis=0), np.array(float(len(local.labels))))",
    "track": "sums, count = total(now.ask(b'', answer)); return kept, sums / count",
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
    "answer": "told.append(local.features.sum(axis=0)); return b''",
    "track": "list(now.ask(b'', answer)); return kept, np.sum([kept, *told], axis=0)",
}
PREDICTS = "R = type('R', (), {'predict': staticmethod(lambda x: %s)}); return kept, R()"
MEDOID = "c = local.features.mean(axis=0); i = np.argmin(((local.features - c) ** 2).sum(axis=1)); "


def method(tmp_path, **parts):
    path = tmp_path / "mine.py"
    text = TEMPLATE.format(**{**GOOD, **parts})
    path.write_text(text.replace("        def answer", "        told = []\n        def answer"))
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
            {"answer": "return pack(local.features.sum(axis=0) - kept, np.array(1.0))"},
            [COUNTED],
            "an answer uses kept of the server's, which no message has brought",
        ),
        (
            {"answer": "now.prototype(); return pack(local.features.sum(axis=0), np.array(1.0))"},
            [COUNTED],
            "calls now.report, which is the server's",
        ),
        (
            {
                "answer": "return pack(local.features.T.copy())",
                "track": "list(now.ask(b'', answer)); return kept, kept",
            },
            [SAMPLES],
            "bytes when a vehicle has every sample twice",
        ),
        (
            {"answer": MEDOID + "return pack(local.features[i], np.array(1.0))"},
            [SAMPLES],
            "has a sample's features in it",
        ),
        (
            {"answer": "return pack(local.features[:10].sum(axis=0), np.array(10.0))"},
            [SAMPLES],
            "has its samples in another order",
        ),
        (
            {"track": "return kept, kept + np.random.default_rng().standard_normal(len(kept))"},
            [SAME],
            "draw from now.rng alone",
        ),
        (
            {"track": "first = unpack(next(iter(now.ask(b'', answer)))); return kept, first[0] / first[1]"},
            [ORDER],
            "when the vehicles' ids are in another order",
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
        (
            {
                "answer": "now.notes['x'] = now.notes.get('x', 0) + local.features.sum(); return b''",
                "track": "list(now.ask(b'', answer)); return kept, kept + now.notes['x']",
            },
            [COUNTED],
            "calls now.notes, which is the server's",
        ),
        (
            {
                "answer": "now.rng.random(len(local.labels)); return b''",
                "track": "list(now.ask(b'', answer)); return kept, kept + now.rng.random()",
            },
            [COUNTED],
            "answers tell the server more than they send",
        ),
        ({"answer": "return local.features.sum(axis=0)"}, [GIVES], "an answer is ndarray, should be bytes"),
        ({"track": "list(now.ask('what?', answer))"}, [GIVES], "now.ask was given str, should be bytes"),
        ({"more": "slow = 3"}, ["attributes are those of the protocol"], "slow is 3, should be True or False"),
    ],
)
def test_what_does_not_keep_it_fails_the_check_that_is_meant(tmp_path, parts, expected, said):
    found = failed(method(tmp_path, **parts))
    assert sorted(found) == sorted(expected)
    assert any(said in text for text in found.values()), found


def test_answers_in_a_form_of_their_own_are_compared_as_numbers(tmp_path):
    """Sums in another order differ in their last bits, which is no data of single samples."""
    plain = {
        "answer": "return (local.features.sum(axis=0) / 3).tobytes()",
        "track": "return kept, sum(np.frombuffer(a) for a in now.ask(b'', answer))",
    }
    assert failed(method(tmp_path, **plain)) == {}


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
