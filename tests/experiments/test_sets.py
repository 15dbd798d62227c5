import pytest

from mpt.experiments.sets import Source, parse_sources
from mpt.runs.config import ConfigError


def test_a_source_is_set_dataset_and_rare_class_after_the_last_colon():
    sources = parse_sources(["nuimages=parquet:/data/cifar10:truck", "car1000-fine=digits:8"], stand_ins=False)
    assert sources == {
        "nuimages": Source("nuimages", "parquet:/data/cifar10", "truck"),
        "car1000-fine": Source("car1000-fine", "digits", "8"),
    }
    (more,) = parse_sources(["nuimages=parquet:/x/cifar10:truck,cat,automobile"], stand_ins=False).values()
    assert more == Source("nuimages", "parquet:/x/cifar10", "truck", ("cat", "automobile"))
    assert more.short == "stand-in cifar10 (truck)"
    everything = parse_sources(["nuimages=npz:a.npz?x=1:micro sedan"], stand_ins=True)
    assert set(everything) == {"nuimages", "car1000-coarse", "car1000-fine"}
    assert everything["nuimages"] == Source("nuimages", "npz:a.npz?x=1", "micro sedan")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nuimages", "should be like nuimages=road:truck"),
        ("nuimages=road", "should be like"),
        ("cifar=road:truck", "nuimages, car1000-coarse or car1000-fine before the ="),
        ("nuimages=:truck", "should be like"),
        ("nuimages=road:", "should be like"),
        ("nuimages=road:truck,", "has an empty class name, should be like nuimages=road:truck,bus"),
        ("nuimages=road:,truck", "has an empty class name"),
        ("nuimages=road:truck,,bus", "has an empty class name"),
    ],
)
def test_anything_else_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_sources([text], stand_ins=True)
    with pytest.raises(ConfigError, match="twice"):
        parse_sources(["nuimages=road:truck", "nuimages=road:bus"], stand_ins=True)


@pytest.mark.parametrize(
    ("source", "real"),
    [
        (Source("nuimages", "nuimages:/data/nuimages", "truck"), True),
        (Source("nuimages", "nuimages:/data/nuimages?train=train", "bus"), True),
        (Source("nuimages", "parquet:/data/nuimages", "truck"), False),
        (Source("nuimages", "folder:nuimages:x", "truck"), False),
        (Source("nuimages", "car1000:/data/cars", "van"), False),
        (Source("car1000-coarse", "car1000:/data/cars", "van"), True),
        (Source("car1000-coarse", "car1000:/data/cars?level=fine", "micro"), False),
        (Source("car1000-fine", "car1000:/data/cars?level=fine", "micro"), True),
        (Source("car1000-fine", "car1000:/data/cars", "van"), False),
        (Source("car1000-fine", "nuimages:/data/nuimages", "truck"), False),
    ],
)
def test_only_what_the_loader_of_a_set_reads_is_called_real(source, real):
    assert source.real is real
    assert ("(real: " in source.label) is real
    assert ("(stand-in for " in source.label) is not real
    assert source.spec in source.label
    assert source.short.startswith("stand-in ") is not real


def test_headings_name_the_stand_in():
    assert Source("nuimages", "parquet:/data/cifar10", "truck").short == "stand-in cifar10 (truck)"
    assert Source("nuimages", "road?train=100", "truck").short == "stand-in road (truck)"
    assert Source("nuimages", "npz:/data/nuimages.npz", "truck").short == "stand-in nuimages.npz (truck)"
    assert Source("nuimages", "nuimages:/data/n", "truck").short == "nuImages (truck)"
