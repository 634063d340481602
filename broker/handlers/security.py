"""SaslHandshake (17), SaslAuthenticate (36): who asks for security is told that there is none, in Kafka's words.

A client that is closed instead thinks of a network that failed, and comes again for ever.
"""

from ottla.broker.context import NodeContext
from ottla.broker.handlers.common import route
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from ottla.broker.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
from ottla.broker.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from ottla.broker.wire.messages.sasl_handshake_response import SaslHandshakeResponse
from ottla.runtime.errors import ErrorCode

_NO_SASL = "This listener authenticates nobody: its protocol is PLAINTEXT."


def routes(_: NodeContext) -> list[Route]:
    return [
        route("SaslHandshake", SaslHandshakeRequest, _refuse_handshake),
        route("SaslAuthenticate", SaslAuthenticateRequest, _refuse_credentials),
    ]


def _refuse_handshake(request: RequestContext, _: SaslHandshakeRequest) -> None:
    request.respond_message(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))


def _refuse_credentials(request: RequestContext, _: SaslAuthenticateRequest) -> None:
    request.respond_message(SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, _NO_SASL))
