"""Domain model: frozen values and pure functions, without Spark, database, clock or randomness."""
