"""What an answer to a consumer must be like, given what was committed by then."""

from ottla.broker.wire.messages.fetch_response import PartitionData
from ottla.log.batch import CorruptBatchError, check_crc, headers
from ottla.log.records import RecordError, decode_records
from ottla.testing.simulation.committed import Batch
from ottla.testing.simulation.compaction import Seen
from ottla.testing.simulation.invariants import Invariants
from ottla.testing.simulation.workload import BrokenPromise


def check_answer(
    invariants: Invariants, topic: str, position: int, data: PartitionData
) -> tuple[int, list[tuple[int, int]]]:
    """Raises BrokenPromise. Returns where to go on, and (number, offset) of the records from ``position`` on."""
    view, following = memoryview(data.records or b""), position
    found, seen, batches = list[tuple[int, int]](), list[Seen](), list[Batch]()
    story = f"{topic}-{data.partition_index} from {position}"
    try:
        for at, header in headers(view):
            check_crc(view, header, at)
            for offset, _, key, value, texts in decode_records(view, header, position=at):
                if offset >= position:
                    found.append((int(texts[0][1] or b"-1"), offset))
                    seen.append(Seen(offset, key, value))
            batches.append(Batch(header.base_offset, header.last_offset, header.leader_epoch, header.crc))
            following = header.next_offset
    except (CorruptBatchError, RecordError) as error:
        raise BrokenPromise(f"{story}: given bytes that are no batch: {error}") from error
    if following > data.high_watermark and batches:
        raise BrokenPromise(
            f"{story}: given records up to {following}, beyond the high watermark {data.high_watermark}"
        )
    if batches and batches[0].last_offset < data.log_start_offset:
        raise BrokenPromise(f"{story}: given {batches[0]}, below the log start {data.log_start_offset}")
    topic_id = invariants.metadata.topics_by_name[topic].id
    fault = invariants.fault_of_answer(topic_id, data.partition_index, position, batches, seen)
    if fault:
        raise BrokenPromise(f"{story}: {fault}")
    return following, found
