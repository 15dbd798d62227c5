"""`mpt fleet serve`: a fleet's status over HTTP, for probes and for Prometheus. It reads the state and changes nothing.

/healthz    200 and a sentence while rounds finish, 503 and why where they do not
/metrics    Prometheus' text
/status     JSON, as `mpt fleet status --json`
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mpt.base.errors import MptError
from mpt.fleet.metrics import prometheus
from mpt.fleet.status import Status, read_status
from mpt.fleet.store import Store

_TEXT, _JSON = "text/plain; version=0.0.4; charset=utf-8", "application/json"


@dataclass(frozen=True)
class Answer:
    """What a path is answered."""

    status: HTTPStatus
    kind: str
    body: str


def answer(path: str, store: Store, stale: float, clock: Callable[[], float] = time.time) -> Answer:
    """What is answered to a path.

    Args:
        path: as it was asked for.
        store: the server's.
        stale: seconds after which a fleet that has finished no round is not well.
        clock: seconds since 1970.
    """
    name = path.partition("?")[0]
    if name not in ("/healthz", "/metrics", "/status"):
        return Answer(HTTPStatus.NOT_FOUND, _TEXT, f"no {name[:100]!a} here, should be /healthz, /metrics or /status\n")
    try:
        found = read_status(store)
    except MptError as error:
        return Answer(HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, f"{error}\n")
    if name == "/metrics":
        return Answer(HTTPStatus.OK, _TEXT, prometheus(found))
    if name == "/status":
        return Answer(HTTPStatus.OK, _JSON, json.dumps(found.as_json()) + "\n")
    return _health(found, stale, clock())


def _health(found: Status, stale: float, now: float) -> Answer:
    age = None if found.time is None else now - datetime.fromisoformat(found.time).timestamp()
    if age is not None and age > stale:
        why = f"round {found.round} finished {age:.0f} s ago and none since, should be at most {stale:.0f} s\n"
        return Answer(HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, why)
    when = "" if age is None else f", {age:.0f} s ago"
    return Answer(HTTPStatus.OK, _TEXT, f"ok: round {found.round}{when}\n")


def serving(store: Store, host: str, port: int, stale: float) -> ThreadingHTTPServer:
    """A server that is bound and not started: `serve_forever`, `shutdown`, `server_close`."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            made = answer(self.path, store, stale)
            body = made.body.encode()
            self.send_response(made.status)
            self.send_header("Content-Type", made.kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Probes come every few seconds; nothing is written about them."""

    return ThreadingHTTPServer((host, port), Handler)
