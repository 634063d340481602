"""The jobs of ``ottla spark``. A job's module holds its words; what it works with (pyspark among it) is loaded when it runs."""
