"""Which names a topic may have (Kafka's Topic.validate)."""

import re

TOPIC_NAME_LENGTH_MAX = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def is_valid_topic_name(name: str) -> bool:
    """Letters, digits, dot, underscore and dash; not ``.`` or ``..``, which are no names for a directory."""
    return len(name) <= TOPIC_NAME_LENGTH_MAX and name not in (".", "..") and _NAME.fullmatch(name) is not None
