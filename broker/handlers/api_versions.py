"""ApiVersions (18): which APIs and versions this listener answers. Derived from the routes.

Rules of Kafka that old clients depend on: an unsupported version is answered, in version 0, with what is supported;
Produce is offered from version 0 although 0 to 2 are refused (KAFKA-18659).
"""

import re
from collections.abc import Callable

from ottla.broker.context import NodeContext
from ottla.broker.features import SUPPORTED_FEATURES
from ottla.broker.handlers.common import route
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.apis import API_VERSIONS, PRODUCE
from ottla.broker.wire.codec import encoder
from ottla.broker.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.broker.wire.messages.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.broker.wire.primitives import Buffer
from ottla.quorum.controller.decisions.features import finalized
from ottla.runtime.errors import ErrorCode

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_NAMED_FROM = 3  # first version that carries the client's software
_ZERO_MINIMUM_FROM = 4  # earlier clients fail on a feature whose least version is 0

Ranges = Callable[[], dict[int, tuple[int, int]]]


class ApiVersionsHandler:
    """Answers ApiVersions. ``ranges()`` is asked when the first client comes: all routes are known by then."""

    def __init__(self, node: NodeContext, ranges: Ranges) -> None:
        self._node = node
        self._ranges = ranges
        self._offset = -2
        self._encoded: dict[int, list[Buffer]] = {}

    def routes(self) -> list[Route]:
        return [route("ApiVersions", ApiVersionsRequest, self.answer)]

    def answer(self, request: RequestContext, body: ApiVersionsRequest) -> None:
        if request.version >= _NAMED_FROM and not _is_software(body):
            refused = ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            request.respond_message(refused)
            return
        if self._offset != self._node.image.offset:
            self._offset = self._node.image.offset
            self._encoded.clear()
        encoded = self._encoded.get(request.version)
        if encoded is None:
            encoded = encoder(ApiVersionsResponse, request.version)(self._response(request.version))
            self._encoded[request.version] = encoded
        request.respond(encoded)

    def answer_unsupported(self, request: RequestContext, frame: memoryview, position: int) -> None:
        """A version from the future: the client reads this and asks again with one we have."""
        low, high = self._ranges()[API_VERSIONS]
        response = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersion(API_VERSIONS, low, high)]
        )
        request.count_errors((response.error_code,))
        request.respond(encoder(ApiVersionsResponse, 0)(response))

    def _response(self, version: int) -> ApiVersionsResponse:
        image = self._node.image
        keys = [
            ApiVersion(key, 0 if key == PRODUCE else low, high) for key, (low, high) in sorted(self._ranges().items())
        ]
        supported = [
            SupportedFeatureKey(name, low, high)
            for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
            if low > 0 or version >= _ZERO_MINIMUM_FROM
        ]
        levels = finalized(image, self._node.quorum.kraft_version)
        return ApiVersionsResponse(
            api_keys=keys,
            supported_features=supported,
            finalized_features_epoch=image.offset,
            finalized_features=[
                FinalizedFeatureKey(name, level, level) for name, level in sorted(levels.items()) if level
            ],
        )


def _is_software(body: ApiVersionsRequest) -> bool:
    return all(_SOFTWARE_NAME.fullmatch(each) for each in (body.client_software_name, body.client_software_version))
