"""Who waits when a turn is over, and who does not."""

from collections.abc import Callable

import pytest

from ottla.broker.network.receive import CHUNK_BYTES, CLASSES
from ottla.broker.network.turn import FRAMES_PER_TURN, FRAMES_PER_TURN_MIN, ROUND_S, TURN_S
from tests.unit.broker.network.conftest import ECHO, LARGE, PARK, Peer, Turns, frame, responses


def crowd(turns: Turns, count: int) -> list[Peer]:
    first = Peer(turns=turns)
    return [first, *(Peer(pool=first.pool, turns=turns) for _ in range(count - 1))]


def send(peer: Peer, *bodies: bytes) -> None:
    peer.unread = b"".join(frame(ECHO, body) for body in bodies)
    peer.read()


def test_past_the_end_of_a_turn_a_client_waits_and_a_broker_does_not() -> None:
    turns = Turns()
    client, broker = crowd(turns, 2)
    broker.connection.comes_first = True
    turns.take_long()
    send(client, b"a")
    send(broker, b"b")
    assert (client.seen, broker.seen) == ([], [b"b"])
    turns.begin()
    turns.end()
    assert client.seen == [b"a"]
    assert responses(client.transport.written) == [(0, b"a")], "and its answer does not wait for another turn"


def test_who_waits_is_served_in_the_order_of_coming_as_far_as_a_turn_goes() -> None:
    turns = Turns()
    clients = crowd(turns, 5)
    turns.take_long()
    for each in clients:
        send(each, b"x")
    clock, slow = turns.turn.loop_watch, iter(range(1, 1000))
    clock.clock = lambda: 2 * TURN_S * next(slow)  # every look at it is a turn later
    for count in range(1, 6):
        turns.end()
        assert [len(each.seen) for each in clients] == [1] * count + [0] * (5 - count)
        assert turns.turn._is_behind == (count < 5), "who comes now waits behind those"
    clock.clock = lambda: turns.now_s
    turns.begin()
    turns.end_all()
    assert all(len(each.answers) == 1 for each in clients)


def behind_a_crowd(many: int, takes_us: float) -> tuple[float, list[Peer]]:
    """How long a request waits that came behind so many clients, each with a hundred that take so long; and they."""
    turns = Turns()
    *clients, last = crowd(turns, many + 1)
    turns.take_long()
    for each in clients:
        each.takes_s = takes_us / 1e6
        send(each, *[b"x"] * 100)
    send(last, b"y")
    came_s = turns.now_s
    while not last.seen:
        turns.begin()
        turns.end()
    return turns.now_s - came_s, clients


@pytest.mark.parametrize(("many", "takes_us"), [(100, 100), (500, 10), (500, 40), (2_000, 10)])
def test_who_comes_behind_a_crowd_does_not_wait_for_all_that_it_has(many: int, takes_us: float) -> None:
    waited_s, clients = behind_a_crowd(many, takes_us)
    assert waited_s <= ROUND_S + 2 * TURN_S, "it takes a turn to know what they take"
    clients[0].turns.end_all()
    assert {len(each.answers) for each in clients} == {100}


@pytest.mark.parametrize(
    ("many", "takes_us", "least"), [(2, 40, FRAMES_PER_TURN), (500, 10, 19), (2_000, 40, FRAMES_PER_TURN_MIN)]
)
def test_of_who_waits_as_much_is_taken_as_a_round_has_time_for(many: int, takes_us: float, least: int) -> None:
    _, clients = behind_a_crowd(many, takes_us)
    assert min(len(each.seen) for each in clients) == least


def test_after_one_request_that_took_long_the_others_soon_have_all_of_their_turn() -> None:
    turns = Turns()
    slow, *others = crowd(turns, 10)
    turns.take_long()
    slow.takes_s = 1.0
    for each in (slow, *others):
        send(each, *[b"x"] * 200)
    turns.begin()
    turns.end()
    slow.takes_s = 0.0
    for _ in range(3):
        turns.begin()
        turns.end()
    assert min(len(each.seen) for each in others) > FRAMES_PER_TURN


def test_a_client_that_waits_is_read_on_while_there_is_room_and_keeps_its_place() -> None:
    turns = Turns()
    first, second = crowd(turns, 2)
    turns.take_long()
    send(first, b"a")
    send(second, b"b")
    send(first, b"c")
    assert first.transport.pauses == 0
    turns.end()
    assert (first.seen, second.seen) == ([b"a", b"c"], [b"b"])
    assert first.connection.owned_bytes == 0


