"""Which partition of an internal topic keeps a key: Java's hash of its name, as every client and tool of Kafka computes it."""

_INT32 = 0xFFFFFFFF


def java_hash(text: str) -> int:
    """`String.hashCode`, as an unsigned number: over UTF-16 code units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & _INT32
    return value


def partition_of(key: str, count: int) -> int:
    """The place of a group or a transactional id among ``count`` partitions."""
    return (java_hash(key) & 0x7FFFFFFF) % count
