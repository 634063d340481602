"""The fault table. A row names a fault, says what it is in a line, and which act inflicts it, with what."""

import signal
from itertools import permutations

from ottla.testing.chaos.acts import administration, clocks, disks, elections, network, processes
from ottla.testing.chaos.fault import Fault
from ottla.testing.chaos.libraries import CLOCK, DISK
from ottla.testing.chaos.links import CLIENTS, KINDS, QUORUM, REPLICATION

NETWORK, PARTITION, PROCESS = "network", "partition", "process"
DISKS, CLOCKS, CHANGES, UNCLEAN = "disk", "clock", "change", "unclean"

FAULTS: list[Fault] = [
    # Links of one kind, all of them. A rate is in KB/s, times in ms (a slicer's in µs).
    *(
        Fault(
            f"latency-{on}",
            NETWORK,
            f"150 ms each way on links of {on}",
            network.slow("latency", on, {"latency": 150}, 280),
        )
        for on in KINDS
    ),
    *(
        Fault(
            f"jitter-{on}",
            NETWORK,
            f"20 to 180 ms each way on links of {on}, drawn anew for each piece",
            network.slow("latency", on, {"latency": 100, "jitter": 80}, 40),
        )
        for on in KINDS
    ),
    Fault(
        "bandwidth-clients",
        NETWORK,
        "20 KB/s each way for clients",
        network.slow("bandwidth", CLIENTS, {"rate": 20}, 15),
    ),
    Fault(
        "bandwidth-replication",
        NETWORK,
        "20 KB/s each way between brokers",
        network.slow("bandwidth", REPLICATION, {"rate": 20}, 15),
    ),
    Fault(
        "bandwidth-quorum", NETWORK, "4 KB/s each way of the quorum", network.slow("bandwidth", QUORUM, {"rate": 4}, 5)
    ),
    *(
        Fault(
            f"slicer-{on}",
            NETWORK,
            f"links of {on} carry pieces of some 40 bytes, 2 ms apart",
            network.slow("slicer", on, {"average_size": 40, "size_variation": 20, "delay": 2000}, 2),
        )
        for on in KINDS
    ),
    *(
        Fault(
            f"slow-close-{on}",
            NETWORK,
            f"who closes a connection of {on} is heard of 1.5 s later",
            network.slow_to_close(on, 1500),
        )
        for on in KINDS
    ),
    *(
        Fault(
            f"reset-{on}",
            NETWORK,
            f"connections of {on} are reset, once a second",
            network.broken("reset_peer", on, {"timeout": 0}),
        )
        for on in KINDS
    ),
    *(
        Fault(
            f"timeout-{on}",
            NETWORK,
            f"connections of {on} carry nothing for 0.6 s and end, every two seconds",
            network.broken("timeout", on, {"timeout": 600}, 1.0, 1.0),
        )
        for on in KINDS
    ),
    *(
        Fault(
            f"data-limit-{on}",
            NETWORK,
            f"connections of {on} end after 20 KB, in the middle of whatever that is",
            network.broken("limit_data", on, {"bytes": 20_000}, 2.0, 0.2),
        )
        for on in (CLIENTS, REPLICATION)
    ),
    Fault(
        "data-limit-quorum",
        NETWORK,
        "connections of the quorum end after 1 KB, in the middle of whatever that is",
        network.broken("limit_data", QUORUM, {"bytes": 1_000}, 2.0, 0.2),
    ),
    # Who does not reach whom. Links are refused or silent, as the seed has it.
    *(
        Fault(
            f"one-way-{source + 1}-{target + 1}",
            PARTITION,
            f"what broker {source + 1} sends to broker {target + 1} is lost; the other way all arrives",
            network.lost_one_way(source, target),
        )
        for source, target in permutations(range(3), 2)
    ),
    Fault(
        "one-way-quorum",
        PARTITION,
        "between the active controller and another voter one direction is lost",
        network.lost_one_way_quorum(),
    ),
    Fault("isolate-leader", PARTITION, "a partition's leader and all other nodes are apart", network.cut_off("leader")),
    Fault(
        "isolate-leader-from-peers",
        PARTITION,
        "the same, and clients still reach it",
        network.cut_off("leader", from_clients=False),
    ),
    Fault(
        "isolate-leader-from-clients",
        PARTITION,
        "clients do not reach a leader, its peers do",
        network.only_clients("leader"),
    ),
    Fault(
        "isolate-controller",
        PARTITION,
        "the active controller and all other nodes are apart",
        network.cut_off("controller"),
    ),
    Fault(
        "isolate-follower", PARTITION, "a follower in sync and all other nodes are apart", network.cut_off("follower")
    ),
    Fault(
        "isolate-coordinator", PARTITION, "a coordinator and all other nodes are apart", network.cut_off("coordinator")
    ),
    Fault(
        "isolate-coordinator-from-clients",
        PARTITION,
        "clients do not reach a coordinator",
        network.only_clients("coordinator"),
    ),
    Fault("bridge", PARTITION, "two nodes do not reach one another, and the third reaches both", network.bridge()),
    Fault("halves", PARTITION, "a broker and a controller are apart from all others", network.halves()),
    *(
        Fault(f"blinking-{on}", PARTITION, f"links of {on} are cut and heal, one after another", network.blinking(on))
        for on in KINDS
    ),
    # Processes.
    *(
        Fault(f"kill-{role}", PROCESS, f"kill -9 of the {role}, and a start", processes.killed(role))
        for role in ("leader", "controller", "follower", "coordinator")
    ),
    Fault(
        "kill-two",
        PROCESS,
        "kill -9 of a leader, and of its successor a moment later",
        processes.killed_pair("leader", "leader"),
    ),
    *(
        Fault(f"stop-{role}", PROCESS, f"SIGSTOP of the {role}, and SIGCONT", processes.stopped(role))
        for role in ("leader", "controller", "follower", "coordinator")
    ),
    Fault("stop-all", PROCESS, "SIGSTOP of every node, and SIGCONT", processes.all_stopped()),
    Fault("restart-storm", PROCESS, "a node is killed again and again, also while it starts", processes.storm("node")),
    Fault(
        "rolling-restart", PROCESS, "every node is stopped in order and started, one after another", processes.rolling()
    ),
    Fault("kill-all", PROCESS, "kill -9 of every node at once", processes.everybody(signal.SIGKILL)),
    Fault("end-all", PROCESS, "SIGTERM to every node at once", processes.everybody(signal.SIGTERM)),
    # Disks and clocks.
    *(
        Fault(f"disk-full-{role}", DISKS, f"the {role}'s disk is full", disks.full(role), library=DISK)
        for role in ("leader", "follower", "controller")
    ),
    *(
        Fault(
            f"disk-broken-{role}",
            DISKS,
            f"the {role}'s disk answers EIO to everything",
            disks.broken(role),
            library=DISK,
        )
        for role in ("leader", "controller")
    ),
    Fault(
        "disk-unsynced",
        DISKS,
        "syncs of the active controller's disk fail with EIO",
        disks.unsynced("controller"),
        library=DISK,
    ),
    *(
        Fault(
            f"disk-slow-{role}",
            DISKS,
            f"each write and sync of the {role} takes 30 ms longer",
            disks.slow(role, 30),
            library=DISK,
        )
        for role in ("leader", "controller")
    ),
    Fault(
        "clock-forward",
        CLOCKS,
        "a leader's clock is set an hour ahead, and back",
        clocks.jump("leader", 3600),
        library=CLOCK,
        seconds=(5, 8),
    ),
    Fault(
        "clock-back",
        CLOCKS,
        "a leader's clock is set an hour back, and forward again",
        clocks.jump("leader", -3600),
        library=CLOCK,
        seconds=(5, 8),
    ),
    Fault(
        "clock-controller",
        CLOCKS,
        "the active controller's clock, or a broker's, is set a day ahead",
        clocks.jump("controller", 86_400),
        library=CLOCK,
        seconds=(5, 8),
        shapes=("combined",),
    ),
    # What an administrator does meanwhile.
    Fault("reassignment", CHANGES, "partitions give a replica away and get it back", administration.reassignment()),
    *(
        Fault(
            f"reassignment-kill-{role}",
            CHANGES,
            f"the same, and the {role} is killed on the way",
            administration.reassignment(kill=role),
        )
        for role in ("controller", "leader")
    ),
    Fault("elections", CHANGES, "leaders change by preferred elections, again and again", administration.elections()),
    Fault("voter-change", CHANGES, "a controller loses its vote and gets it back", administration.voters(active=False)),
    Fault(
        "voter-change-active",
        CHANGES,
        "the active controller loses its vote and gets it back",
        administration.voters(active=True),
    ),
    Fault(
        "feature-voters-in-log",
        CHANGES,
        "kraft.version goes from 0 to 1",
        administration.feature("kraft.version", back=False),
    ),
    Fault(
        "feature-eligible-leaders",
        CHANGES,
        "eligible.leader.replicas.version goes from 0 to 1, and back",
        administration.feature("eligible.leader.replicas.version", back=True),
    ),
]

FAULTS += [
    Fault(
        f"unclean-{how}",
        UNCLEAN,
        f"two of three die, and who was not in sync leads, {words}: what it lacks is lost, and nothing else",
        elections.unclean(asked=asked),
        shapes=("separate",),
        settings={} if asked else {"unclean.leader.election.enable": "true"},
        unclean=True,
        workloads=("registers", "sequences", "list-offsets", "assign"),
    )
    for how, asked, words in (
        ("by-setting", False, "as the setting allows"),
        ("asked", True, "as an administrator asks"),
    )
]

BY_NAME = {fault.name: fault for fault in FAULTS}
assert len(BY_NAME) == len(FAULTS), "each fault has a name of its own"
