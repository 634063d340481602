"""What nodes of different versions speak with each other."""

from ottla.broker.links import broker_link
from ottla.broker.links.broker_link import BrokerLink
from ottla.broker.links.versions import Versions, read_versions
from ottla.testing.simulation.planted.bug import PlantedBug

HEALS = "when faults end, the cluster heals"
_TOLD = BrokerLink._versions_told


def _the_newest(_versions: Versions, _key: int, _least: int, greatest: int) -> int:
    return greatest


def _asked_once(link: BrokerLink, version: int, frame: memoryview, position: int) -> None:
    if not isinstance(read_versions(frame, position, version), int):
        _TOLD(link, version, frame, position)


OLDER = (
    PlantedBug(
        "ask brokers in the newest version",
        "versions.common: what is asked is in a version that both ends speak",
        ((broker_link, "common", _the_newest),),
        2,
        (),
        (HEALS,),
        ("older", "transactions"),
    ),
    PlantedBug(
        "ask which versions there are in one version",
        "versions.read_versions: who does not speak ApiVersions 4 is asked in an older one",
        ((BrokerLink, "_versions_told", _asked_once),),
        1,
        (),
        (HEALS,),
        ("older",),
    ),
)
