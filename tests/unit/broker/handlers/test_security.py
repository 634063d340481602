"""What asks for security is told that there is none, as Kafka tells it where none is set up."""

import pytest

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
