"""Causes: what is written beside records, and what people read of it."""

import pytest

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.causes import broker_origin, cause_of, client_origin, in_words, request_id_of


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        (client_origin("ann", 2), "create_topics by client ann through broker 2"),
        (client_origin(None, 2), "create_topics by a client of broker 2"),
        (client_origin("", 2), "create_topics by a client of broker 2"),
        (broker_origin(3), "create_topics by broker 3"),
        ("", "create_topics by somebody"),
    ],
)
def test_a_cause_names_the_request_and_who_sent_it(origin: str, words: str) -> None:
    for request_id in (b"", b"\x01\xab"):
        cause = cause_of("create_topics", rpc.ControllerRequest(origin=origin, request_id=request_id))
        assert in_words(cause) == words
        assert (request_id_of(cause) or b"") == request_id


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({}, ""),
        ({"want_shut_down": True, "want_fence": True}, ", which shuts down"),
        ({"want_fence": True}, ", which wants to be fenced"),
        ({"offline_directories": [bytes(16)]}, ", which lost a directory"),
    ],
)
def test_a_heartbeat_says_what_it_asks_for(fields: dict[str, bool], detail: str) -> None:
    beat = rpc.BrokerHeartbeatRequest(broker_id=3, **fields)  # type: ignore[arg-type]  # keywords of many types
    request = rpc.ControllerRequest(origin=broker_origin(3), broker_heartbeat=beat)
    assert cause_of("broker_heartbeat", request) == f"broker_heartbeat by broker 3{detail}"


def test_a_client_named_like_a_mark_is_only_a_name() -> None:
    cause = cause_of("create_topics", rpc.ControllerRequest(origin=client_origin("a #not-hex", 1)))
    assert request_id_of(cause) is None
    assert in_words(cause) == cause


def test_a_long_client_id_does_not_hide_the_request_id() -> None:
    cause = cause_of("create_topics", rpc.ControllerRequest(origin="x" * 5000, request_id=b"\x07"))
    assert request_id_of(cause) == b"\x07"
    assert len(cause) < 300
