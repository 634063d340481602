"""Members of consumer groups that come, go, die and sleep, and what must hold of what they read."""
