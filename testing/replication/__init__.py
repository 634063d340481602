"""Brokers on the simulated network with a stand-in for the controller, and a client that says exactly what it is told."""
