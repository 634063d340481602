"""SaslHandshake (17), SaslAuthenticate (36), DescribeAcls (29), CreateAcls (30), DeleteAcls (31): who asks for security is told that there is none, in Kafka's words.

A client that is closed instead thinks of a network that failed, and comes again for ever.
"""

from ottla.broker.context import NodeContext
from ottla.broker.handlers.common import route
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.create_acls_request import CreateAclsRequest
from ottla.broker.wire.messages.create_acls_response import AclCreationResult, CreateAclsResponse
from ottla.broker.wire.messages.delete_acls_request import DeleteAclsRequest
from ottla.broker.wire.messages.delete_acls_response import DeleteAclsFilterResult, DeleteAclsResponse
from ottla.broker.wire.messages.describe_acls_request import DescribeAclsRequest
from ottla.broker.wire.messages.describe_acls_response import DescribeAclsResponse
from ottla.broker.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from ottla.broker.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
from ottla.broker.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from ottla.broker.wire.messages.sasl_handshake_response import SaslHandshakeResponse
from ottla.runtime.errors import ErrorCode

_NO_SASL = "This listener authenticates nobody: its protocol is PLAINTEXT."

_NO_RULES = "No Authorizer is configured."


def routes(_: NodeContext) -> list[Route]:
    return [
        route("SaslHandshake", SaslHandshakeRequest, _refuse_handshake),
        route("SaslAuthenticate", SaslAuthenticateRequest, _refuse_credentials),
        route("DescribeAcls", DescribeAclsRequest, _tell_no_rules),
        route("CreateAcls", CreateAclsRequest, _refuse_rules),
        route("DeleteAcls", DeleteAclsRequest, _refuse_filters),
    ]


def _refuse_handshake(request: RequestContext, _: SaslHandshakeRequest) -> None:
    request.respond_message(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))


def _refuse_credentials(request: RequestContext, _: SaslAuthenticateRequest) -> None:
    request.respond_message(SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, _NO_SASL))


def _tell_no_rules(request: RequestContext, _: DescribeAclsRequest) -> None:
    request.respond_message(
        DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
        )
    )


def _refuse_rules(request: RequestContext, body: CreateAclsRequest) -> None:
    refused = AclCreationResult(ErrorCode.SECURITY_DISABLED, _NO_RULES)
    request.respond_message(CreateAclsResponse(results=[refused] * len(body.creations)))


def _refuse_filters(request: RequestContext, body: DeleteAclsRequest) -> None:
    refused = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, _NO_RULES)
    request.respond_message(DeleteAclsResponse(filter_results=[refused] * len(body.filters)))
