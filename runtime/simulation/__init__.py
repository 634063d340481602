"""A whole cluster in one seeded, deterministic event loop: virtual time, simulated machines, network and disks.

Start at `SimulationLoop` (loop.py). Everything that happens in a run follows from its seed and its list of faults.
"""
