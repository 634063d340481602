"""Kafka's messages as data: the ``*.schema`` files beside this module, read on demand.

A file holds blocks, separated by empty lines; ``#`` starts a comment line. A block is one message:

    message ListOffsetsRequest type request key 2 versions 1-11 flexible 6+ listeners broker
      topics []ListOffsetsTopic 0+
        name string 0+
        current_leader_epoch int32 4+ default -1 ignorable
      struct Shared
        host string 0+

A field line is ``name type versions``, then any of ``nullable VERSIONS``, ``tag NUMBER VERSIONS`` (it travels in the
tagged section in those versions), ``default VALUE`` (else 0, false, "", [], the zero id; null for ``records``),
``ignorable`` (dropped silently by versions that lack it) and ``inflexible`` (never compact). A struct's fields are
indented below the field that first uses it, or below a ``struct`` line. VERSIONS is ``3``, ``3-7`` or ``3+``.
Source: the message definitions of Apache Kafka 4.3.1.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

PRIMITIVES = {
    "bool": "bool",
    "int8": "int",
    "int16": "int",
    "uint16": "int",
    "int32": "int",
    "uint32": "int",
    "int64": "int",
    "float64": "float",
    "uuid": "bytes",
    "string": "str",
    "bytes": "bytes",
    "records": "Records",
}
"""Primitive type names and the Python type that a field of them has."""

LATEST = 32767
"""The end of an open range of versions ("3+")."""


@dataclass(frozen=True, slots=True)
class Versions:
    """An inclusive range of versions."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __str__(self) -> str:
        if self.last == LATEST:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


NEVER = Versions(1, 0)


@dataclass(frozen=True, slots=True)
class Field:
    """One field: ``type`` is a primitive's or a struct's name, of each element when ``is_array``."""

    name: str
    type: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int
    tagged: Versions
    default: str
    ignorable: bool
    inflexible: bool

    @property
    def is_struct(self) -> bool:
        return self.type not in PRIMITIVES

    @property
    def default_expression(self) -> str:
        """The default value as Python source; a struct's is a call, an array's a display."""
        if self.default == "null":
            return "None"
        if self.is_array:
            return "[]"
        return default_of_type(self.type, self.default)


@dataclass(frozen=True, slots=True)
class Message:
    """One message; ``structs[name]`` are the fields of it (under its own name) and of every struct inside."""

    name: str
    type: str
    key: int
    versions: Versions
    flexible: Versions
    listeners: tuple[str, ...]
    unstable: Versions
    structs: dict[str, tuple[Field, ...]]

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.structs[self.name]


@cache
def blocks() -> dict[str, str]:
    """Every message's block of schema text by the message's name, in file order."""
    found = {}
    files = [entry for entry in resources.files(__name__).iterdir() if entry.name.endswith(".schema")]
    for file in sorted(files, key=lambda entry: entry.name):
        for block in file.read_text(encoding="utf-8").split("\n\n"):
            text = block.strip()
            if text.startswith("message "):
                found[text.split(None, 2)[1]] = text
    return found


def module_name(message_name: str) -> str:
    """The module of ``messages`` that has a message: OffsetForLeaderEpochRequest, offset_for_leader_epoch_request."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", message_name.replace("KRaft", "Kraft"))
    return spaced.lower()


def message_names() -> list[str]:
    return list(blocks())


@cache
def message(name: str) -> Message:
    """The schema of a message. Raises KeyError when there is none of that name."""
    head, *lines = blocks()[name].splitlines()
    return parse_message(head, lines)


def parse_message(head: str, lines: list[str]) -> Message:
    """Reads one block. Raises ValueError when a line is not of the form described above."""
    words = head.split()
    attributes = dict(zip(words[0::2], words[1::2], strict=True))
    name = attributes["message"]
    return Message(
        name=name,
        type=attributes["type"],
        key=int(attributes.get("key", "-1")),
        versions=parse_versions(attributes["versions"]),
        flexible=parse_versions(attributes["flexible"]) if "flexible" in attributes else NEVER,
        listeners=tuple(attributes.get("listeners", "").split(",")),
        unstable=parse_versions(attributes["unstable"]) if "unstable" in attributes else NEVER,
        structs={struct: tuple(fields) for struct, fields in parse_structs(name, lines).items()},
    )


def parse_structs(name: str, lines: list[str]) -> dict[str, list[Field]]:
    """The fields of the message and of its structs, in the order in which the structs are first named."""
    structs: dict[str, list[Field]] = {name: []}
    owners = [name]  # the struct that a line at each depth belongs to
    for line in lines:
        depth = (len(line) - len(line.lstrip())) // 2 - 1
        words = line.split()
        del owners[depth + 1 :]
        if words[0] == "struct":
            struct = words[1]
        else:
            field = parse_field(words)
            structs[owners[depth]].append(field)
            struct = field.type
        if struct not in PRIMITIVES:
            structs.setdefault(struct, [])
            owners.append(struct)
    return structs


def parse_field(words: list[str]) -> Field:
    name, kind, versions, *rest = words
    attributes = parse_attributes(rest)
    element = kind.removeprefix("[]")
    tag = attributes.get("tag")
    is_array = element != kind
    return Field(
        name=name,
        type=element,
        is_array=is_array,
        versions=parse_versions(versions),
        nullable=parse_versions(attributes["nullable"][0]) if "nullable" in attributes else NEVER,
        tag=int(tag[0]) if tag else -1,
        tagged=parse_versions(tag[1]) if tag else NEVER,
        default=attributes["default"][0] if "default" in attributes else no_default(element, is_array),
        ignorable="ignorable" in attributes,
        inflexible="inflexible" in attributes,
    )


def no_default(element: str, is_array: bool) -> str:
    return "null" if element == "records" and not is_array else ""


def parse_attributes(words: list[str]) -> dict[str, list[str]]:
    """The words after a field's versions, by keyword. Raises ValueError at a word that is no keyword."""
    lengths = {"nullable": 1, "tag": 2, "default": 1, "ignorable": 0, "inflexible": 0}
    attributes: dict[str, list[str]] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word not in lengths:
            raise ValueError(f"{word!r} is not a field's attribute")
        attributes[word] = [rest.pop(0) for _ in range(lengths[word])]
    return attributes


def parse_versions(text: str) -> Versions:
    first, dash, last = text.partition("-")
    if text.endswith("+"):
        return Versions(int(text[:-1]), LATEST)
    return Versions(int(first), int(last) if dash else int(first))


def default_of_type(kind: str, text: str) -> str:
    """Python source of a non-null default: ``text`` as the schema writes it, or the type's own when it is empty."""
    if kind == "string":
        return f'"{text}"'
    if kind == "bool":
        return "True" if text == "true" else "False"
    if kind not in PRIMITIVES:
        return f"{kind}()"
    empty = {"uuid": "ZERO_ID", "bytes": 'b""', "float64": "0.0"}
    return text or empty.get(kind, "0")
