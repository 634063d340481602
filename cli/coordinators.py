"""Asking the coordinator of a group or a transaction, wherever it is: it may move, or die, while it is asked."""

import time
from collections.abc import Callable
from typing import TypeVar

from ottla.broker.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.broker.wire.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from ottla.cli.client import Client, ConnectionLost, NobodyAnswers
from ottla.cli.failures import Refused, refuse
from ottla.runtime.errors import ErrorCode

GROUP, TRANSACTION = 0, 1
PATIENCE_S = 10.0
"""A coordinator that died has a successor long before."""
PAUSE_S = 0.1
PASSING = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)

T = TypeVar("T")


def ask_coordinator(bootstrap: str, name: str, ask: Callable[[Client], T], kind: int = GROUP) -> T:
    """What ``ask`` returns. It is called again when the coordinator moves: ask only what may be asked twice. Raises CommandError."""
    until = time.monotonic() + PATIENCE_S
    while True:
        found = None
        try:
            found = find_coordinator(bootstrap, name, kind)
            with Client(f"{found.host}:{found.port}") as client:
                return ask(client)
        except (Refused, ConnectionLost, NobodyAnswers) as error:
            if not _passes(error, is_found=found is not None) or time.monotonic() > until:
                raise
        time.sleep(PAUSE_S)


def _passes(error: Exception, *, is_found: bool) -> bool:
    if isinstance(error, Refused):
        return error.code in PASSING
    return is_found  # else it is the broker that the person named


def find_coordinator(bootstrap: str, name: str, kind: int = GROUP) -> Coordinator:
    with Client(bootstrap) as client:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
        (found,) = client.call(request, FindCoordinatorResponse).coordinators
    refuse(found.error_code, name, found.error_message)
    return found
