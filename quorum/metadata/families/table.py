"""The table of record families. A new one is a row here and its messages in metadata.proto."""

from typing import Any

from ottla.quorum.metadata.families.family import RecordFamily, RecordKind
from ottla.quorum.metadata.families.nodes import BROKERS, CONTROLLERS
from ottla.quorum.metadata.families.settings import CONFIGS, FEATURES, PRODUCER_IDS

_ROWS: tuple[RecordFamily[Any, Any], ...] = (FEATURES, CONTROLLERS, BROKERS, CONFIGS, PRODUCER_IDS)

FAMILIES: dict[str, RecordFamily[Any, Any]] = {row.attribute: row for row in _ROWS}
"""By the attribute of the image, in the order in which they are loaded and listed."""

KINDS: dict[str, tuple[RecordFamily[Any, Any], RecordKind]] = {
    name: (row, kind) for row in _ROWS for name, kind in row.kinds.items()
}
"""By the name in `MetadataRecord`."""
