"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# The machine may be busy: how long an example takes says nothing about it. What is drawn follows from the test's name, so that a change
# fails by what it did; `make deep-unit` (``--hypothesis-profile=drawn``) draws others every time, and more of them.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("drawn", PATIENT, max_examples=1_000, print_blob=True)
settings.register_profile("ottla", PATIENT, derandomize=True)
settings.load_profile("ottla")
