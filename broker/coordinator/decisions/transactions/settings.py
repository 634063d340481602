"""What the transaction coordinator takes from its node's configuration; the names are Kafka's."""

import msgspec


class TransactionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds, unless a name says otherwise."""

    max_timeout_ms: int = 900_000  # transaction.max.timeout.ms
    id_expiration_ms: int = 604_800_000  # transactional.id.expiration.ms
    two_phases: bool = False  # transaction.two.phase.commit.enable
