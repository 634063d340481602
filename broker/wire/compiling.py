"""Compiles the encoder and the decoder of one message's version, for whatever classes stand for its structs.

A class takes the values of its fields in their order, has them as attributes, and without arguments has their
defaults. Nothing here needs more than the standard library: the client of the pipeline compiles with it on machines
where only that is.
"""

import linecache
from collections.abc import Callable, Mapping
from struct import error as StructError
from typing import Any

from ottla.broker.wire import primitives
from ottla.broker.wire.decode_source import DecodeWriter, decode_source
from ottla.broker.wire.encode_source import EncodeWriter, default_name, encode_source
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.layout import Layouts
from ottla.broker.wire.schema import Message
from ottla.runtime.errors import ErrorCode
from ottla.runtime.identifiers import ZERO_ID


def compile_codec(schema: Message, version: int, direction: str, classes: Mapping[str, type]) -> Callable[..., Any]:
    """``encode(message) -> buffers`` or ``decode(view, position) -> (message, position)``, as ``direction`` says."""
    layouts = Layouts()
    if direction == "decode":
        source = decode_source(DecodeWriter(schema, version, layouts))
    else:
        source = encode_source(EncodeWriter(schema, version, layouts))
    return compile_source(source, layouts, direction, f"{schema.name} {version}", names_of(schema, classes))


def compile_source(
    source: str, layouts: Layouts, direction: str, title: str, names: Mapping[str, Any]
) -> Callable[..., Any]:
    """The function named ``direction`` of a source that one of the two writers wrote."""
    file = f"<{direction} {title}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)  # tracebacks show the line
    namespace = {**HELPERS, **names, **layouts.globals()}
    exec(compile(source, file, "exec"), namespace)  # noqa: S102 -- our own source, from our own schema
    function: Callable[..., Any] = namespace[direction]
    return function


def names_of(schema: Message, classes: Mapping[str, type]) -> dict[str, Any]:
    """What a source calls a message's classes, and the defaults of their fields."""
    found: dict[str, Any] = dict(classes)
    for struct, fields in schema.structs.items():
        blank = classes[struct]()
        found |= {default_name(struct, field): getattr(blank, field.name) for field in fields}
    return found


def malformed(name: str, version: int, cause: Exception) -> WireError:
    return WireError(f"bytes are not a {name} of version {version}: {cause}")


def unencodable(name: str, version: int, cause: Exception) -> WireError:
    return WireError(f"cannot encode {name} version {version}: {cause}")


def not_in_version(name: str, version: int, field: str) -> WireError:
    return WireError(f"{name} version {version} cannot carry {field}", ErrorCode.UNSUPPORTED_VERSION)


HELPERS = {
    "StructError": StructError,
    "UNCOPIED_MIN": primitives.UNCOPIED_MIN,
    "VARINTS": primitives.VARINTS,
    "ZERO_ID": ZERO_ID,
    "check_count": primitives.check_count,
    "encode_varint": primitives.encode_varint,
    "error_words": primitives.error_words,
    "join": b"".join,
    "long_string": primitives.long_string,
    "malformed": malformed,
    "more_string": primitives.more_string,
    "more_varint": primitives.more_varint,
    "not_in_version": not_in_version,
    "numbers": primitives.numbers,
    "read_varint": primitives.read_varint,
    "skip_tags": primitives.skip_tags,
    "tag_count": primitives.tag_count,
    "tag_of_size": primitives.tag_of_size,
    "too_long": primitives.too_long,
    "too_many": primitives.too_many,
    "truncated": primitives.truncated,
    "unencodable": unencodable,
    "unexpected_null": primitives.unexpected_null,
}
"""What compiled source may call, by the names it uses."""
