"""Jobs that consume, produce and commit in one transaction, what happens to them, and what must hold of their output."""
