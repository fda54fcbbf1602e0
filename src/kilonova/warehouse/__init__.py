"""Where blocks live: directories of Parquet files, and how Spark reads, merges, writes and deletes them.

Spark jobs start in `kilonova.warehouse.jobs` and nowhere else; all other modules build lazy DataFrames.
"""
