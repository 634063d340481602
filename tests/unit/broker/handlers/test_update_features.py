"""UpdateFeatures: what is sent to the controller, and what the client hears in each version."""

import pytest

from ottla.broker.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.broker.wire.messages.update_features_response import UpdateFeaturesResponse
from ottla.proto import controller_pb2
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.handlers.conftest import Site

Told = controller_pb2.ControllerResponse


def asked(version: int) -> list[FeatureUpdateKey]:
    """A downgrade and an upgrade."""
    down = FeatureUpdateKey("metadata.version", 29, allow_downgrade=True)
    if version > 0:
        down = FeatureUpdateKey("metadata.version", 29, upgrade_type=2)
    return [down, FeatureUpdateKey("group.version", 1)]


def send(site: Site, version: int, validate_only: bool = False) -> controller_pb2.UpdateFeaturesRequest:
    site.send(UpdateFeaturesRequest(700, asked(version), validate_only), version)
    request, _, timeout_ms = site.controller.asked[0]
    assert timeout_ms == 700
    assert request.origin == "client test through broker 1"
    return request.update_features


def heard(site: Site, version: int, told: Told | None) -> UpdateFeaturesResponse:
    site.controller.answer(told)
    response: UpdateFeaturesResponse = site.received("UpdateFeaturesResponse", version)
    return response


@pytest.mark.parametrize("version", range(3))
def test_the_controller_gets_the_updates_of_every_version(site: Site, version: int) -> None:
    request = send(site, version, validate_only=version > 0)
    told = [(each.name, each.max_version_level, each.upgrade_type) for each in request.updates]
    assert told == [("metadata.version", 29, 2), ("group.version", 1, 1)]
    assert request.validate_only == (version > 0)


@pytest.mark.parametrize("version", range(3))
def test_a_success_is_told_for_each_feature_where_the_version_can(site: Site, version: int) -> None:
    send(site, version)
    response = heard(site, version, Told(update_features=controller_pb2.UpdateFeaturesResponse()))
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    names = [(each.feature, each.error_code) for each in response.results]
    assert names == ([] if version == 2 else [("metadata.version", 0), ("group.version", 0)])


@pytest.mark.parametrize("version", range(3))
def test_a_refusal_comes_with_its_reason(site: Site, version: int) -> None:
    send(site, version)
    refused = Told(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message="broker 2 does not read level 29")
    response = heard(site, version, refused)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert response.error_message == "broker 2 does not read level 29"
    assert {each.error_code for each in response.results} <= {ErrorCode.INVALID_UPDATE_VERSION}


def test_a_controller_that_does_not_answer_is_told(site: Site) -> None:
    send(site, 2)
    assert heard(site, 2, None).error_code == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("version", range(3))
def test_more_features_than_can_be_are_not_passed_on(site: Site, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    monkeypatch.setattr("ottla.broker.handlers.common.ENTRIES_MAX", 1)
    response = site.ask(UpdateFeaturesRequest(700, asked(version)), version)
    assert (response.error_code, site.controller.asked) == (ErrorCode.POLICY_VIOLATION, [])
