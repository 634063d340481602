"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# The machine may be busy: how long an example takes says nothing about it.
settings.register_profile("ottla", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ottla")
