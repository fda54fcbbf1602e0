"""Scheduling decisions: pure functions from frozen observations to frozen values, without Spark or a database."""
