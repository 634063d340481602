"""UpdateFeatures (57): raises and lowers finalized levels; decided by the controller, all of them or none (KIP-584, KIP-1022)."""

from ottla.broker.context import NodeContext
from ottla.broker.handlers.common import Ask, Told, ask_controller, is_too_much, route, text_or_none
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.broker.wire.messages.update_features_response import UpdatableFeatureResult, UpdateFeaturesResponse
from ottla.proto import controller_pb2
from ottla.quorum.controller.decisions.features import SAFE_DOWNGRADE, UPGRADE
from ottla.runtime.errors import ErrorCode

_KINDS_FROM = 1  # before that, a flag says whether a downgrade may be
_ONE_ERROR_FROM = 2  # before that, each feature has a result


def routes(node: NodeContext) -> list[Route]:
    def answer(request: RequestContext, body: UpdateFeaturesRequest) -> None:
        def response(code: ErrorCode, message: str | None) -> UpdateFeaturesResponse:
            results = [UpdatableFeatureResult(each.feature, code, message) for each in body.feature_updates]
            return UpdateFeaturesResponse(
                error_code=code, error_message=message, results=results if request.version < _ONE_ERROR_FROM else []
            )

        def told(_: Told) -> UpdateFeaturesResponse:
            return response(ErrorCode.NONE, None)

        def refuse(code: ErrorCode, message: str) -> UpdateFeaturesResponse:
            return response(code, text_or_none(message))

        if is_too_much(request, len(body.feature_updates), refuse):
            return
        updates = [_update(each, request.version) for each in body.feature_updates]
        asked = controller_pb2.UpdateFeaturesRequest(updates=updates, validate_only=body.validate_only)
        ask_controller(node, request, Ask(update_features=asked), body.timeout_ms, told, refuse)

    return [route("UpdateFeatures", UpdateFeaturesRequest, answer)]


def _update(asked: FeatureUpdateKey, version: int) -> controller_pb2.UpdateFeaturesRequest.Update:
    kind = asked.upgrade_type
    if version < _KINDS_FROM:
        kind = SAFE_DOWNGRADE if asked.allow_downgrade else UPGRADE
    return controller_pb2.UpdateFeaturesRequest.Update(
        name=asked.feature, max_version_level=asked.max_version_level, upgrade_type=kind
    )
