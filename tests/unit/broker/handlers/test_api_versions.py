from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.handlers.routes import HANDLERS, client_routes
from ottla.broker.network.routing import DuplicateRouteError
from ottla.broker.wire.apis import API_VERSIONS, BY_NAME, PRODUCE
from ottla.broker.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.handlers.conftest import Site

NAMED = ApiVersionsRequest("librdkafka", "2.15.0")


@pytest.mark.parametrize("version", range(5))
def test_every_version_tells_exactly_the_routes(site: Site, version: int) -> None:
    response = site.ask(NAMED if version >= 3 else ApiVersionsRequest(), version)
    told = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert told.pop(PRODUCE) == (0, 13)  # and not from 3 on: old librdkafka concludes from it what the broker can do
    expected = site.routes.ranges()
    assert expected.pop(PRODUCE) == (3, 13)
    assert told == expected
    assert told[API_VERSIONS] == (0, 4)


def test_the_newest_version_of_an_api_is_offered_only_when_it_is_stable(site: Site) -> None:
    told = {each.api_key: each.max_version for each in site.ask(NAMED, 3).api_keys}
    assert told[BY_NAME["InitProducerId"].key] == 5


def test_produce_versions_that_are_offered_but_gone_close_the_connection(site: Site) -> None:
    site.send_raw(PRODUCE, 2, b"")
    assert site.transport.closing


@pytest.mark.parametrize("version", [5, 99, -1])
def test_a_version_from_the_future_is_answered_in_version_zero(site: Site, version: int) -> None:
    site.send_raw(API_VERSIONS, version, b"whatever it has")
    response = site.received("ApiVersionsResponse", 0)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(each.api_key, each.min_version, each.max_version) for each in response.api_keys] == [(API_VERSIONS, 0, 4)]
    assert not site.transport.closing
    assert site.connection.counters.errors == {(API_VERSIONS, ErrorCode.UNSUPPORTED_VERSION): 1}


@pytest.mark.parametrize("name", ["", "-kafka", "kafka-", "kaf ka", "käfka"])
def test_an_impossible_software_name_is_refused(site: Site, name: str) -> None:
    assert site.ask(ApiVersionsRequest(name, "1.0"), 3).error_code == ErrorCode.INVALID_REQUEST
    assert site.ask(ApiVersionsRequest("fine", name), 4).error_code == ErrorCode.INVALID_REQUEST


def test_features_follow_the_image(site: Site) -> None:
    response = site.ask(NAMED, 3)
    assert [(each.name, each.max_version_level) for each in response.finalized_features] == [("metadata.version", 30)]
    assert response.finalized_features_epoch == 100
    assert [each.name for each in response.supported_features] == ["metadata.version"]
    site.image.features["group.version"] = 1
    site.image.offset = 101
    response = site.ask(NAMED, 3)
    assert [each.name for each in response.finalized_features] == ["group.version", "metadata.version"]
    assert response.finalized_features_epoch == 101


def test_kraft_version_is_told_as_the_quorum_has_it(site: Site) -> None:
    """Not a record of the metadata. Level 0 is none, and old clients cannot read a least level of 0."""
    assert "kraft.version" in [each.name for each in site.ask(NAMED, 4).supported_features]
    assert "kraft.version" not in [each.name for each in site.ask(NAMED, 4).finalized_features]
    site.broker.quorum = cast(Any, SimpleNamespace(kraft_version=1))
    site.image.offset = 101

    response = site.ask(NAMED, 4)
    assert [(each.name, each.max_version_level) for each in response.finalized_features] == [
        ("kraft.version", 1),
        ("metadata.version", 30),
    ]


def test_an_api_without_a_handler_closes_the_connection(site: Site) -> None:
    site.send_raw(BY_NAME["ShareFetch"].key, 1, b"")
    assert site.transport.closing


def test_two_handlers_of_one_api_are_refused(site: Site) -> None:
    with pytest.raises(DuplicateRouteError):
        client_routes(site.broker, (*HANDLERS, HANDLERS[0]))


def test_a_body_that_is_cut_short_closes_the_connection(site: Site) -> None:
    site.send_raw(BY_NAME["Metadata"].key, 4, b"\0\0\0\5")
    assert site.transport.closing
    assert not site.written


def test_another_api_of_a_version_too_new_closes_the_connection(site: Site) -> None:
    site.send_raw(BY_NAME["Metadata"].key, 14, b"")
    assert site.transport.closing
