"""What the paper states: the numbers of its tables and its claims, with the line of its source (mpt.tex)."""

from bisect import bisect_right

from mpt.base.seeds import Stat

SECTIONS = {
    103: "Introduction",
    150: "Related Work",
    175: "Preliminary Study",
    202: "Design",
    393: "Evaluation Setup",
    488: "in its source only, commented out",
    489: "Evaluation Setup",
    518: "Overall Performance",
    605: "Generalization",
    618: "Method Analysis",
    652: "Discussions",
}
"""The paper's sections by the line of its source in which each begins."""

FRACTIONS = (0.01, 0.02, 0.05, 0.1)
LABELS = {
    "fedavg": "FedAvg",
    "ccvr": "CCVR",
    "icarl": "iCaRL",
    "sdc": "SDC",
    "ldc": "LDC",
    "ldc:all": "LDC, all samples",
    "frozen": "Frozen prototype",
    "mpt-lite": "MPT-lite",
    "mpt": "MPT",
    "mpt-x": "MPT-X",
    "oracle": "Oracle prototype",
    "oracle-train": "oracle-train",
    "remaining-mean": "remaining-mean",
    "dpcr": "DPCR",
    "stop-at-departure": "stop-at-departure",
}
"""The paper's names of methods; ours for those that it does not have."""


def _stats(text: str) -> tuple[Stat, ...]:
    """ "516 9, 510 18" is .516 ± .009 and .510 ± .018."""
    pairs = (pair.split() for pair in text.split(","))
    return tuple(Stat(int(mean) / 1000, int(deviation) / 1000) for mean, deviation in pairs)


TABLE1_LINE, TABLE2_LINE, TABLE3_LINE = 412, 540, 588
TABLE2: dict[str, dict[str, tuple[Stat, ...]]] = {
    "nuimages": {
        "ccvr": _stats("384 31, 433 18, 478 17, 479 24"),
        "icarl": _stats("393 14, 419 4, 459 19, 434 22"),
        "sdc": _stats("435 23, 436 10, 456 8, 451 18"),
        "ldc": _stats("421 12, 425 17, 457 7, 451 17"),
        "frozen": _stats("186 42, 210 45, 199 43, 202 46"),
        "mpt-lite": _stats("507 12, 501 10, 510 1, 512 20"),
        "mpt": _stats("516 9, 510 18, 513 5, 509 17"),
        "oracle": _stats("505 9, 510 12, 509 5, 507 20"),
    },
    "car1000-coarse": {
        "ccvr": _stats("360 33, 382 20, 413 6, 426 22"),
        "icarl": _stats("357 34, 364 16, 392 11, 403 16"),
        "sdc": _stats("417 19, 422 18, 427 2, 426 18"),
        "ldc": _stats("388 15, 412 28, 425 7, 425 17"),
        "frozen": _stats("155 30, 145 26, 135 9, 184 29"),
        "mpt-lite": _stats("429 5, 429 5, 433 14, 437 18"),
        "mpt": _stats("449 17, 439 17, 437 9, 444 22"),
        "oracle": _stats("439 13, 441 18, 430 6, 425 23"),
    },
    "car1000-fine": {
        "ccvr": _stats("213 35, 234 11, 254 27, 268 12"),
        "icarl": _stats("209 29, 224 12, 251 35, 258 13"),
        "sdc": _stats("213 38, 232 19, 249 23, 253 26"),
        "ldc": _stats("246 24, 283 8, 289 22, 283 21"),
        "frozen": _stats("88 16, 61 1, 105 6, 58 5"),
        "mpt-lite": _stats("191 28, 205 54, 279 32, 192 114"),
        "mpt": _stats("295 32, 331 7, 347 30, 338 8"),
        "oracle": _stats("315 12, 331 7, 320 13, 322 17"),
    },
}
"""Rare-class F1 at round 100 with 1, 2, 5 and 10% remaining, by set and method."""

TABLE3: dict[str, dict[str, tuple[Stat, ...]]] = {
    "cnn3": TABLE2["nuimages"],
    "resnet18": {
        "ccvr": _stats("319 30, 417 32, 446 10, 453 14"),
        "icarl": _stats("402 7, 414 22, 425 1, 405 13"),
        "sdc": _stats("446 15, 444 10, 441 12, 430 2"),
        "ldc": _stats("435 20, 441 9, 442 8, 426 6"),
        "frozen": _stats("375 40, 394 38, 398 20, 397 6"),
        "mpt-lite": _stats("470 4, 481 14, 473 8, 454 8"),
        "mpt": _stats("463 1, 470 11, 464 5, 448 11"),
        "oracle": _stats("423 11, 430 14, 432 11, 418 8"),
    },
    "mobilenetv3": {
        "ccvr": _stats("222 44, 315 13, 321 24, 326 10"),
        "icarl": _stats("208 36, 274 8, 280 23, 271 3"),
        "sdc": _stats("276 13, 321 7, 319 26, 317 6"),
        "ldc": _stats("270 16, 290 6, 294 32, 294 5"),
        "frozen": _stats("306 14, 317 12, 331 11, 318 15"),
        "mpt-lite": _stats("316 22, 355 18, 356 19, 356 14"),
        "mpt": _stats("349 15, 364 15, 355 19, 355 15"),
        "oracle": _stats("330 18, 342 14, 333 21, 336 20"),
    },
    "vit-tiny": {
        "ccvr": _stats("69 13, 140 15, 186 23, 193 15"),
        "icarl": _stats("47 12, 123 23, 172 23, 188 23"),
        "sdc": _stats("171 90, 285 13, 292 11, 290 10"),
        "ldc": _stats("57 4, 99 40, 127 20, 134 15"),
        "frozen": _stats("177 5, 178 10, 183 12, 172 19"),
        "mpt-lite": _stats("227 8, 246 17, 262 18, 261 14"),
        "mpt": _stats("262 18, 287 12, 295 16, 295 14"),
        "oracle": _stats("298 5, 287 8, 297 14, 282 6"),
    },
}
"""Rare-class F1 on nuImages at round 100, by backbone and method."""

TABLE1: dict[str, tuple[bool, bool, bool, bool]] = {
    "fedavg": (False, True, True, True),
    "ccvr": (False, True, True, False),
    "icarl": (False, False, False, True),
    "sdc": (True, False, False, True),
    "ldc": (True, False, False, False),
    "frozen": (False, True, True, True),
    "oracle": (True, False, False, True),
    "mpt": (True, True, True, True),
}
"""PD: post-departure drift compensation; HFL: heterogeneous FL; PF: no per-sample feature storage; TF: no training."""

BACKBONES = {
    "cnn3": "Three-layer CNN",
    "resnet18": "ResNet-18",
    "mobilenetv3": "MobileNetV3",
    "vit-tiny": "ViT-Tiny",
}


def section_of(line: int) -> str:
    """The section that a line of the paper's source is in; readers have the paper, not its source."""
    begins = sorted(SECTIONS)
    return SECTIONS[begins[bisect_right(begins, line) - 1]]


def stated(table: dict[str, dict[str, tuple[Stat, ...]]], group: str, method: str, remaining: float) -> Stat | None:
    """The paper's number; None where it states none."""
    numbers = table.get(group, {}).get(method)
    return numbers[FRACTIONS.index(remaining)] if numbers and remaining in FRACTIONS else None
