"""Every response that has a throttle time can be given one when it is encoded, and nothing else of it changes."""

import msgspec
import pytest

from ottla.broker.wire.apis import APIS, BY_NAME
from ottla.broker.wire.codec import decoder, encoder, message_class
from ottla.broker.wire.fetch_fast import encode_fetch_response
from ottla.broker.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from ottla.broker.wire.primitives import Buffer
from ottla.broker.wire.produce_fast import encode_produce_response
from ottla.broker.wire.throttle import FIELD, Place, place_of, response_name, throttled

MS = 1234
CASES = [
    (key, version) for key, api in APIS.items() for version in {api.min, api.max} if place_of(key, version) is not Place.NOWHERE
]  # fmt: skip


@pytest.mark.parametrize(("key", "version"), CASES, ids=lambda number: str(number))
def test_a_response_is_the_same_but_for_its_throttle_time(key: int, version: int) -> None:
    name = response_name(key)
    empty = message_class(name)()
    body = throttled(key, version, encoder(name, version)(empty), MS)
    found, _ = decoder(name, version)(memoryview(b"".join(body)), 0)
    before, _ = decoder(name, version)(memoryview(b"".join(encoder(name, version)(empty))), 0)
    assert found == msgspec.structs.replace(before, **{FIELD: MS})


def test_all_versions_have_it_but_those_that_kafka_gave_none() -> None:
    with_it = {APIS[key].name for key, _ in CASES}
    assert {"Produce", "Fetch", "Metadata", "ApiVersions", "CreateTopics", "ListOffsets", "InitProducerId"} <= with_it
    assert not with_it & {"SaslHandshake", "SaslAuthenticate", "DescribeQuorum", "Vote", "Envelope", "WriteTxnMarkers"}


@pytest.mark.parametrize("version", range(4, BY_NAME["Fetch"].max + 1))
def test_the_records_of_a_fetch_are_not_copied(version: int) -> None:
    key = BY_NAME["Fetch"].key
    body = encode_fetch_response(version, [])
    records = memoryview(bytes(100_000))
    found = throttled(key, version, [*body, records], MS)
    assert found[-1] is records
    answer, _ = decoder("FetchResponse", version)(memoryview(b"".join(found[:-1])), 0)
    assert answer.throttle_time_ms == MS


@pytest.mark.parametrize("version", range(3, BY_NAME["Produce"].max + 1))
def test_an_acknowledgement_keeps_its_offsets(version: int) -> None:
    key = BY_NAME["Produce"].key
    topic = "t" if version < 13 else bytes(range(16))
    acknowledged = (5, 0, 4711, -1, 17, (), None, None)
    moved = (6, 6, -1, -1, -1, ((2, "bad"),), "not here", (1, 9))
    endpoints = [(1, "there", 9092, None)]
    body: list[Buffer] = [encode_produce_response(version, [(topic, [acknowledged, moved])], 0, endpoints)]
    answer, _ = decoder("ProduceResponse", version)(memoryview(b"".join(throttled(key, version, body, MS))), 0)
    before, _ = decoder("ProduceResponse", version)(memoryview(b"".join(body)), 0)
    assert before.responses[0].partition_responses[0].base_offset == 4711
    assert answer == msgspec.structs.replace(before, throttle_time_ms=MS)


def test_the_answer_to_a_version_that_there_is_not_stays_as_it_is() -> None:
    key = BY_NAME["ApiVersions"].key
    body = encoder(ApiVersionsResponse, 0)(ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(18, 0, 4)]))
    assert throttled(key, 99, body, MS) is body
