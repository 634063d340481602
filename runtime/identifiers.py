"""Kafka's 16-byte ids: bytes inside, unpadded base64url (22 letters) for people and files."""

import base64
from random import Random

ZERO_ID = bytes(16)


def random_id(rng: Random) -> bytes:
    """A random version-4 UUID as 16 bytes, never one of the reserved ids (all zero but the last byte)."""
    raw = bytearray(rng.randbytes(16))
    raw[6] = (raw[6] & 0x0F) | 0x40
    raw[8] = (raw[8] & 0x3F) | 0x80
    # A text form that starts with '-' would read as an option on a command line (as Kafka avoids too).
    return bytes(raw) if id_to_text(bytes(raw))[0] != "-" else random_id(rng)


def id_to_text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def id_from_text(text: str) -> bytes:
    """Reads the text form. Raises ValueError when it is not 16 bytes of base64url."""
    value = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(value) != 16:
        raise ValueError(f"{text!r} is not a 16-byte id in base64url")
    return value
