"""A way out when most voters are lost for good: the node that has the most of the log becomes a quorum of one, off line.

Raft cannot do this: a minority may lack what was committed, and whether the others are lost, or only away, no node can know. A person
decides both. What is written here is what a leader would write, in an epoch that no voter of the old quorum has been in as far
as this node knows; the log then names this node alone, and everybody else joins anew. (etcd and Consul have the like.)
"""

from typing import NamedTuple

from ottla.log.batch import headers
from ottla.quorum.control_records import control_batch
from ottla.quorum.election_store import ElectionStore
from ottla.quorum.log_port import MetadataLog
from ottla.quorum.log_start import log_summary, voter_history
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.instructions import AppendControl, KRaftVersion, LeaderChange, Voters
from ottla.quorum.raft.rules import epoch_mark, next_epoch
from ottla.quorum.raft.voters import VOTERS_IN_LOG, Voter, VoterSet
from ottla.quorum.snapshots.files import SnapshotFiles
from ottla.quorum.synced_mark import SyncedMark


class Survivor(NamedTuple):
    """What a node has of the metadata. Of two survivors the one with the higher (last epoch, end offset) has more."""

    start_offset: int
    end_offset: int
    last_epoch: int
    promised_epoch: int
    voters: VoterSet
    last_ms: int
    """When the last batch was written, by its leader's clock; -1 where the log holds none."""


def survey(
    log: MetadataLog, snapshots: SnapshotFiles | None, elections: ElectionStore, formatted: VoterSet
) -> Survivor:
    """``formatted``: the voters of the settings, or of the directory's format. Raises QuorumStateError."""
    summary = log_summary(log, snapshots)
    promised = elections.load(summary.end)
    voters = voter_history(log, formatted, snapshots).latest
    last_ms = _last_ms(log) if summary.end > summary.start else -1
    return Survivor(summary.start, summary.end, summary.last_epoch, promised.epoch, voters, last_ms)


def _last_ms(log: MetadataLog) -> int:
    end = log.log_end_offset
    data = bytes(log.read(end - 1, 1, end, minimum_one=True).data)
    return max((header.max_timestamp for _, header in headers(data)), default=-1)


def become_only_voter(
    log: MetadataLog, elections: ElectionStore, mark: SyncedMark, survivor: Survivor, own: Voter, now_ms: int
) -> int:
    """Makes ``own`` the only voter; returns the epoch that this began. Durable when it returns.

    The vote comes first: whoever asks for one in this epoch is refused, also when the process dies before the log is written. Then
    it is simply done again, an epoch later.
    """
    epoch = next_epoch(max(survivor.last_epoch, survivor.promised_epoch))
    elections.save(ElectionState(epoch, None, own.key))
    records = (
        LeaderChange(own.key.id, (own.key,), (own.key.id,)),
        KRaftVersion(VOTERS_IN_LOG),
        Voters(VoterSet.of([own])),
    )
    batch = control_batch(AppendControl(survivor.end_offset, epoch, records, epoch_mark(own.key.id, now_ms)), now_ms)
    log.append_as_follower(bytes(batch), epoch)
    log.flush()
    mark.begin(log.log_end_offset)
    return epoch
