"""What is asked of other brokers, one of which may be out of reach for long."""

import weakref
from typing import Any

import msgspec

from ottla.broker.links.peers import CONNECT_MS, Peers
from ottla.broker.wire.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from ottla.quorum.metadata.image import MetadataImage
from ottla.runtime.settings.server import ServerConfig
from tests.unit.broker.fake_timers import FakeTimers

CONFIG = ServerConfig(
    {
        "process.roles": "broker",
        "node.id": "1",
        "controller.quorum.voters": "7@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://:9092",
        "log.dirs": "/data",
    }
)


class Question(msgspec.Struct, weakref=True):
    """Never written down: it is not sent."""


def test_a_broker_that_is_out_of_reach_gathers_no_questions() -> None:
    timers = FakeTimers()
    peers = Peers(CONFIG, MetadataImage(), timers, "test")
    answers: list[Any] = []

    def ask() -> "weakref.ref[Question]":
        question = Question()
        peers.ask(2, question, AddPartitionsToTxnResponse, (4, 5), 5_000, answers.append)
        return weakref.ref(question)

    asked = [ask() for _ in range(10)]
    timers.advance(CONNECT_MS)
    assert answers == [None] * 10
    ask()
    assert not any(question() for question in asked)
    peers.close()
