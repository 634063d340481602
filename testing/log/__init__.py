"""Random histories of a log, held against a plain list."""
