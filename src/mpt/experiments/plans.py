"""Which cells the exhibits need, and with which settings at each scale."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Literal

from mpt.core.equations import DEFAULT_COV_RIDGE, DEFAULT_RIDGE
from mpt.data import Dataset
from mpt.experiments.cells import Cell
from mpt.experiments.sets import SetName, Source, ToldSamples, loaded
from mpt.methods import find_methods
from mpt.runs.config import ConfigError, make_config

Study = Literal["main", "preliminary", "loss", "departure", "beyond", "own", "regimes"]
FURTHER = ("mpt-x",)
"""Methods beyond the paper that get a row of their own, from cells of their own: the study "beyond"."""

TABLE = ("ccvr", "icarl", "sdc", "ldc", "frozen", "mpt-lite", "mpt", *FURTHER, "oracle")
"""The rows of the paper's Tables 2 and 3, and further ones."""

LIKE_FOR_LIKE = ("mpt-x:in-place", "mpt:outward", "oracle-train:outward")
"""MPT-X without Eq. (X10), and MPT and oracle-train with it."""

FIRST_SEED = 10
"""Of the grid of regimes: seeds that nothing had been looked at with before."""

PARTS = ("mpt:in-span", "mpt:stored-residual", "mpt:predicted", "mpt:measured", "mpt:trained")
METHODS_OF: dict[str, tuple[str, ...]] = {
    "main": ("fedavg", *(m for m in TABLE if m not in FURTHER), "ldc:all", "remaining-mean", "oracle-train"),
    "preliminary": ("fedavg", "fedavg:live", "live", "remaining-mean", "mpt:in-span", "mpt:stored-residual", "mpt"),
    "loss": ("live", "remaining-mean"),
    "departure": ("frozen", "remaining-mean", "mpt", "mpt-lite", "oracle-train"),
    "beyond": (*FURTHER, "mpt", "ldc:all", "remaining-mean", "frozen", "oracle-train", *LIKE_FOR_LIKE),
    "regimes": (
        *TABLE, "ldc:all", "remaining-mean", "mean-shift", "dpcr", "dpcr:ncm", "stop-at-departure", "oracle-train",
    ),
}  # fmt: skip

EMBEDDING = {"backbone": "cnn3-embedding"}
REGIMES: dict[str, dict[str, Any]] = {
    "cnn3": {},
    "cnn3, no momentum": {"momentum": 0.0},
    "cnn3, lr .001": {"lr": 0.001},
    "cnn3, crop-flip": {"augment": "crop-flip"},
    "cnn3, 8 steps": {"local_steps": 8},
    "cnn3, cosine": {"schedule": "cosine"},
    "cnn3, FedProx .1": {"prox": 0.1},
    "cnn3, server momentum": {"server": "momentum", "server_lr": 0.1},
    "plain": {"backbone": "cnn3-plain"},
    "embedding, BatchNorm": {"backbone": "cnn3-embedding(norm=True)"},
    "embedding": EMBEDDING,
    "embedding, lr .03": {**EMBEDDING, "lr": 0.03},
    "embedding, batch 32": {**EMBEDDING, "batch_size": 32},
    "embedding, crop-flip": {**EMBEDDING, "augment": "crop-flip"},
    "embedding, 16 steps": {**EMBEDDING, "local_steps": 16},
    "embedding, cosine": {**EMBEDDING, "schedule": "cosine"},
    "embedding, lr .03, step": {**EMBEDDING, "lr": 0.03, "schedule": "step"},
    "embedding, FedProx .1": {**EMBEDDING, "prox": 0.1},
    "embedding, no weight decay": {**EMBEDDING, "weight_decay": 0.0},
}
"""Settings that the paper does not state, by name; the first is what every other exhibit is made with."""

TUNED: dict[str, dict[str, str]] = {
    "cnn3, lr .001": {
        "sdc": "sdc(sigma=0.445)",
        "ldc": "ldc(ridge=0.09595)",
        "ldc:all": "ldc:all(ridge=0.0003034)",
        "dpcr": "dpcr(ridge=0.004672, gamma=0.0004262)",
        "mpt-lite": "mpt-lite(ridge=0.01733)",
        "mpt": "mpt(ridge=0.02475, cov_ridge=0.01612)",
        "mpt-x": "mpt-x(cov_ridge=0.8766, outward=True)",
    },
    "embedding, lr .03, step": {
        "ccvr": "ccvr(lr=0.0004616, epochs=10, weight_decay=0.0004388, shrink=100, rectify=True, training='held-out')",
        "sdc": "sdc(sigma=0.9588)",
        "ldc": "ldc(ridge=7.195)",
        "ldc:all": "ldc:all(ridge=0.09595)",
        "dpcr": "dpcr(ridge=0.3504, gamma=5.054e-05)",
        "mpt-lite": "mpt-lite(ridge=0.01733)",
        "mpt": "mpt(ridge=0.07213, cov_ridge=0.03189)",
        "mpt-x": "mpt-x(cov_ridge=0.8766, outward=True)",
    },
}
"""By regime, what `mpt tune` found best there on the tuning classes, for methods whose default it was not
(results/tune-regime.csv, results/tune-network.csv).
"""

