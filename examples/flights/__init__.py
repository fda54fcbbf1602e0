"""A year of flights from New York, kept up to date as they arrive."""
