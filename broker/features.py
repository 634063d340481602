"""The features this program can run, as brokers register them and ApiVersions tells them."""

from ottla.quorum.controller.decisions.features import SUPPORTED

SUPPORTED_FEATURES: dict[str, tuple[int, int]] = {
    name: (levels.lowest, levels.highest) for name, levels in SUPPORTED.items()
}
"""Lowest and highest level by name."""