def test_a_thousand_clients_that_wait_with_little_take_little() -> None:
    turns = Turns()
    clients = crowd(turns, 1_000)
    turns.take_long()
    for each in clients:
        send(each, bytes(100))
    assert clients[0].pool.budget.used < 200_000
    turns.begin()
    turns.end_all()
    assert all(len(each.seen) == 1 for each in clients)
    assert clients[0].pool.budget.used == 0


def test_a_client_that_waits_and_sends_too_much_is_not_read() -> None:
    turns = Turns()
    (client,) = crowd(turns, 1)
    turns.take_long()
    client.unread = frame(ECHO, bytes(2 * CHUNK_BYTES))
    client.read()
    assert not client.transport.reading
    assert client.connection.owned_bytes <= CLASSES[3]
    turns.begin()
    client.receive(client.unread)
    assert client.seen == [bytes(2 * CHUNK_BYTES)]


def test_what_is_put_off_comes_in_order_with_what_is_not() -> None:
    turns = Turns()
    (client,) = crowd(turns, 1)
    for number in range(50):
        (turns.take_long if number % 3 else turns.begin)()
        send(client, b"%d" % number)
        if number % 7 == 0:
            turns.end()
    turns.begin()
    turns.end_all()
    assert [body for _, body in client.answers] == [b"%d" % number for number in range(50)]


END: dict[str, Callable[[Peer], object]] = {
    "shuts its half down": lambda client: client.connection.eof_received(),
    "goes": lambda client: client.connection.connection_lost(None),
    "is closed": lambda client: client.connection.close(),
}


@pytest.mark.parametrize("how", END)
def test_a_client_that_ends_while_it_waits(how: str) -> None:
    turns = Turns()
    client, other = crowd(turns, 2)
    turns.take_long()
    send(client, b"last words")
    send(other, b"x")
    END[how](client)
    if how == "shuts its half down":
        assert responses(client.transport.written) == [(0, b"last words")]
        client.connection.connection_lost(None)
    turns.begin()
    turns.end_all()
    assert len(client.seen) == (how == "shuts its half down")
    assert other.seen == [b"x"]
    assert client.connection.owned_bytes <= len(frame(ECHO, b"last words"))


@pytest.mark.parametrize("how", END)
def test_a_client_of_a_crowd_that_ends_with_a_part_taken(how: str) -> None:
    turns = Turns()
    clients = crowd(turns, 200)
    client = clients[100]
    turns.take_long()
    for each in clients:
        each.takes_s = 1e-4
        send(each, *[b"x"] * 100)
    while not client.seen:
        turns.begin()
        turns.end()
    assert len(client.seen) == FRAMES_PER_TURN_MIN
    END[how](client)
    turns.begin()
    turns.end_all()
    assert len(client.seen) == (100 if how == "shuts its half down" else FRAMES_PER_TURN_MIN)
    assert all(len(each.answers) == 100 for each in clients if each is not client)
    client.connection.connection_lost(None)
    assert client.pool.budget.used == 0


def test_a_client_at_a_bound_that_is_put_off_goes_on_when_the_bound_is_kept_again() -> None:
    turns = Turns()
    (client,) = crowd(turns, 1)
    turns.begin()
    client.receive(frame(PARK))
    client.connection.pause_writing()
    turns.take_long()
    client.connection.resume_writing()
    assert not client.transport.reading
    turns.end_all()
    assert client.transport.reading
    send(client, b"x")
    client.parked[0].respond([b""])
    turns.begin()
    turns.end_all()
    assert len(client.answers) == 2


def test_large_answers_of_those_who_wait_leave_as_they_are_made() -> None:
    turns = Turns()
    clients = crowd(turns, 3)
    turns.take_long()
    for each in clients:
        each.unread = frame(LARGE)
        each.read()
    turns.turn._send()
    turns.turn._go_on()
    assert [len(each.transport.writes) for each in clients] == [1, 1, 1]


def test_who_comes_while_others_wait_from_an_earlier_turn_is_behind_them() -> None:
    turns = Turns()
    clients = crowd(turns, 3)
    turns.take_long()
    for each in clients[:2]:
        send(each, b"early")
    clock, slow = turns.turn.loop_watch, iter(range(1, 1000))
    clock.clock = lambda: 2 * TURN_S * next(slow)  # one is served a turn
    turns.end()
    clock.clock = lambda: turns.now_s
    turns.begin()
    send(clients[2], b"late")
    assert [len(each.seen) for each in clients] == [1, 0, 0]
    turns.end_all()
    assert [len(each.seen) for each in clients] == [1, 1, 1]
