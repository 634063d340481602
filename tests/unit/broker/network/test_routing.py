import pytest

from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import DuplicateRouteError, Route, RouteTable, target_key
from ottla.broker.wire.apis import BY_NAME

METADATA = BY_NAME["Metadata"].key


def ignore(request: RequestContext, frame: memoryview, position: int) -> None:
    """A handler."""


def test_two_handlers_for_one_version_are_refused() -> None:
    with pytest.raises(DuplicateRouteError, match="Metadata version 5"):
        RouteTable([Route(METADATA, 0, 5, ignore), Route(METADATA, 5, 9, ignore)])


def test_ranges_join_the_routes_of_an_api() -> None:
    table = RouteTable([Route(METADATA, 6, 9, ignore), Route(METADATA, 0, 5, ignore), Route(0, 3, 9, ignore)])
    assert table.ranges() == {0: (3, 9), METADATA: (0, 9)}


@pytest.mark.parametrize(("key", "low", "high"), [(METADATA, 0, 99), (999, 0, 0), (0, 2, 3), (METADATA, 5, 4)])
def test_versions_that_do_not_exist_are_refused(key: int, low: int, high: int) -> None:
    with pytest.raises(ValueError, match="not in the schema"):
        RouteTable([Route(key, low, high, ignore)])


def test_keys_of_negative_numbers_meet_no_route() -> None:
    table = RouteTable([Route(METADATA, 0, 5, ignore)])
    assert target_key(METADATA, 3) in table.targets
    for key, version in ((-1, 3), (METADATA, -1), (METADATA - 1, 65536 + 3 - 65536), (METADATA, 6)):
        assert target_key(key, version) not in table.targets
