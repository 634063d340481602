"""The judge finds each record that is lost, came twice, changed places, or is none of the fleet's, however it is given them."""

from random import Random

import numpy as np
import pytest

from ottla.pipeline.fleet.fleet import Fleet
from ottla.pipeline.fleet.judge import Findings, Judge
from ottla.pipeline.fleet.sending import TELEMETRY, sent_between, slices

FLEET = Fleet(records=2_000, vehicles=10)
RECORDS: list[tuple[int, int]] = []
for _piece in slices(FLEET):
    _rows = sent_between(FLEET, TELEMETRY, *_piece, np.arange(FLEET.vehicles))
    RECORDS += zip(_rows.vehicle.tolist(), _rows.number.tolist(), strict=True)


def judged(records: list[tuple[int, int]], at_once: int = 10**9) -> Findings:
    judge = Judge(FLEET, TELEMETRY)
    for first in range(0, len(records), at_once):
        vehicle, number = zip(*records[first : first + at_once], strict=True)
        judge.take(np.array(vehicle, np.int64), np.array(number, np.int64))
    return judge.findings()


def counts(found: Findings) -> tuple[int, int, int, int]:
    return found.lost, found.doubled, found.reordered, found.foreign


@pytest.mark.parametrize("at_once", [1, 7, 10**9])
def test_a_whole_fleet_is_found_whole(at_once: int) -> None:
    found = judged(RECORDS, at_once)
    assert found.is_whole
    assert (found.records, found.expected, counts(found)) == (2_000, 2_000, (0, 0, 0, 0))


def test_an_empty_topic_has_lost_everything() -> None:
    assert counts(Judge(FLEET, TELEMETRY).findings()) == (2_000, 0, 0, 0)


def test_the_last_record_of_a_vehicle_is_missed_as_any_other() -> None:
    last = max(each for each in RECORDS if each[0] == 3)
    found = judged([each for each in RECORDS if each != last])
    assert counts(found) == (1, 0, 0, 0)
    assert found.examples["lost"] == [f"5FLEET00000000003:{last[1]}"]


@pytest.mark.parametrize("at_once", [1, 10**9])
def test_a_record_behind_a_later_one_of_its_vehicle_changed_places(at_once: int) -> None:
    records = list(RECORDS)
    first, second = [place for place, each in enumerate(records) if each[0] == 5][10:12]
    records[first], records[second] = records[second], records[first]
    found = judged(records, at_once)
    assert counts(found) == (0, 0, 1, 0)
    assert found.examples["reordered"] == ["5FLEET00000000005:10"]


def test_what_is_none_of_the_fleets_is_told_apart() -> None:
    found = judged([*RECORDS, (10, 0), (-1, -1), (0, 10**9), (3, -1)])
    assert counts(found) == (0, 0, 0, 4)
    assert found.examples["foreign"][0] == "5FLEET00000000010:0"


@pytest.mark.parametrize("seed", range(20))
def test_it_says_what_a_slow_count_says(seed: int) -> None:
    random = Random(seed)
    records = list(RECORDS)
    for _ in range(random.randrange(30)):
        place, other = random.randrange(len(records)), random.randrange(len(records))
        match random.randrange(4):
            case 0:
                del records[place]
            case 1:
                records.insert(other, records[place])
            case 2:
                records[place], records[other] = records[other], records[place]
            case 3:
                records.insert(place, (random.randrange(20), random.randrange(10_000)))
    assert counts(judged(records, random.choice([1, 10, 1_000]))) == slowly(records)


def slowly(records: list[tuple[int, int]]) -> tuple[int, int, int, int]:
    expected, highest, seen = set(RECORDS), dict.fromkeys(range(10), -1), set[tuple[int, int]]()
    doubled = reordered = foreign = 0
    for vehicle, number in records:
        if (vehicle, number) not in expected:
            foreign += 1
        elif (vehicle, number) in seen:
            doubled += 1
        else:
            reordered += number < highest[vehicle]
            highest[vehicle] = max(highest[vehicle], number)
            seen.add((vehicle, number))
    return len(expected - seen), doubled, reordered, foreign
