"""A federation on one machine, as settings: each with its default, what it means and what it may be. No torch."""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, get_args

from mpt.base.settings import check, default_of, like, setting
from mpt.core.equations import DEFAULT_COV_RIDGE, DEFAULT_RIDGE
from mpt.learning.settings import SCHEDULES, ServerSettings, TrainingSettings
from mpt.scenario import Event, PlanError, check_rounds, parse_events

Precision = Literal["auto", "float32", "tf32", "bfloat16"]
DEFAULT_METHODS = (
    "fedavg",
    "ccvr",
    "icarl",
    "sdc",
    "ldc",
    "frozen",
    "remaining-mean",
    "mpt",
    "mpt-lite",
    "oracle-train",
)
DEFAULT_READOUT = ("mahalanobis",)


@dataclass(frozen=True, kw_only=True)
class FederationSettings:
    """The paper's scenario, by default: one of as many vehicles as classes leaves after round 15 of 100."""

    methods: tuple[str, ...] = setting(DEFAULT_METHODS, "names as in `mpt methods`, or path.py:Class")
    backbone: str = setting(
        "cnn3", "as in `mpt backbones`: cnn3, cnn3-embedding, resnet18, mobilenetv3, vit-tiny, cnn1d for series, mlp "
        "for vectors, timm:NAME, torchvision:NAME, or path.py:function"
    )  # fmt: skip
    weights: str | None = setting(
        None,
        "file of the backbone's weights, .pt, .pth or .safetensors; default: from the seed",
        should="the path of a file",
        fits=bool,
    )
    freeze: bool = setting(False, "train the head alone; the backbone stays as it is")
    partition: str = setting(
        "concentrate",
        "who holds what: concentrate, vehicle (who recorded it, where the dataset says), or path.py:function",
    )
    vehicles: int | None = setting(None, "default: as many as classes", least=2)
    remaining: float = setting(0.02, "fraction of the rare class that stays behind", least=0, below=1)
    dirichlet: float | None = setting(None, "uneven split of the other classes; default: even", above=0)
    participation: float = setting(1.0, "share of the vehicles that train in a round", above=0, most=1)
    rounds: int = setting(100, "of training and averaging", least=2)
    depart_at: int = setting(15, "the last round with the departing vehicle", least=1)
    events: str = setting("", "vehicles that join or leave besides, such as 'leave 3 after 20, join 4 at 30'")
    eval_every: int = setting(5, "read the methods out in every so many rounds", least=1)
    slow_every: int | None = setting(None, "the same for ccvr, ldc and dpcr; default: as the others", least=1)
    epochs: int = like(TrainingSettings, "epochs", least=1)
    lr: float = like(TrainingSettings, "lr")
    batch_size: int = like(TrainingSettings, "batch_size")
    augment: str = like(TrainingSettings, "augment")
    momentum: float = like(TrainingSettings, "momentum")
    weight_decay: float = like(TrainingSettings, "weight_decay")
    local_steps: int | None = like(TrainingSettings, "local_steps")
    prox: float = like(TrainingSettings, "prox")
    schedule: str = setting(
        "constant", "of the learning rate over the rounds: constant, cosine, step", choices=tuple(SCHEDULES)
    )
    server: str = like(ServerSettings, "server")
    server_lr: float | None = like(ServerSettings, "server_lr")
    server_momentum: float = like(ServerSettings, "server_momentum")
    aggregation: str | None = setting(
        None,
        "how updates become one model: as in `mpt aggregations`, or path.py:function; default: average, with a gate "
        "clipped",
        fits=bool,
    )
    attack: tuple[str, ...] = setting(
        (), "vehicles that lie, such as shift@3: as in `mpt attacks`, or path.py:Class, with @ and the vehicle"
    )
    gate: Literal["auto", "on", "off"] = setting(
        "auto",
        "whether no vehicle can move much: on, off, auto (on with an attack)",
        choices=("auto", "on", "off"),
    )
    loss: str = setting("cross-entropy", "what vehicles minimise: as in `mpt losses`, or path.py:function")
    readout: tuple[str, ...] = setting(
        DEFAULT_READOUT, "where a method gives a prototype: as in `mpt readouts`, or path.py:Class"
    )
    ridge: float = setting(DEFAULT_RIDGE, "lambda of Eq. (1), relative", least=0)
    cov_ridge: float = setting(DEFAULT_COV_RIDGE, "lambda_Sigma of Eq. (3)", least=0)
    engine: str = setting("fast", "fast, or plain: the reference loop", choices=("fast", "plain"))
    precision: Literal["auto", "float32", "tf32", "bfloat16"] = setting(
        "auto", "of the fast engine on a GPU: auto (bfloat16), bfloat16, tf32, float32", choices=get_args(Precision)
    )

    def __post_init__(self) -> None:
        check(self, PlanError)
        for name in ("methods", "readout"):
            chosen = getattr(self, name)
            if not chosen:
                raise PlanError(f"{name}: none, should be at least one")
            twice = [one for one in chosen if chosen.count(one) > 1]
            if twice:
                raise PlanError(f"{name}: {twice[0]!r} is there twice, should differ from each other")
        if self.slow_every is not None and self.slow_every % self.eval_every:
            raise PlanError(f"slow_every: {self.slow_every}, should be a multiple of eval_every, {self.eval_every}")
        if self.depart_at >= self.rounds:
            default = self.depart_at == default_of(FederationSettings, "depart_at")
            hint = f"; {self.depart_at} is the default, say --depart-at {early(self.rounds)}" if default else ""
            raise PlanError(f"depart_at: {self.depart_at}, should be below {self.rounds}, the number of rounds{hint}")
        check_rounds(self.event_list, self.rounds)
        for name in ("vehicles", "remaining", "dirichlet") if self.partition == "vehicle" else ():
            if getattr(self, name) != default_of(FederationSettings, name):
                raise PlanError(f"{name}: {getattr(self, name)}, should be left out with partition vehicle")

    @property
    def gated(self) -> bool:
        """Whether the influence of every vehicle is bounded."""
        return self.gate == "on" or (self.gate == "auto" and bool(self.attack))

    @property
    def rule(self) -> str:
        """`aggregation` as it was resolved."""
        return self.aggregation or ("clipped" if self.gated else "average")

    @cached_property
    def event_list(self) -> tuple[Event, ...]:
        """The events, read."""
        return parse_events(self.events)

    @property
    def training(self) -> TrainingSettings:
        """Of local training, at the learning rate that the schedule begins with."""
        return TrainingSettings(**{f.name: getattr(self, f.name) for f in fields(TrainingSettings)})

    def training_in(self, round: int) -> TrainingSettings:
        """Of local training in a round."""
        lr = self.lr * SCHEDULES[self.schedule].share(round, self.rounds)
        return replace(self.training, lr=lr)

    @property
    def serving(self) -> ServerSettings:
        """What the server makes of the vehicles' mean."""
        return ServerSettings(**{f.name: getattr(self, f.name) for f in fields(ServerSettings)})

    def evaluates(self, round: int, *, slow: bool = False) -> bool:
        """Whether methods, or those that are slow, are read out in this round."""
        every = self.slow_every if slow and self.slow_every is not None else self.eval_every
        return round in (self.depart_at, self.rounds) or round % every == 0


def early(rounds: int) -> int:
    """A round of so many for the departure, as early among them as the default one: 15 of 100, 1 of 5."""
    return max(1, FederationSettings.depart_at * rounds // FederationSettings.rounds)


@dataclass(frozen=True, kw_only=True)
class Plan(FederationSettings):
    """Everything that determines the numbers of one seed.

    Attributes:
        rare: index of the class that departs.
        seed: of everything that is drawn.
    """

    rare: int
    seed: int = 0

    @classmethod
    def of(cls, settings: FederationSettings, rare: int, seed: int) -> "Plan":
        """With the settings of a run."""
        chosen: dict[str, Any] = {f.name: getattr(settings, f.name) for f in fields(FederationSettings)}
        return cls(**chosen, rare=rare, seed=seed)
