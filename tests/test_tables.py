import pytest

pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.tables import Tables


def test_what_is_written_is_read_again_the_same(tmp_path):
    noted = {"seed": 0, "round": 3, "method": "mine", "alpha": 0.25, "remaining": 4, "odd one": -1.5}
    drift = {"seed": 0, "round": 3, "method": "", "drift": 1.25, "rare_drift": 0.0}
    tables = Tables(diagnostics=(drift, noted))
    tables.write(tmp_path)
    again = Tables.read(tmp_path)
    assert [{k: v for k, v in r.items() if v is not None} for r in again.diagnostics] == [drift, noted]
    again.write(tmp_path / "..")
    assert (tmp_path / ".." / "diagnostics.csv").read_bytes() == (tmp_path / "diagnostics.csv").read_bytes()
    header, first, second = (tmp_path / "diagnostics.csv").read_text().splitlines()
    assert header.endswith("drift,rare_drift,odd one")
    assert first == "0,3,,,,,,,,,,1.250000,0.000000,"
    assert second == "0,3,mine,0.250000,,,4,,,,,,,-1.500000"
    frame = again.frame("diagnostics")
    assert frame["remaining"].dtype == "Int64"
    assert frame["alpha"].isna().tolist() == [True, False]
    assert frame["method"].tolist() == ["", "mine"]
    assert len(again.frame("metrics")) == 0
