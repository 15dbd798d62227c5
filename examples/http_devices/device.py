"""A device: answers the server's questions from what it has measured, which never leaves it, and trains the model.

python device.py http://127.0.0.1:8000 --number 3
"""

import argparse
import http.client
import time
import urllib.error
import urllib.request

import numpy as np
from machines import embed, holdings, pack, train, unpack

import mpt

PATIENCE = 60
"""Seconds without a server after which a device gives up."""


def call(url, body=None):
    """Status and body of a request; a server that is not there is tried again."""
    give_up = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(url, body, timeout=30) as reply:
                return reply.status, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except (OSError, http.client.HTTPException):
            if time.monotonic() > give_up:
                raise SystemExit(f"{url}: nobody has answered for {PATIENCE} seconds") from None
            time.sleep(0.2)


def work(task, samples, labels, kept, rng):
    """The answer to a task, the features that it was made of, and what the device has trained: a message."""
    model = unpack(task)
    question = mpt.LabelledQuestion.from_bytes(model.pop("question").tobytes())
    features = embed(model, samples)
    answer = question.answer(features, labels, kept)  # sums by label: no sample leaves the device

    place = {label: c for c, label in enumerate(question.labels) if label not in question.held_out}
    mine = np.array([place.get(label, -1) for label in labels])
    trained = train(model, samples[mine >= 0], mine[mine >= 0], rng)
    message = pack(answer=answer, samples=np.sum(mine >= 0), **trained)

    for number in [n for n in kept if n < question.round - 1 and n not in question.references]:
        del kept[number]
    kept[question.round] = features  # MPT-X asks for features under earlier models
    return question.round, message


def main():
    """Work until it is over, or leave before."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("server", help="its address")
    options.add_argument("--number", type=int, required=True, help="of the machine, from 0")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--leave-after", type=int, default=0, help="the round after which it says goodbye; 0: never")
    chosen = options.parse_args()
    if not chosen.server.startswith(("http://", "https://")) or chosen.number < 0:
        options.error("server: should be an address such as http://127.0.0.1:8000; number: 0 or more")
    name, samples, labels = f"machine-{chosen.number}", *holdings(chosen.number, chosen.seed)
    after, kept = 0, {}
    while True:
        status, body = call(f"{chosen.server}/task?after={after}&device={name}")
        if status == 410:
            break
        if status != 200:
            continue
        rng = np.random.default_rng((chosen.seed, chosen.number, after))
        after, message = work(body, samples, labels, kept, rng)
        leaves = after == chosen.leave_after
        if leaves:  # before its last answer, which may be the one that the round has waited for
            call(f"{chosen.server}/leave?device={name}", b"")
        status, why = call(f"{chosen.server}/answer?device={name}", message)
        if status != 200:
            print(f"{name}, round {after}: {why.decode()}", flush=True)
        if leaves:
            break


if __name__ == "__main__":
    main()
