"""Java for Spark: locating a runtime, and a class-data archive that makes it start faster."""
