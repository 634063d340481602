"""A fleet is a function of its numbers: whatever is made where, its records are the same, each of them once."""

import json
from collections import defaultdict

import numpy as np
import pytest

from ottla.pipeline.fleet.fleet import PERIODS, Fleet, FleetError
from ottla.pipeline.fleet.numbers import below, mixed
from ottla.pipeline.fleet.payload import keys_of, payload
from ottla.pipeline.fleet.sending import ALERTS, CONNECTIVITY, KINDS, TELEMETRY, Rows, numbers_of, sent_between, slices

FIVE_HUNDREDTH = b'{"vin":"5FLEET00000000012","seq":105,"created_at":1767268640017,"speed":54.2,"soc":11.2,"odometer":116101,"lat":53.34958,"lon":2.50438,"gear":"D"}'
SMALL = Fleet(records=20_000, vehicles=50, offline=0.3)


def sent(fleet: Fleet, kind: str, records_a_slice: int, vehicles: np.ndarray | None = None) -> Rows:
    chosen = np.arange(fleet.vehicles) if vehicles is None else vehicles
    pieces = [sent_between(fleet, kind, *piece, chosen) for piece in slices(fleet, records_a_slice)]
    return Rows(*(np.concatenate(columns) for columns in zip(*pieces, strict=True)))


def texts(fleet: Fleet, kind: str, rows: Rows) -> list[bytes]:
    made = payload(fleet, kind, rows)
    whole = made.values.tobytes()
    return [whole[first:last] for first, last in zip(made.starts, made.starts[1:], strict=False)]


@pytest.mark.parametrize("kind", KINDS)
def test_each_vehicle_sends_its_numbers_one_after_the_other(kind: str) -> None:
    rows = sent(SMALL, kind, 500)
    assert (np.diff(rows.sent_us) >= 0).all()
    for vehicle, expected in enumerate(numbers_of(SMALL, kind)):
        assert rows.number[rows.vehicle == vehicle].tolist() == list(range(expected))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_records_come_in_pieces_of_any_size(kind: str) -> None:
    few, many = sent(SMALL, kind, 10**9), sent(SMALL, kind, 100)
    assert [column.tolist() for column in few] == [column.tolist() for column in many]


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_of_the_fleet_sends_what_it_sends_in_the_whole(kind: str) -> None:
    whole = sent(SMALL, kind, 700)
    some = np.arange(1, SMALL.vehicles, 3)
    part = sent(SMALL, kind, 300, some)
    here = np.isin(whole.vehicle, some)
    assert [column[here].tolist() for column in whole] == [column.tolist() for column in part]
    chosen = Rows(*(column[here] for column in whole))
    assert texts(SMALL, kind, chosen) == texts(SMALL, kind, part)


@pytest.mark.parametrize(
    "fleet",
    [
        Fleet(records=0, vehicles=3),
        Fleet(records=1, vehicles=10_000),
        Fleet(records=100_000, vehicles=1),
        Fleet(records=7, vehicles=3, skew=0),
        Fleet(records=3_000, vehicles=9, offline=1),
        Fleet(records=200_000, vehicles=2, span_ms=24_000, skew=4, seed=2**63 - 1),
    ],
    ids=["none", "one", "one vehicle", "no skew", "always away", "many a microsecond"],
)
def test_every_record_is_sent_once_by_fleets_at_their_limits(fleet: Fleet) -> None:
    rows = sent(fleet, TELEMETRY, 1_000)
    assert fleet.counts.sum() == fleet.records == len(rows.number)
    place = np.sort(np.cumsum(fleet.counts)[rows.vehicle] - fleet.counts[rows.vehicle] + rows.number)
    assert (place == np.arange(fleet.records)).all()


def test_a_fleet_is_the_same_to_the_byte_today_and_tomorrow() -> None:
    fleet = Fleet(records=1_000, vehicles=20, seed=7)
    rows = sent(fleet, TELEMETRY, 100)
    assert texts(fleet, TELEMETRY, rows)[500] == FIVE_HUNDREDTH
    assert texts(Fleet(records=1_000, vehicles=20, seed=8), TELEMETRY, rows)[500] != FIVE_HUNDREDTH


