"""Committed records for tools (`ottla metadata`), read from whichever voter is asked; and for this node, of before its start.

It is no fetch: the core is not told of it, it acknowledges nothing, and nobody's progress is noted. It gives nothing away
that a fetch on the same listener would not.
"""

import logging
from collections.abc import Iterator

from ottla.log.errors import DamagedLogError
from ottla.proto import quorum_pb2 as pb
from ottla.quorum.batches import committed_batches
from ottla.quorum.listener import CommittedBatch
from ottla.quorum.log_port import MetadataLog
from ottla.quorum.messages_proto import place_from_proto, place_to_proto, response_to_proto
from ottla.quorum.raft.messages import FetchSnapshotResponse
from ottla.quorum.snapshots.files import SnapshotFiles
from ottla.quorum.snapshots.taking import read_piece

READ_BYTES_MAX = 1 << 20
"""Read in one go on the node's event loop."""

logger = logging.getLogger(__name__)


def answer_read(
    log: MetadataLog, snapshots: SnapshotFiles | None, high_watermark: int, request: pb.ReadLogRequest
) -> pb.QuorumResponse:
    """Records below the high watermark, or a piece of a snapshot. The response's error: SNAPSHOT_NOT_FOUND,
    POSITION_OUT_OF_RANGE."""
    max_bytes = min(max(request.max_bytes, 1), READ_BYTES_MAX)
    if request.HasField("snapshot"):
        place = place_from_proto(request.snapshot)
        piece = FetchSnapshotResponse(epoch=0, snapshot=place, position=request.position)
        return response_to_proto(read_piece(snapshots, piece, max_bytes))
    start, end = log.log_start_offset, max(high_watermark, log.log_start_offset)
    body = pb.ReadLogResponse(log_start=start, high_watermark=end)
    snapshot = place_to_proto(snapshots.at_or_after(start)) if snapshots is not None and start > 0 else None
    if snapshot is not None:
        body.snapshot.CopyFrom(snapshot)
    if start <= request.offset < end:
        body.records = bytes(log.read(request.offset, max_bytes, end, minimum_one=True).data)
    return pb.QuorumResponse(read_log=body)


def last_batches(log: MetadataLog, end: int, records_max: int) -> Iterator[CommittedBatch]:
    """The batches with the last ``records_max`` records below ``end``, as far as the log has them, and up to where it is damaged: nobody
    needs them so much that a node should not start. All below ``end`` has to be committed."""
    offset = max(log.log_start_offset, end - records_max)
    while offset < end:
        before = offset
        try:
            data = bytes(log.read(offset, READ_BYTES_MAX, end, minimum_one=True).data)
        except DamagedLogError as error:
            logger.warning("of what was committed before this start not all can be read: %s", error)
            return
        for batch in committed_batches(data, 0):
            offset = batch.last_offset + 1
            yield batch
        if offset == before:
            return