UNEVEN: dict[str, dict[str, Any]] = {
    "Dirichlet .1": {"dirichlet": 0.1},
    "a tenth takes part": {"participation": 0.1},
}
"""What is changed besides in `uneven`."""


@dataclass(frozen=True)
class Scale:
    """How large everything is.

    Attributes:
        rounds, depart_at, epochs, batch_size, per_class, image_size: as in `RunConfig`.
        remaining: the fractions of the tables.
        budgets: those of Figure 7.
        few: that of Figure 2 (a) to (c).
        fractions: those of Figure 2 (d).
        classes: of Figure 2 (d), at most; None: all.
        window: rounds after the departure in Figure 2.
        departures: the departure rounds that are compared.
        backbones: of Table 3, with the settings that one has for itself.
        backbone_remaining: the fractions of Table 3.
        eval_every: of cells whose rounds no figure shows.
        slow_every: of those whose rounds are shown, and of other backbones than cnn3.
        seeds: how many, unless the user says otherwise.
        beyond: whether `beyond` has more cells than Table 2: the further classes, and ResNet-18.
        regimes: those of the grid.
        regime_sets: whose Table 2 is made in the regime that the grid chose.
        many: vehicles where a tenth of them takes part; None: as many as classes.
    """

    name: str
    rounds: int
    depart_at: int
    epochs: int
    batch_size: int
    per_class: int
    image_size: int | None
    remaining: tuple[float, ...]
    budgets: tuple[float, float]
    few: float
    fractions: tuple[float, ...]
    classes: int | None
    window: int
    departures: tuple[int, ...]
    backbone_remaining: tuple[float, ...]
    eval_every: int
    slow_every: int
    seeds: int
    backbones: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    beyond: bool = False
    regimes: tuple[str, ...] = tuple(REGIMES)
    regime_sets: tuple[SetName, ...] = ("nuimages", "car1000-coarse", "car1000-fine")
    many: int | None = 50


PAPER = Scale(
    name="paper",
    rounds=100,
    depart_at=15,
    epochs=5,
    batch_size=64,
    per_class=1000,
    image_size=None,
    remaining=(0.01, 0.02, 0.05, 0.1),
    budgets=(0.02, 0.2),
    few=0.004,
    fractions=(0.004, 0.01, 0.05, 0.1),
    classes=None,
    window=25,
    departures=(5, 15, 30, 50),
    backbone_remaining=(0.01, 0.02, 0.05, 0.1),
    eval_every=5,
    slow_every=10,
    seeds=3,
    backbones={"cnn3": {}, "resnet18": {}, "mobilenetv3": {}, "vit-tiny": {}},
    beyond=True,
)
_TINY = {"per_class": 16, "vehicles": 3, "rounds": 3, "depart_at": 2, "batch_size": 8, "epochs": 2}
_LONGER = {**_TINY, "batch_size": 4, "epochs": 3}  # until BatchNorm's statistics have come through all its layers
QUICK = Scale(
    name="quick",
    rounds=10,
    depart_at=4,
    epochs=1,
    batch_size=16,
    per_class=100,
    image_size=28,
    remaining=(0.02, 0.1),
    budgets=(0.02, 0.2),
    few=0.004,
    fractions=(0.004, 0.1),
    classes=3,
    window=5,
    departures=(2, 4, 6),
    backbone_remaining=(0.1,),
    eval_every=3,
    slow_every=3,
    seeds=1,
    backbones={"cnn3": {}, "resnet18": _TINY, "mobilenetv3": _LONGER, "vit-tiny": _TINY},
    regimes=("cnn3", "embedding"),
    regime_sets=("nuimages",),
    many=None,
)
SCALES = {scale.name: scale for scale in (PAPER, QUICK)}


@dataclass(frozen=True)
class CellSpec:
    """A cell as an exhibit asks for it, whatever data there is.

    Attributes:
        set: the paper's.
        remaining: fraction of the rare class.
        backbone: as in `RunConfig`.
        study: which methods it is read out with, and how long it is.
        rare: index of the class that departs; None: the source's.
        depart_at: None: the scale's.
        regime: of `REGIMES`; empty: the first.
        uneven: of `UNEVEN`, or empty.
        augment: as in `RunConfig`; empty: none.
    """

    set: SetName = "nuimages"
    remaining: float = 0.02
    backbone: str = "cnn3"
    study: Study = "main"
    rare: int | None = None
    depart_at: int | None = None
    regime: str = ""
    uneven: str = ""
    augment: str = ""

    @property
    def further(self) -> "CellSpec":
        """The cell with the rows of `FURTHER` for a main one."""
        return replace(self, study="beyond")

    @property
    def own(self) -> "CellSpec":
        """The cell with the rows of the user's own methods for a main one."""
        return replace(self, study="own")


