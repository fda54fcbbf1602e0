"""Decisions as frozen values that pure functions make of frozen observations: no Spark, no database."""
