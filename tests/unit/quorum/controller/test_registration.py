"""A controller registers in each of its lives, and does not run on metadata it cannot read."""

from typing import Any, cast

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.decisions.features import SUPPORTED
from ottla.quorum.controller.registration import ControllerRegistration
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.families.nodes import CONTROLLERS
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.raft.voters import Endpoint
from ottla.runtime.errors import ErrorCode, KafkaError
from tests.unit.fake_controller import FakeController

INCARNATION = bytes(range(16))


class FakeChannel(FakeController):
    closed = False


def registered(channel: FakeChannel) -> list[KafkaError]:
    refused: list[KafkaError] = []
    listener = ("CONTROLLER", Endpoint("c4", 9093))
    ControllerRegistration(cast(Any, channel), 4, INCARNATION, listener, refused.append, "r").start()
    return refused


def test_a_controller_that_was_forgotten_registers_again() -> None:
    channel = FakeChannel()
    registration = ControllerRegistration(cast(Any, channel), 4, INCARNATION, ("C", Endpoint("c4", 1)), print)
    registration.start()
    channel.answer(rpc.ControllerResponse())
    image, forgotten = MetadataImage(), MetadataDelta()
    forgotten.note(CONTROLLERS, 4, None)
    other = MetadataDelta()
    other.note(CONTROLLERS, 5, None)
    registration.publish(other, image)
    assert channel.asked == []

    registration.publish(forgotten, image)
    assert channel.asked[0][0].register_controller.controller_id == 4


def test_an_answer_that_is_older_than_its_being_forgotten_is_not_believed() -> None:
    """It was cut off before it had the answer, and is told it again when it comes back."""
    channel = FakeChannel()
    registration = ControllerRegistration(cast(Any, channel), 4, INCARNATION, ("C", Endpoint("c4", 1)), print)
    registration.start()
    forgotten = MetadataDelta()
    forgotten.note(CONTROLLERS, 4, None)
    registration.publish(forgotten, MetadataImage())
    assert len(channel.asked) == 1, "it is asking already"
    channel.answer(rpc.ControllerResponse())
    assert len(channel.asked) == 1
    channel.answer(rpc.ControllerResponse())
    assert channel.asked == []


def test_a_controller_says_what_it_reads_and_where_it_listens() -> None:
    channel = FakeChannel()
    registered(channel)
    asked = channel.asked[0][0].register_controller

    assert (asked.controller_id, asked.incarnation_id) == (4, INCARNATION)
    assert [(each.name, each.host, each.port) for each in asked.endpoints] == [("CONTROLLER", "c4", 9093)]
    assert [each.name for each in asked.features] == list(SUPPORTED)
    assert asked.rack == "r"


def test_it_asks_until_it_is_answered() -> None:
    channel = FakeChannel()
    refused = registered(channel)
    channel.answer(None)
    assert len(channel.asked) == 1
    channel.answer(rpc.ControllerResponse())

    assert channel.asked == []
    assert refused == []


def test_it_asks_no_more_when_the_node_stops() -> None:
    channel = FakeChannel()
    registered(channel)
    channel.closed = True
    channel.answer(None)

    assert channel.asked == []


def test_a_controller_too_old_for_the_cluster_goes_no_further() -> None:
    channel = FakeChannel()
    refused = registered(channel)
    channel.answer(rpc.ControllerResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message="level 31"))

    assert "controller 4 cannot register: level 31" in str(refused[0])
