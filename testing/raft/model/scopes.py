"""What is walked: small scopes as a whole, larger ones as far as there is time, the largest at random."""

import msgspec

from ottla.testing.raft.model.bounds import Bounds

SCOPES: dict[str, Bounds] = {
    "one campaign, from cold": Bounds(epoch=1, campaigns=1),
    "a campaign against a leader that appends twice": Bounds(epoch=2, start="led", campaigns=1, appends=2),
    "a crash and a campaign": Bounds(epoch=2, start="led", campaigns=1, crashes=1),
    "two crashes and a campaign before anything is synced": Bounds(epoch=2, start="appended", campaigns=1, crashes=2),
    "two rivals from cold": Bounds(epoch=1, campaigns=2),
    "a crash and a campaign around an append": Bounds(epoch=2, start="led", campaigns=1, appends=1, crashes=1),
    "a hand-over with loss and repetition": Bounds(
        epoch=2, start="led", campaigns=2, shutdowns=1, losses=1, duplicates=1
    ),
    "a campaign, a crash, loss and repetition around an append": Bounds(
        epoch=2, start="led", campaigns=1, appends=1, crashes=1, losses=1, duplicates=1, records_per_fetch=1
    ),
    "two epochs, a resignation": Bounds(epoch=3, start="led", campaigns=2, resignations=1, appends=1),
}

VOTER_SCOPES: dict[str, Bounds] = {
    "a voter joins under a campaign": Bounds(epoch=2, nodes=4, formatted=True, start="led", campaigns=1, adds=1),
    "a voter joins, a crash and a campaign": Bounds(
        epoch=2, nodes=4, formatted=True, start="led", campaigns=1, adds=1, crashes=1
    ),
    "a voter or the leader is removed, two campaigns": Bounds(
        epoch=3, formatted=True, start="led", campaigns=2, removes=1
    ),
    "two leaders remove one of four voters each": Bounds(
        epoch=3, nodes=4, voters=4, formatted=True, start="led", campaigns=2, removes=2
    ),
    "a voter joins, one goes, a message is lost": Bounds(
        epoch=2, nodes=4, formatted=True, start="led", campaigns=1, adds=1, removes=1, losses=1
    ),
    "a voter moves and says so": Bounds(epoch=2, formatted=True, start="led", campaigns=1, moves=1),
}

SNAPSHOT_SCOPES: dict[str, Bounds] = {
    "one who lags fetches a snapshot": Bounds(epoch=2, start="lagging", campaigns=1, snapshots=1, losses=1),
    "one who lags, a crash, loss, an append, a campaign": Bounds(
        epoch=2, start="lagging", campaigns=1, snapshots=1, crashes=1, losses=1, appends=1
    ),
    "snapshots by two leaders, late answers": Bounds(
        epoch=2, start="lagging", campaigns=1, snapshots=2, appends=1, duplicates=1, keep_late_answers=True
    ),
    "a voter joins by a snapshot": Bounds(
        epoch=2, nodes=4, formatted=True, start="led", campaigns=1, adds=1, snapshots=1
    ),
}

DEEP = Bounds(
    epoch=5,
    campaigns=10,
    appends=4,
    crashes=4,
    losses=4,
    duplicates=3,
    resignations=1,
    shutdowns=1,
    records_per_fetch=1,
    keep_late_answers=True,
)
DEEP_VOTERS = msgspec.structs.replace(
    DEEP, epoch=6, nodes=4, formatted=True, appends=3, crashes=3, losses=3, adds=3, removes=3, moves=1
)
DEEP_SNAPSHOTS = msgspec.structs.replace(DEEP, epoch=6, nodes=4, formatted=True, adds=2, removes=2, snapshots=4)
