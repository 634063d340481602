"""What asks for security is told that there is none, as Kafka tells it where none is set up."""

import pytest

from ottla.broker.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from ottla.broker.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from ottla.broker.wire.messages.describe_acls_request import DescribeAclsRequest
from ottla.broker.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from ottla.broker.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.handlers.conftest import Site


@pytest.mark.parametrize("version", [0, 1])
def test_a_client_that_is_set_to_authenticate_is_told_that_it_cannot(site: Site, version: int) -> None:
    """It ends of that. Of a connection that is closed it would think that the next one may do, for ever."""
    told = site.ask(SaslHandshakeRequest("PLAIN"), version)
    assert (told.error_code, told.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert not site.transport.closing


@pytest.mark.parametrize("version", [0, 1, 2])
def test_credentials_are_not_taken(site: Site, version: int) -> None:
    told = site.ask(SaslAuthenticateRequest(b"\0user\0secret"), version)
    assert (told.error_code, told.auth_bytes) == (ErrorCode.ILLEGAL_SASL_STATE, b"")
    assert "secret" not in told.error_message
    assert not site.transport.closing


@pytest.mark.parametrize("version", [1, 2, 3])
def test_who_asks_for_access_rules_is_told_that_there_are_none(site: Site, version: int) -> None:
    """Of this MirrorMaker 2 leaves rules alone, as it asks for them unless it is told not to."""
    told = site.ask(DescribeAclsRequest(1, None, 1, None, None, 1, 1), version)
    assert (told.error_code, told.resources) == (ErrorCode.SECURITY_DISABLED, [])
    assert told.error_message == "No Authorizer is configured on the broker"


@pytest.mark.parametrize("version", [1, 2, 3])
def test_access_rules_are_not_taken_and_each_is_told_so(site: Site, version: int) -> None:
    rule = AclCreation(2, "rides", 3, "User:a", "*", 3, 3)
    created = site.ask(CreateAclsRequest([rule, rule]), version)
    assert [each.error_code for each in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
    deleted = site.ask(DeleteAclsRequest([DeleteAclsFilter(1, None, 1, None, None, 1, 1)] * 2), version)
    assert [each.error_code for each in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED] * 2
    assert {each.error_message for each in deleted.filter_results} == {"No Authorizer is configured."}
