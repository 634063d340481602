"""Where Spark's rows go: Delta tables, Parquet with a manifest, topics; each batch once."""
