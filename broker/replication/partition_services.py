"""What all partitions of a broker work with."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.replication.decisions.isr import Proposal
from ottla.broker.replication.durability import Durability
from ottla.broker.replication.intake import Preparers
from ottla.broker.replication.purgatory import WakeQueue
from ottla.runtime.errors import KafkaError

if TYPE_CHECKING:
    from ottla.broker.replication.partition import Partition


class PartitionServices:
    """Threads, timers and ways to the controller that a partition uses, and the lists in which it stands while a timer has to look at it.

    Dictionaries are sets that keep their order.
    """

    __slots__ = (
        "behind",
        "durability",
        "incomplete",
        "node_id",
        "now_ms",
        "on_damage",
        "on_no_room",
        "on_proposal",
        "preparers",
        "wakes",
    )

    def __init__(
        self,
        node_id: int,
        wakes: WakeQueue,
        durability: Durability,
        now_ms: Callable[[], int],
        on_proposal: "Callable[[Partition, Proposal], None]",
        on_damage: "Callable[[Partition, KafkaError], None]" = lambda *_: None,
        on_no_room: "Callable[[Partition], None]" = lambda _: None,
    ) -> None:
        self.node_id = node_id
        self.wakes = wakes
        self.durability = durability
        self.now_ms = now_ms
        self.on_proposal = on_proposal
        self.on_damage = on_damage
        self.on_no_room = on_no_room
        self.preparers = Preparers()
        self.behind: dict[Partition, None] = {}  # led, with records that are not everywhere yet: may have to shrink
        self.incomplete: dict[Partition, None] = {}  # led, with replicas out of the ISR: may be able to expand
