"""Which record it is: vehicle and number, from a value as it was sent, or from the columns of a table."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.fleet.fleet import PREFIX
from ottla.pipeline.fleet.numbers import Flags, Integers
from ottla.pipeline.fleet.payload import KEY_BYTES
from ottla.pipeline.fleet.text import Bytes

Names = tuple[Integers, Integers]

_BEGINNING = b'{"vin":"' + PREFIX
_BETWEEN = b'","seq":'
_NUMBER_AT = len(_BEGINNING) + 7 + len(_BETWEEN)
_DIGITS = 10
_WIDTH = _NUMBER_AT + _DIGITS + 1
_COMMA, _ZERO = ord(","), ord("0")


def of_values(values: pa.Array) -> Names:
    """Vehicle and number of each value; -1 twice where it is none of a fleet's."""
    starts, lengths, text = _pieces(values)
    is_long = lengths >= _WIDTH
    where = np.where(is_long, starts, 0)[:, None] + np.arange(_WIDTH)
    padded = text if len(text) >= _WIDTH else np.pad(text, (0, _WIDTH))
    head = padded[where] if len(starts) else np.empty((0, _WIDTH), np.uint8)
    begins = (head[:, : len(_BEGINNING)] == np.frombuffer(_BEGINNING, np.uint8)).all(1)
    goes_on = (head[:, _NUMBER_AT - len(_BETWEEN) : _NUMBER_AT] == np.frombuffer(_BETWEEN, np.uint8)).all(1)
    vehicle, has_vehicle = _number(head[:, len(_BEGINNING) : len(_BEGINNING) + 7], np.full(len(head), 7))
    ends = np.argmax(head[:, _NUMBER_AT:] == _COMMA, 1)  # 0 where there is none, as where there is no digit
    number, has_number = _number(head[:, _NUMBER_AT : _NUMBER_AT + _DIGITS], ends)
    return _unless(is_long & begins & goes_on & has_vehicle & has_number, vehicle, number)


def of_columns(vin: pa.Array, seq: pa.Array) -> Names:
    """The same of a table's columns ``vin`` and ``seq``."""
    text = pc.fill_null(pc.cast(vin, pa.binary()), b"")
    starts, lengths, buffer = _pieces(text)
    fits = lengths == KEY_BYTES
    if not fits.any():
        return _unless(fits, np.zeros(len(fits), np.int64), np.zeros(len(fits), np.int64))
    head = buffer[np.where(fits, starts, starts[np.argmax(fits)])[:, None] + np.arange(KEY_BYTES)]
    begins = (head[:, : len(PREFIX)] == np.frombuffer(PREFIX, np.uint8)).all(1)
    vehicle, has_vehicle = _number(head[:, len(PREFIX) :], np.full(len(head), 7))
    number = pc.fill_null(pc.cast(seq, pa.int64()), -1).to_numpy(zero_copy_only=False)
    return _unless(fits & begins & has_vehicle & (number >= 0), vehicle, number)


def _pieces(values: pa.Array) -> tuple[Integers, Integers, Bytes]:
    """Where each value begins, how long it is (a null is as an empty one), and the bytes they lie in."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    values = pc.fill_null(values.cast(pa.large_binary()), b"")
    _, offsets, buffer = values.buffers()
    bounds = (
        np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
        if len(values)
        else np.zeros(1, np.int64)
    )
    text = np.frombuffer(buffer, np.uint8) if buffer is not None else np.empty(0, np.uint8)
    return bounds[:-1], np.diff(bounds), text


def _number(digits: Bytes, lengths: Integers) -> tuple[Integers, Flags]:
    """The number that the first digits of each row make, and whether they are digits (one at least)."""
    is_in = np.arange(digits.shape[1]) < lengths[:, None]
    values = digits.astype(np.int64) - _ZERO
    number = np.zeros(len(digits), np.int64)
    for place in range(digits.shape[1]):
        number = np.where(is_in[:, place], number * 10 + values[:, place], number)
    is_digit = (values >= 0) & (values <= 9)
    return number, (is_digit | ~is_in).all(1) & (lengths > 0)


def _unless(fits: Flags, vehicle: Integers, number: Integers) -> Names:
    return np.where(fits, vehicle, -1), np.where(fits, number, -1)
