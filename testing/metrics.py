"""A node's metrics as tests read them."""

from ottla.runtime.metrics import Registry, gather_now


def numbers(registry: Registry) -> dict[str, float]:
    """Every sample, by ``name`` or ``name{label values,...}``. Fails if anything could not be read."""
    found: dict[str, float] = {}
    for family in gather_now(registry):
        for labels, value in family.samples:
            found[f"{family.name}{{{','.join(labels)}}}" if labels else family.name] = value
        for labels, value in family.counts:
            found[f"{family.name}_count{{{','.join(labels)}}}"] = value
    assert registry.failures == 0, "a metric could not be read: the log says which"
    return found
