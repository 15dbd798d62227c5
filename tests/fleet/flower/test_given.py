"""Settings in Flower's form, refused where Flower would pass over them in silence."""

import pytest

pytest.importorskip("flwr", reason="the extra fleet is not installed")

from flwr.common.config import parse_config_args

from mpt.fleet import FleetError
from mpt.fleet.flower.given import given


@pytest.mark.parametrize("text", ['a=1 b="two words" c=true d=-0.5', "a='x=y' b=2", ""])
def test_what_flower_reads_is_read_alike(text):
    assert given([text], "config") == parse_config_args([text])


def test_a_toml_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('num-rounds = 100\nclasses = "car,van"\n')
    assert given([str(path)], "config") == {"num-rounds": 100, "classes": "car,van"}
    path.write_text("num-rounds = \n")
    with pytest.raises(FleetError, match=r"run\.toml is not TOML"):
        given([str(path)], "config")
    with pytest.raises(FleetError, match=r"none\.toml cannot be read"):
        given([str(tmp_path / "none.toml")], "config")
    path.write_text('classes = ["car", "van"]\n')
    with pytest.raises(FleetError, match=r'run\.toml: classes is a list, should be a text: classes = "car,van"'):
        given([str(path)], "config")
    with pytest.raises(FleetError, match="should stand alone"):
        given(["a=1", str(path)], "config")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "'nonsense' is no setting, should be key=value"),
        ("run.yaml", "run.yaml, a settings file should end in .toml"),
        ("num-rounds = 100", "'num-rounds' is no setting"),
        ("a=1 a=2", "a is given twice, 1 and 2"),
        ("dataset=folder:/data", "dataset = folder:/data, should be a number, true, false, or a text in quotes"),
        ('dataset="road",min-samples=5', ",min-samples=5 has a comma, settings should have spaces between them"),
        ("a=1, b=2", "a=1, has a comma"),
        ("a=[1,2]", r"a = [1,2], should be a number"),
    ],
)
def test_what_is_wrong_is_named(text, message):
    with pytest.raises(FleetError) as raised:
        given([text], "node config")
    assert f"node config: {message}" in str(raised.value)
