"""InitProducerId and the blocks behind it."""

import pytest

from ottla.broker.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.proto import controller_pb2
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.handlers.conftest import Site

IDEMPOTENT = InitProducerIdRequest(transactional_id=None)


def block(start: int, count: int = 1000) -> controller_pb2.ControllerResponse:
    response = controller_pb2.ControllerResponse()
    response.allocate_producer_ids.producer_id_start = start
    response.allocate_producer_ids.producer_id_count = count
    return response


def take(site: Site) -> int:
    response = site.ask(IDEMPOTENT, 4)
    assert (response.error_code, response.producer_epoch) == (ErrorCode.NONE, 0)
    producer_id: int = response.producer_id
    return producer_id


@pytest.mark.parametrize("version", range(6))
def test_the_first_producer_waits_for_a_block(site: Site, version: int) -> None:
    site.send(IDEMPOTENT, version)
    asked = site.controller.request.allocate_producer_ids
    assert (asked.broker_id, asked.broker_epoch) == (1, 55)
    assert not site.written
    site.controller.answer(block(4000))
    response = site.received("InitProducerIdResponse", version)
    assert (response.producer_id, response.producer_epoch, response.error_code) == (4000, 0, 0)


@pytest.mark.parametrize("half", [(7, -1), (-1, 0)])
def test_a_producer_says_both_its_id_and_its_epoch_or_neither(site: Site, half: tuple[int, int]) -> None:
    producer_id, epoch = half
    asked = InitProducerIdRequest(transactional_id=None, producer_id=producer_id, producer_epoch=epoch)
    response = site.ask(asked, 4)

    assert (response.error_code, response.producer_id) == (ErrorCode.INVALID_REQUEST, -1)
    assert not site.controller.asked, "no id is spent"


def test_no_id_is_given_twice_over_many_blocks(site: Site) -> None:
    site.send(IDEMPOTENT, 4)
    site.controller.answer(block(0, 50))
    seen = [site.received("InitProducerIdResponse", 4).producer_id]
    for start in (50, 7000, 9000):
        while not site.controller.asked:
            seen.append(take(site))
        seen.append(take(site))  # the block in hand still has some while the next one is on its way
        site.controller.answer(block(start, 50))
    seen += [take(site) for _ in range(50)]
    assert len(dict.fromkeys(seen)) == len(seen)
    assert all(0 <= each < 100 or 7000 <= each < 7050 or 9000 <= each < 9050 for each in seen)


def test_the_next_block_is_asked_for_before_it_is_needed_and_once(site: Site) -> None:
    site.send(IDEMPOTENT, 4)
    site.controller.answer(block(0, 100))
    site.received("InitProducerIdResponse", 4)
    given = 1
    while not site.controller.asked:
        take(site)
        given += 1
    assert given == 90  # a tenth is left
    for _ in range(10):
        take(site)
    assert len(site.controller.asked) == 1


def test_all_who_wait_are_served_from_one_block(site: Site) -> None:
    for _ in range(3):
        site.send(IDEMPOTENT, 4)
    site.controller.answer(block(10, 2))  # smaller than what is waited for
    site.controller.answer(block(20, 2))
    assert site.written.count((20).to_bytes(8, "big")) == 1
    assert site.written.count((11).to_bytes(8, "big")) == 1


@pytest.mark.parametrize(
    "answer",
    [
        None,
        controller_pb2.ControllerResponse(error_code=77),
        controller_pb2.ControllerResponse(error_code=9999),  # of a controller newer than this broker
        block(0, 0),
    ],
)
def test_without_a_block_clients_are_told_to_try_again(
    site: Site, answer: controller_pb2.ControllerResponse | None
) -> None:
    site.send(IDEMPOTENT, 4)
    site.controller.answer(answer)
    response = site.received("InitProducerIdResponse", 4)
    assert (response.error_code, response.producer_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
    site.send(IDEMPOTENT, 4)
    site.controller.answer(block(0))
    assert site.received("InitProducerIdResponse", 4).producer_id == 0
