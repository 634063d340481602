"""Random messages of any schema, for the property tests and for the comparison with other codecs."""

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from ottla.broker.wire.codec import struct_classes
from ottla.broker.wire.compiling import compile_source, names_of
from ottla.broker.wire.encode_source import EncodeWriter, encode_source
from ottla.broker.wire.layout import Layouts
from ottla.broker.wire.schema import message
from ottla.testing.messages import MessageMaker

MakeMessage = Callable[[str, int, random.Random], Any]


@pytest.fixture(scope="session")
def make_message() -> MakeMessage:
    """A message of random content that our codec must carry."""
    return MessageMaker(tame=False)


@pytest.fixture(scope="session")
def make_tame_message() -> MakeMessage:
    """A message of random content that every codec can carry."""
    return MessageMaker(tame=True)


class StrangerWriter(EncodeWriter):
    """Writes every tagged section as a newer peer might: with a field more that we do not know."""

    UNKNOWN = b"\x63\x03new"

    def no_tags(self) -> None:
        self.flush()
        self.emit(f"{self.add}({bytes((1,)) + self.UNKNOWN!r})")

    def section(self, section: str) -> None:
        self.emit(f"{section}.append({self.UNKNOWN!r})")
        super().section(section)


@pytest.fixture(scope="session")
def encode_with_unknown_tags() -> Callable[[Any, int], bytes]:
    """The bytes of a message whose every tagged section, at any depth, has a field that we do not know."""

    @cache
    def compiled(name: str, version: int) -> Callable[[Any], list[bytes]]:
        schema, layouts = message(name), Layouts()
        writer = StrangerWriter(schema, version, layouts)
        names, title = names_of(schema, struct_classes(schema)), f"{name} {version} with unknown tags"
        return compile_source(encode_source(writer), layouts, "encode", title, names)

    return lambda value, version: b"".join(compiled(type(value).__name__, version)(value))