def test_the_busiest_vehicle_sends_as_zipf_says() -> None:
    counts = np.sort(Fleet(records=1_000_000, vehicles=1_000, skew=1).counts)[::-1]
    assert counts[0] == pytest.approx(2 * counts[1], rel=0.01)
    assert counts[0] == pytest.approx(10 * counts[9], rel=0.01)


def test_what_happened_out_of_reach_is_sent_in_a_burst_when_the_vehicle_is_back() -> None:
    rows = sent(SMALL, TELEMETRY, 500)
    late = rows.sent_us > rows.happened_us
    assert 0.02 < late.mean() < 0.3
    bursts = defaultdict[tuple[int, int], int](int)
    for vehicle, moment in zip(rows.vehicle[late].tolist(), rows.sent_us[late].tolist(), strict=True):
        bursts[vehicle, moment] += 1
    assert max(bursts.values()) > 10
    back = sent(SMALL, CONNECTIVITY, 500)
    returned = back.number % 2 == 1
    assert set(bursts) <= set(zip(back.vehicle[returned].tolist(), back.sent_us[returned].tolist(), strict=True))


def test_values_are_json_as_any_encoder_writes_it() -> None:
    for kind in KINDS:
        rows = sent(SMALL, kind, 5_000)
        for text, number, vehicle in zip(texts(SMALL, kind, rows), rows.number, rows.vehicle, strict=True):
            value = json.loads(text)
            assert (value["vin"], value["seq"]) == (f"5FLEET0000{vehicle:07d}", number)
            assert b" " not in text


def test_wrong_clocks_show_in_what_vehicles_say_and_not_in_when_it_is_sent() -> None:
    fleet = Fleet(records=5_000, vehicles=50, offline=0, wrong_clocks=0.5, clock_error_ms=60_000)
    rows = sent(fleet, TELEMETRY, 500)
    created = np.array([json.loads(text)["created_at"] for text in texts(fleet, TELEMETRY, rows)])
    error = created - payload(fleet, TELEMETRY, rows).timestamps_ms
    assert (error == fleet.clock_error[rows.vehicle]).all()
    assert 10 < np.count_nonzero(fleet.clock_error) < 40
    assert np.abs(fleet.clock_error).max() <= 60_000


def test_every_two_hundredth_record_of_a_vehicle_raises_an_alert() -> None:
    alerts = numbers_of(SMALL, ALERTS)
    assert (np.abs(alerts - SMALL.counts / 200) <= 1).all()
    assert alerts.sum() == len(sent(SMALL, ALERTS, 500).number) > 50


def test_a_vehicle_is_out_of_reach_once_a_period_at_most_and_back_before_it_ends() -> None:
    fleet = Fleet(vehicles=2_000, offline=0.25)
    for period in (0, PERIODS - 1):
        gone, back = fleet.outage(period, np.arange(fleet.vehicles))
        assert (gone >= period * fleet.period_us).all()
        assert (back < (period + 1) * fleet.period_us).all()
        assert (gone < back).mean() == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"records": -1}, "records -1: 0 to 4000000000"),
        ({"vehicles": 0}, "vehicles 0: 1 to 10000000"),
        ({"offline": 1.5}, "offline 1.5: 0 to 1"),
        ({"skew": -1}, "skew -1: 0 to 4"),
        ({"span_ms": 1}, "span 1: 24000 to 31536000000"),
    ],
)
def test_a_fleet_that_cannot_be_says_which_number_is_off(words: dict[str, float], said: str) -> None:
    with pytest.raises(FleetError, match=said):
        Fleet(**words)  # type: ignore[arg-type]


def test_numbers_are_spread_evenly_below_their_bound() -> None:
    numbers = below(mixed(1, 2, np.arange(100_000)), 10)
    assert np.bincount(numbers, minlength=10) == pytest.approx(10_000, rel=0.05)


def test_a_key_is_the_name_of_the_vehicle() -> None:
    assert bytes(keys_of(np.array([0, 1234567]))[1]) == b"5FLEET00001234567"
