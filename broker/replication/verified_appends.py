"""Appends of batches that begin a transaction in a partition: only with the proof that its coordinator knows of it (KIP-890)."""

from ottla.broker.replication.appending import append
from ottla.broker.replication.partition import Partition
from ottla.log.batch import BatchHeader
from ottla.log.producers.verification import OfProducer, VerificationGuards
from ottla.log.results import AppendInfo

NOBODY_ASKED = -1
"""The guard of a batch that is taken without proof: ``transaction.partition.verification.enable=false``."""


def guards_of(partition: Partition) -> VerificationGuards:
    """What is being asked about a partition."""
    if partition.verification is None:
        partition.verification = VerificationGuards(partition.log.producers)
    return partition.verification


def require_proof(partition: Partition, header: OfProducer, guard: int) -> None:
    """Raises KafkaError as `VerificationGuards.verify`."""
    if guard != NOBODY_ASKED:
        guards_of(partition).verify(header, guard)


def append_verified(
    partition: Partition,
    batch: bytearray,
    header: BatchHeader,
    guard: int,
    acks: int,
    wall_ms: int,
    now_ms: int,
    *,
    prepared: bool = False,
) -> AppendInfo:
    """`append` with what was learned under ``guard`` of a batch that the log has judged: ``header`` is of its UnverifiedError. Raises
    KafkaError: also what `VerificationGuards.verify` refuses. ``prepared``: it went through the intake.

    A guard that is right, a batch written and all other guards void: one step, which no marker can come between.
    """
    log, guards = partition.log, guards_of(partition)

    def write(view: memoryview, epoch: int, wall_ms: int) -> AppendInfo:
        require_proof(partition, header, guard)
        return log.append_prepared(view, header, epoch, wall_ms, verified=True, has_codec=prepared)

    info = append(partition, memoryview(batch), acks, wall_ms, now_ms, write)
    guards.appended(header.producer_id)
    return info
