"""The API table, and the headers before every body."""

import random
from typing import Any

import pytest

from ottla.broker.wire.apis import APIS, BY_NAME, response_header_is_flexible
from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.headers import (
    encode_request_header,
    read_request_header,
    read_response_header,
)
from ottla.broker.wire.messages.request_header import RequestHeader
from ottla.broker.wire.messages.response_header import ResponseHeader


def test_the_table_has_every_api_of_4_3_but_the_four_of_zookeeper() -> None:
    assert list(APIS) == [key for key in range(93) if key not in (4, 5, 6, 7)]


def test_an_api_knows_its_versions() -> None:
    fetch = APIS[1]

    assert (fetch.name, fetch.min, fetch.max, fetch.flexible_from, fetch.max_stable) == ("Fetch", 4, 18, 12, 18)
    assert fetch.listeners == ("broker", "controller")
    assert [fetch.is_flexible(11), fetch.is_flexible(12)] == [False, True]
    assert not BY_NAME["SaslHandshake"].is_flexible(1)
    assert (BY_NAME["InitProducerId"].max, BY_NAME["InitProducerId"].max_stable) == (6, 5)


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "é" * 200])
@pytest.mark.parametrize(("key", "version", "header_version"), [(0, 8, 1), (0, 9, 2), (17, 1, 1), (18, 3, 2)])
def test_a_request_header_is_the_one_of_the_schema(
    key: int, version: int, header_version: int, client_id: str | None
) -> None:
    data = encode_request_header(key, version, 77, client_id)

    assert data == b"".join(encoder(RequestHeader, header_version)(RequestHeader(key, version, 77, client_id)))
    assert read_request_header(memoryview(b"size" + data + b"body"), 4) == (key, version, 77, client_id, 4 + len(data))


@pytest.mark.parametrize(("key", "version", "header_version"), [(0, 8, 0), (0, 9, 1), (18, 2, 0), (18, 4, 0)])
def test_a_response_header_is_the_one_of_the_schema(key: int, version: int, header_version: int) -> None:
    data = b"".join(encoder(ResponseHeader, header_version)(ResponseHeader(-5)))

    assert read_response_header(memoryview(data), 0, key, version) == (-5, len(data))


def test_the_answer_to_api_versions_has_the_oldest_header() -> None:
    assert not response_header_is_flexible(18, 4)
    assert response_header_is_flexible(3, 12)


def test_the_header_of_an_unknown_api_is_read_as_far_as_it_goes() -> None:
    data = encode_request_header(4711, 3, 9, "me")

    assert read_request_header(memoryview(data), 0) == (4711, 3, 9, "me", len(data))


def test_a_version_of_api_versions_from_the_future_has_a_flexible_header() -> None:
    data = encode_request_header(18, 3, 9, "me")
    future = data[:2] + b"\x00\x63" + data[4:]

    assert read_request_header(memoryview(future), 0) == (18, 99, 9, "me", len(data))


def test_tags_in_headers_are_stepped_over(encode_with_unknown_tags: Any) -> None:
    request = encode_with_unknown_tags(RequestHeader(3, 12, 1, "c"), 2)
    response = encode_with_unknown_tags(ResponseHeader(1), 1)

    assert read_request_header(memoryview(request), 0)[-1] == len(request)
    assert read_response_header(memoryview(response), 0, 3, 12) == (1, len(response))


def test_a_header_cut_short_is_refused() -> None:
    request = encode_request_header(3, 12, 1, "client")
    response = b"".join(encoder(ResponseHeader, 1)(ResponseHeader(1)))

    for length in range(len(request)):
        with pytest.raises(WireError):
            read_request_header(memoryview(request)[:length], 0)
    for length in range(len(response)):
        with pytest.raises(WireError):
            read_response_header(memoryview(response)[:length], 0, 3, 12)


def test_a_client_id_that_is_no_text_is_refused() -> None:
    with pytest.raises(WireError, match="not a request header"):
        read_request_header(memoryview(b"\x00\x12\x00\x00" + bytes(4) + b"\x00\x01\xff"), 0)


def test_a_client_id_that_is_too_long_is_refused() -> None:
    with pytest.raises(WireError, match="32767"):
        encode_request_header(3, 12, 1, "c" * 32768)


def test_random_bytes_are_a_header_or_refused() -> None:
    rng = random.Random(1)
    for _ in range(2000):
        data = memoryview(rng.randbytes(rng.randrange(30)))
        try:
            expected: Any = decoder("RequestHeader", 1)(data, 0)
        except WireError:
            expected = None
        try:
            found = read_request_header(data, 0)
        except WireError:
            continue
        assert (RequestHeader(*found[:4]), found[4]) == expected or found[0] in APIS
