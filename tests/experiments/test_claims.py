from pathlib import Path

import pytest

pytest.importorskip("torch", reason="mpt.experiments needs torch, which is not installed")

from mpt.experiments.cells import CellStore
from mpt.experiments.claims import BASELINES, CLAIMS, beats_baselines
from mpt.experiments.plans import PAPER, CellSpec, Grid
from mpt.experiments.results import CellOutcome, Results
from mpt.runs.tables import Tables

WANTED = [CellSpec(remaining=0.01), CellSpec(remaining=0.02)]


class Made(Results):
    """Results whose outcomes are given."""

    def __init__(self, outcomes):
        super().__init__(Grid(PAPER, {}, 1), CellStore(Path("none")))
        object.__setattr__(self, "outcomes", outcomes)

    def of(self, wanted):
        return self.outcomes.get(wanted)


def outcome(depart_at=15, **last):
    methods = dict.fromkeys(BASELINES, 0.1) | {name.replace("_", "-"): value for name, value in last.items()}
    return CellOutcome(
        Tables(metrics=tuple(
            {"seed": 0, "round": n, "method": m, "readout": "mahalanobis", "class": "truck",
             "f1": v if n == 100 else 0.5, "prototype_distance": 1.0}
            for m, v in methods.items() for n in (15, 50, 100)
        )), "truck", depart_at, 100,
    )  # fmt: skip


def test_nothing_run_is_said_as_such():
    assert {claim.judge(Made({})).status for claim in CLAIMS} == {"not run"}


def test_beating_every_baseline_is_counted_over_the_settings_that_were_run():
    ahead, behind = outcome(mpt=0.4, ccvr=0.3), outcome(mpt=0.4, ccvr=0.45)

    def verdict(*outcomes):
        made = Made(dict(zip(WANTED, outcomes, strict=False)))
        return beats_baselines(made, WANTED, ("mpt",))

    assert verdict(ahead, ahead).status == "agrees"
    assert verdict(ahead).status == "agrees so far"
    assert "in 1 of 1 settings that were run, of 2" in verdict(ahead).figures
    assert verdict(behind, behind).status == "does not"
    both = verdict(ahead, behind)
    assert both.status == "in part"
    assert "the least lead: \N{MINUS SIGN}.050 over CCVR" in both.figures


def judge(text, results):
    (claim,) = [c for c in CLAIMS if c.text == text]
    return claim.judge(results)


def test_single_claims():
    cells = {CellSpec(remaining=0.01): outcome(mpt=0.5, oracle=0.4, oracle_train=0.6), CellSpec(): outcome(mpt=0.2)}
    assert judge("MPT exceeds the oracle at 1%", Made(cells)).status == "agrees"
    assert judge("The frozen prototype degrades progressively", Made(cells)).status == "agrees"
    assert judge("Holding out beats training on the remaining samples", Made(cells)).status == "not run"
    cells[CellSpec()] = outcome(**{"mpt": 0.2, "mpt:trained": 0.3})
    assert judge("Holding out beats training on the remaining samples", Made(cells)).status == "does not"
    swept = {CellSpec(): outcome(mpt=0.2), CellSpec(study="departure", depart_at=5): outcome(5, mpt=0.5)}
    assert judge("The round of the departure has no effect", Made(swept)).status == "does not"
