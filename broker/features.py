"""The features this program can run, as brokers register them and ApiVersions tells them."""

SUPPORTED_FEATURES: dict[str, tuple[int, int]] = {
    # Kafka's levels from 3.3-IV3 to 4.3-IV0: the records are ours, the behaviour behind a level is Kafka's.
    "metadata.version": (7, 30),
}
"""Lowest and highest level by name."""
