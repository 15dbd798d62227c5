"""Federations that are in the same round: trained in one call, and read out beside the training of the next round."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from mpt.federation.background import Background, precisely
from mpt.federation.jobs import Job
from mpt.federation.measurement import Measurement
from mpt.federation.state import FederationState, JobKey, NewModels

if TYPE_CHECKING:
    from mpt.federation.engine import Federation


def rounds(federation: "Federation", state: FederationState) -> Iterator[tuple[FederationState, list[Measurement]]]:
    """The rounds after `state`, as `Federation.advance` gives them."""
    for (after,), (rows,) in rounds_together([federation], [state]):
        yield after, rows


def rounds_together(
    federations: Sequence["Federation"], states: Sequence[FederationState]
) -> Iterator[tuple[list[FederationState], list[list[Measurement]]]]:
    """The rounds of several federations, which are in the same round and trained in one call of the first's trainer.

    What federations that have joined each other have in common is trained once. On a GPU a round trains while the
    methods are read out of the one before it: training does not wait for them.
    """
    first = federations[0]
    coming, finished, pending = list(states), list(states), None
    with Background(first.device, beside=first.plan.precision != "float32") as background:
        while True:
            trained = _train(federations, coming) if coming[0].round < first.plan.rounds else None
            if pending is not None:
                done = pending()
                finished = [state for state, _ in done]
                yield finished, [rows for _, rows in done]
            if trained is None:
                return
            _begin(federations, coming, trained)
            pending = background.submit(partial(_finish, federations, finished, trained))
            coming = [f.trained(s, mine) for f, s, mine in zip(federations, coming, trained, strict=True)]


def _train(federations: Sequence["Federation"], states: Sequence[FederationState]) -> list[NewModels]:
    asked = [f.jobs(state) for f, state in zip(federations, states, strict=True)]
    different: dict[tuple[int, JobKey], tuple[Federation, Job]] = {}
    for federation, jobs in zip(federations, asked, strict=True):
        for key, job in jobs.items():
            different.setdefault((federation.family, key), (federation, job))
    first = federations[0]
    with precisely(first.plan.precision):
        trained = first.work([job for _, job in different.values()])
    made = {
        (family, key): federation.made({key: job}, [mean])[key]
        for ((family, key), (federation, job)), mean in zip(different.items(), trained, strict=True)
    }
    return [{key: made[f.family, key] for key in jobs} for f, jobs in zip(federations, asked, strict=True)]


def _begin(
    federations: Sequence["Federation"], states: Sequence[FederationState], trained: Sequence[NewModels]
) -> None:
    with precisely(federations[0].plan.precision):
        for federation, state, mine in zip(federations, states, trained, strict=True):
            federation.begin(state, mine)


def _finish(
    federations: Sequence["Federation"], states: Sequence[FederationState], trained: Sequence[NewModels]
) -> list[tuple[FederationState, list[Measurement]]]:
    with precisely(federations[0].plan.precision):
        return [f.finish(state, mine) for f, state, mine in zip(federations, states, trained, strict=True)]
