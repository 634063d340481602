"""Who a client is, as Kafka names him: what quotas and access rules are about."""

from typing import NamedTuple


class Principal(NamedTuple):
    """``User:alice``."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
"""Nobody was asked who he is."""
