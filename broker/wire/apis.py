"""Kafka's APIs: keys, names and versions. What a listener offers is decided by its handlers, not here."""

from dataclasses import dataclass
from functools import lru_cache

from ottla.broker.wire.api_table import ROWS


@dataclass(frozen=True, slots=True)
class API:
    """One API: versions ``min``..``max`` exist; those above ``max_stable`` are offered only when asked for."""

    key: int
    name: str
    min: int
    max: int
    flexible_from: int | None
    max_stable: int
    listeners: tuple[str, ...]

    def is_flexible(self, version: int) -> bool:
        """Whether requests and responses of the version use compact types and tagged fields."""
        return self.flexible_from is not None and version >= self.flexible_from


APIS: dict[int, API] = {row[0]: API(*row) for row in ROWS}
"""Every API by key, in the order of the keys."""

BY_NAME: dict[str, API] = {api.name: api for api in APIS.values()}

PRODUCE = BY_NAME["Produce"].key
FETCH = BY_NAME["Fetch"].key
API_VERSIONS = BY_NAME["ApiVersions"].key


@lru_cache(1 << 12)  # every listener of every start asks for all
def request_header_is_flexible(key: int, version: int) -> bool:
    """Whether a request's header ends in tagged fields (header version 2). An unknown API's does not."""
    api = APIS.get(key)
    return api is not None and api.is_flexible(version)


def response_header_is_flexible(key: int, version: int) -> bool:
    """Whether a response's header ends in tagged fields (header version 1).

    Never for ApiVersions: a client that asks for a version the broker does not know must be able to read the answer.
    """
    return key != API_VERSIONS and request_header_is_flexible(key, version)
