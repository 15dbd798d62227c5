"""The sentences of a scenario's page: its title, the verdict, and what to know before believing it."""

from collections.abc import Sequence

from mpt.base.text import listed, score
from mpt.report.scenario_files import MethodLine, ScenarioFiles

TOLD = ("mpt", "mpt-x", "frozen")
"""The methods that the verdict compares."""
_MEANS = {"frozen": ", which leaves a deposit as it was"}
_NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve")
_MOST_NAMES = 5


def title(files: ScenarioFiles) -> str:
    """Scenario delivery-fleet."""
    return f"Scenario {files.manifest.get('scenario', files.config['scenario'])}"


def called(name: str) -> str:
    """What a class is called in a sentence: truck, class 8.

    Example:
        >>> called("truck"), called("8")
        ('truck', 'class 8')
    """
    return name if any(map(str.isalpha, name)) else f"class {name}"


def capital(sentence: str) -> str:
    """With a large first letter."""
    return sentence[:1].upper() + sentence[1:]


def many(number: int, of: str) -> str:
    """1 round, 28 rounds."""
    return f"{number:,} {of}{'' if number == 1 else 's'}"


def verdict(files: ScenarioFiles) -> list[str]:
    """Which classes were absent, for how long, and how well the methods recognised them meanwhile."""
    absent = {seed: files.absent(seed) for seed in files.seeds}
    if not any(absent.values()):
        return ["No class was absent in any round, so these files do not say what an absence does."]
    sentences = [_absences(files), *_scores(files.summary)]
    return [sentence for sentence in sentences if sentence]


def _absences(files: ScenarioFiles) -> str:
    absent = {seed: files.absent(seed) for seed in files.seeds}
    lengths = {
        (s, name): sum(b - a + 1 for a, b in found) for s, told in absent.items() for name, found in told.items()
    }
    names = [name for name in files.names if any(name in told for told in absent.values())]
    pairs = f"{sum(lengths.values()):,} pairs of a class and a round"
    count = _NUMBERS[len(names)] if len(names) < len(_NUMBERS) else f"{len(names):,}"
    what = f"{count} {'class was' if len(names) == 1 else 'classes were'} absent"
    more = [f"{len(names) - _MOST_NAMES:,} more"] if len(names) > _MOST_NAMES else []
    if len(files.seeds) > 1:
        shown = listed([*map(called, names[:_MOST_NAMES]), *more])
        return f"{what} for a time: {shown}. Over {many(len(files.seeds), 'seed')} that makes {pairs}."
    seed = files.seeds[0]
    told = []
    for name in names[:_MOST_NAMES]:
        holder = files.holder(seed, name)
        told.append(f"{called(name)}{f' with {holder}' if holder else ''} for {many(lengths[seed, name], 'round')}")
    total = f"; that makes {pairs}" if len(names) > 1 else ""
    return f"{what} for a time: {listed([*told, *more])}{total}."


def _scores(summary: Sequence[MethodLine]) -> list[str]:
    """Mean F1 over the pairs, of those that the verdict compares or else of the best, and the deposits."""
    known = [line for line in summary if line.f1 is not None]
    if not known:
        return ["None of these rounds was read out, so there is no F1 over them."]
    compared = [line for name in TOLD for line in known if line.method == name]
    best = max(known, key=lambda line: line.f1.mean if line.f1 else 0.0)
    shown = compared or [best]
    parts = [f"{score(line.f1.mean)} with {line.method}{_MEANS.get(line.method, '')}" for line in shown if line.f1]
    text = f"Meanwhile the mean F1 of an absent class is {listed(parts)}"
    oracle = next((line for line in known if line.method == "oracle-train"), None)
    if oracle is not None and oracle.f1 is not None and oracle not in shown:
        text += f"; oracle-train, which reads the absent samples themselves, reaches {score(oracle.f1.mean)}"
    first = shown[0]
    sentences = [f"{text}."]
    if first.with_deposit < first.pairs:
        over = (
            f"; over those its mean F1 is {score(first.f1_with_deposit)}" if first.f1_with_deposit is not None else ""
        )
        sentences.append(f"The server had a deposit in {first.with_deposit:,} of {first.pairs:,} pairs{over}.")
    return sentences


def notes(files: ScenarioFiles) -> list[str]:
    """What a reader must know before believing the numbers."""
    found = []
    if len(files.seeds) == 1 and any(line.pairs for line in files.summary):
        found.append("One seed: differences of a few hundredths between rows may be chance.")
    return found
