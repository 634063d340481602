"""What `ottla features` asks of a broker."""

from ottla import __version__
from ottla.broker.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.broker.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.broker.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.cli import voter_change
from ottla.cli.client import CLIENT_ID
from ottla.cli.failures import refuse
from ottla.cli.output import Row
from ottla.cli.where import Where


def feature_rows(where: Where) -> list[Row]:
    """A row a feature. Raises CommandError."""
    with where.connect() as client:
        request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version=__version__)
        answer = client.call(request, ApiVersionsResponse)
    refuse(answer.error_code, "describe")
    finalized = {each.name: each.max_version_level for each in answer.finalized_features}
    return [
        {
            "feature": each.name,
            "supported from": each.min_version,
            "supported to": each.max_version,
            "finalized": finalized.get(each.name, 0),
            "as of offset": answer.finalized_features_epoch,
        }
        for each in sorted(answer.supported_features, key=lambda each: each.name)
    ]


def update_features(where: Where, levels: dict[str, int], kind: int, *, dry_run: bool) -> None:
    """``kind``: as UpdateFeatures numbers them. Raises CommandError."""
    updates = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level in levels.items()
    ]
    request = UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=updates, validate_only=dry_run)
    answer = voter_change.update_features(where, request)
    refuse(answer.error_code, ", ".join(levels), answer.error_message)
    for each in answer.results:
        refuse(each.error_code, each.feature, each.error_message)
