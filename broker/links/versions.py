"""Which versions of which APIs another broker speaks: what to ask, and what its answer says."""

from struct import Struct

from ottla import __version__
from ottla.broker.wire.apis import API_VERSIONS
from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.broker.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.runtime.errors import ErrorCode

FIRST_ASKED = 4
_ANSWERED_UNSUPPORTED = 0
"""Whatever was asked, this is the version of an answer that says that it is not spoken."""

_ERROR = Struct(">h")

Versions = dict[int, tuple[int, int]]
"""Least and greatest version by API key."""


def versions_request(version: int) -> bytes:
    request = ApiVersionsRequest("ottla", __version__)
    return b"".join(encoder(ApiVersionsRequest, version)(request))


def read_versions(frame: memoryview, position: int, version: int) -> Versions | int:
    """What the other end speaks; a version to ask in instead where it does not speak this one. Raises WireError."""
    if len(frame) < position + _ERROR.size:
        raise WireError("bytes are not an ApiVersions response")
    error = _ERROR.unpack_from(frame, position)[0]
    refused = error == ErrorCode.UNSUPPORTED_VERSION
    response, _ = decoder(ApiVersionsResponse, _ANSWERED_UNSUPPORTED if refused else version)(frame, position)
    found = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    if not error:
        return found
    instead = min(version, common(found, API_VERSIONS, 0, FIRST_ASKED))
    if not refused or instead in (version, NOTHING):
        raise WireError(f"the other end refuses to say what it speaks: error {error}")
    return instead


NOTHING = -1


def common(versions: Versions, key: int, least: int, greatest: int) -> int:
    """The greatest version that both ends speak, NOTHING if there is none."""
    low, high = versions.get(key, (0, NOTHING))
    found = min(high, greatest)
    return found if found >= max(low, least) else NOTHING
