"""Storage of blocks: directories of Parquet files that Spark reads, merges, writes and deletes.

Spark jobs start in `kilonova.warehouse.jobs` and nowhere else; all other modules build lazy DataFrames.
"""
