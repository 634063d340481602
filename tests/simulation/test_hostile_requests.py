"""Ten thousand requests, of every API and version, broken in every way: each is answered, or costs its client the connection."""

import struct
from collections.abc import Callable

import pytest

from ottla.broker.handlers import find_coordinator, groups
from ottla.broker.network.connection import Connection
from ottla.broker.network.request import RequestContext
from ottla.broker.wire.messages.list_groups_response import ListGroupsResponse
from ottla.runtime.errors import ErrorCode
from ottla.testing.hostile.expected import Asked, WrongAnswer, check, responses_in
from ottla.testing.hostile.run import HostileFailure, run_seed
from ottla.testing.simulation.cluster import CONTROLLER_PORT

SEEDS = 20  # of 500 requests each
CONTROLLER_SEEDS = 5


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_node_stands_what_no_client_sends(seed: int) -> None:
    counts = run_seed(seed)
    assert counts.answered > 100, "too little was taken for a request"
    assert counts.closed > 100, "too little was broken"


@pytest.mark.parametrize("seed", range(CONTROLLER_SEEDS))
def test_a_controllers_listener_stands_it_as_well(seed: int) -> None:
    counts = run_seed(seed, port=CONTROLLER_PORT)
    assert counts.answered > 50, "too little was taken for a request"
    assert counts.closed > 100, "too little was broken"


def run_all() -> None:
    for seed in range(SEEDS):
        run_seed(seed)


def raises(*_: object) -> None:
    raise KeyError("a mistake of ours")


def errs(_broker: object, request: RequestContext, *_: object) -> None:
    request.respond_message(ListGroupsResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))


def closes_in_silence(connection: Connection, _reason: str) -> None:
    connection.close()


def answers_something_else(_broker: object, request: RequestContext, *_: object) -> None:
    request.respond([b"\0" * 3])


@pytest.mark.parametrize(
    ("where", "name", "bug", "told"),
    [
        (find_coordinator, "_coordinator", raises, "a mistake of ours"),
        (Connection, "fail", closes_in_silence, "without a line in the log"),
        (groups, "_list", errs, "UNKNOWN_SERVER_ERROR"),
        (groups, "_list", answers_something_else, "is no ListGroupsResponse"),
    ],
    ids=["a handler fails", "a silent close", "an unexpected error", "an answer that is none"],
)
def test_a_mistake_of_ours_is_seen_and_told_with_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, where: object, name: str, bug: Callable[..., None], told: str
) -> None:
    monkeypatch.setattr(where, name, bug)
    with pytest.raises(HostileFailure, match=told) as failure:
        run_all()
    assert "replay: python -m ottla.testing.hostile.run --seed " in str(failure.value)


def test_answers_are_held_against_what_was_asked() -> None:
    asked = [Asked(18, 0, 1), Asked(0, 9, 2), Asked(18, 0, 3)]
    versions = struct.pack(">ihi", 1, 0, 0)
    assert check(asked, []) == asked
    assert check(asked, [versions]) == asked[1:]
    assert check(asked, [versions, struct.pack(">ihi", 3, 0, 0)]) == [], "acks=0 is not answered"
    with pytest.raises(WrongAnswer, match="not asked"):
        check(asked, [struct.pack(">ihi", 7, 0, 0)])
    with pytest.raises(WrongAnswer, match="1 bytes behind"):
        check(asked, [versions + b"x"])
    assert responses_in(struct.pack(">i", 10) + versions + b"\0\0") == ([versions], b"\0\0")
