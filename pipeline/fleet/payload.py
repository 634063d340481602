"""What a vehicle says in its records: telemetry, alerts, that it went out of reach and came back; as JSON.

Signals move as a vehicle's would (speed up and down, a battery that empties, an odometer that only grows), with noise of their own for each
record. Integers all the way, so that every machine writes the same bytes.
"""

from typing import NamedTuple

import numpy as np

from ottla.pipeline.fleet.fleet import PREFIX, Fleet
from ottla.pipeline.fleet.numbers import Integers, below, mixed
from ottla.pipeline.fleet.sending import ALERTS, CONNECTIVITY, KINDS, Rows
from ottla.pipeline.fleet.text import Bytes, Letters, Number, Part, digits_of, texts

KEY_BYTES = len(PREFIX) + 7
MINUTE_MS = 60_000

_OF_VEHICLE, _OF_RECORD = 32, 40

_MOMENT = Number(13, is_full=True)
_COUNT = Number(10)


def _letters(*words: str) -> Letters:
    return Letters(np.array([list(word.encode()) for word in words], np.uint8))


_HEAD: list[Part] = [b'{"vin":"' + PREFIX, Number(7, is_full=True), b'","seq":', _COUNT, b',"created_at":', _MOMENT]
_SHAPES: dict[str, list[Part]] = {
    "V": [
        *_HEAD,
        *(b',"speed":', Number(4, 1), b',"soc":', Number(4, 1), b',"odometer":', Number(6)),
        *(b',"lat":', Number(7, 5, is_full=True), b',"lon":', Number(7, 5)),
        *(b',"gear":"', _letters("P", "D", "R"), b'"}'),
    ],
    "alerts": [
        *_HEAD,
        *(b',"alert":"', _letters("TYRE_PRESSURE", "BATTERY_TEMPS", "DOOR_NOT_SHUT", "WASHER_LIQUID", "CABIN_OVERHOT")),
        *(b'","severity":', Number(1), b"}"),
    ],
    "connectivity": [*_HEAD, b',"status":"', _letters("LOST", "BACK"), b'","network":"', _letters("3g", "4g", "5g"), b'"}'],
}  # fmt: skip


class Payload(NamedTuple):
    """Keys of one length, values of any: bytes one behind the other, and where each value begins (and the last one ends)."""

    keys: Bytes
    values: Bytes
    starts: Integers
    timestamps_ms: Integers


def topic_of(prefix: str, kind: str) -> str:
    return f"{prefix}_{kind}"


def keys_of(vehicles: Integers) -> Bytes:
    """The name of each vehicle, a row each."""
    keys = np.tile(np.frombuffer(PREFIX + bytes(7), np.uint8), (len(vehicles), 1))
    keys[:, len(PREFIX) :] = digits_of(vehicles, 7)
    return keys


def payload(fleet: Fleet, kind: str, rows: Rows) -> Payload:
    """The records' keys, values, and when they were sent."""
    created_ms = fleet.start_ms + rows.happened_us // 1000 + fleet.clock_error[rows.vehicle]
    columns = [rows.vehicle, rows.number, created_ms, *_signals(fleet, kind, rows)]
    values, starts = texts(_SHAPES[kind], columns, len(rows.vehicle))
    return Payload(keys_of(rows.vehicle), values, starts, fleet.start_ms + rows.sent_us // 1000)


def _signals(fleet: Fleet, kind: str, rows: Rows) -> list[Integers]:
    noise = mixed(fleet.seed, _OF_RECORD + KINDS.index(kind), rows.vehicle, rows.number)
    if kind == ALERTS:
        return [below(noise, 5), 1 + below(noise, 4, 32)]
    if kind == CONNECTIVITY:
        return [rows.number % 2, below(noise, 3)]
    of_vehicle = mixed(fleet.seed, _OF_VEHICLE, np.arange(fleet.vehicles))[rows.vehicle]
    minutes = rows.happened_us // 1000 // MINUTE_MS + below(of_vehicle, 1440)
    ride = np.minimum(
        minutes % 40, 40 - minutes % 40
    )  # up to 20 minutes from standing still to driving fast, and down again
    speed = np.maximum(0, ride * 60 - 200 + below(noise, 60))
    charge = 1000 - (minutes * 2) % 900 - below(noise, 5, 8)
    odometer = below(of_vehicle, 200_000, 24) + minutes // 2
    latitude = 4_800_000 + below(of_vehicle, 600_000, 8) + below(noise, 20_000, 16)
    longitude = 200_000 + below(of_vehicle, 1_000_000, 16) + below(noise, 20_000, 32)
    gear = np.where(speed == 0, 0, np.where(speed < 20, 2, 1))
    return [speed, charge, odometer, latitude, longitude, gear]