@dataclass(frozen=True)
class Grid:
    """What a reproduction is made with.

    Attributes:
        scale: how large everything is.
        sources: the data, by the paper's set.
        seeds: how many.
        every_seed: whether a cell that has more of them is shown with all it has.
        own: methods beside the paper's, as `mpt run --methods` takes them; they are run in cells of their own.
        models: whether cells keep their models.
        regime: of `REGIMES`, in which cells are that name none; empty: the first.
    """

    scale: Scale
    sources: Mapping[SetName, Source]
    seeds: int
    own: tuple[str, ...] = ()
    models: bool = True
    regime: str = ""
    every_seed: bool = False

    @cached_property
    def own_names(self) -> tuple[str, ...]:
        """What the user's own methods are called in tables."""
        made = find_methods(self.own, ridge=DEFAULT_RIDGE, cov_ridge=DEFAULT_COV_RIDGE)
        names = tuple(method.name for method in made.values())
        for name in names:
            if any(name in methods for methods in METHODS_OF.values()):
                raise ConfigError(f"methods: {name!r} is a row of the exhibits already, should have a name of its own")
        return names

    def dataset(self, name: SetName, backbone: str = "cnn3") -> Dataset | ToldSamples:
        """The samples of a set that has a source."""
        own = self.scale.backbones.get(backbone, {})
        return loaded(self.sources[name].spec, self.scale.image_size, own.get("per_class", self.scale.per_class))

    def classes(self, name: SetName = "nuimages") -> list[int]:
        """The classes of Figure 2 (d), the rare one first; fewer than all where the scale says so."""
        if name not in self.sources:
            return []
        dataset = self.dataset(name)
        rare = self.sources[name].indices(dataset)[0]
        others = [c for c in range(dataset.num_classes) if c != rare]
        return [rare, *others][: self.scale.classes]

    def further(self, name: SetName) -> list[int]:
        """The further classes of a set that has a source."""
        source = self.sources[name]
        return list(source.indices(self.dataset(name))[1:]) if source.further else []

    def cell(self, wanted: CellSpec) -> Cell | None:
        """The run that a wanted cell is; None where its set has no source."""
        if wanted.set not in self.sources:
            return None
        wanted = replace(wanted, regime=wanted.regime or self.regime)
        own = self.own if wanted.study == "own" else ()
        return _cell(self.scale.name, self.sources[wanted.set], self.seeds, wanted, own, self.models)


@cache
def _cell(
    scale_name: str, source: Source, seeds: int, wanted: CellSpec, own_methods: tuple[str, ...], models: bool
) -> Cell:
    scale = SCALES[scale_name]
    own = dict(scale.backbones.get(wanted.backbone, {}))
    regime = REGIMES[wanted.regime] if wanted.regime else {}
    shown = wanted.study in ("preliminary", "loss", "regimes") or (
        wanted.set == "nuimages"
        and wanted.backbone == "cnn3"
        and wanted.remaining in (*scale.budgets, 0.02)
        and (wanted.study != "beyond" or wanted.rare is None)
    )
    depart_at = wanted.depart_at or own.pop("depart_at", scale.depart_at)
    rounds = own.pop("rounds", scale.rounds)
    settings: dict[str, Any] = {
        "dataset": source.spec,
        "backbone": wanted.backbone,
        "remaining": wanted.remaining,
        "methods": own_methods or METHODS_OF[wanted.study],
        "rounds": depart_at + scale.window if wanted.study in ("preliminary", "loss") else rounds,
        "depart_at": depart_at,
        "epochs": scale.epochs,
        "batch_size": scale.batch_size,
        "per_class": scale.per_class,
        "image_size": scale.image_size,
        "eval_every": 1 if shown else scale.eval_every,
        "seeds": seeds,
        "models": models,
        **own,
    }
    if settings["eval_every"] == 1 or (wanted.backbone != "cnn3" and scale.slow_every % settings["eval_every"] == 0):
        settings["slow_every"] = scale.slow_every
    if wanted.study == "regimes":
        settings |= {"seeds": 1, "first_seed": FIRST_SEED}
    if wanted.study == "main" and wanted.set == "nuimages" and wanted.backbone == "cnn3":
        settings["methods"] += PARTS
    if wanted.study == "main" and (regime or wanted.uneven):
        settings["methods"] += tuple(m for m in METHODS_OF["regimes"] if m not in settings["methods"])
        settings["methods"] += tuple(TUNED.get(wanted.regime, {}).values())
    settings |= {**regime, **(UNEVEN[wanted.uneven] if wanted.uneven else {})}
    settings |= {"augment": wanted.augment} if wanted.augment else {}
    if "participation" in settings:
        settings["vehicles"] = scale.many
    dataset = loaded(source.spec, settings["image_size"], settings["per_class"])
    named = source.indices(dataset)
    rare = named[0] if wanted.rare is None else wanted.rare
    settings["rare"] = dataset.classes[rare]
    config = make_config(settings)
    parts = [source.name, dataset.classes[rare], f"{100 * wanted.remaining:g}%", wanted.backbone]
    when = f", departure after {depart_at}" if wanted.depart_at else ""
    what = "" if wanted.study == "main" else f", {wanted.study}"
    how = "".join(f", {name}" for name in (wanted.regime, wanted.uneven, wanted.augment) if name)
    return Cell(config, dataset.fingerprint(), rare, " ".join(parts) + what + when + how)
