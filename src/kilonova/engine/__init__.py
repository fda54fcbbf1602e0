"""Execution of runs (tasks, ingests, compactions) from start to commit, recovery of runs, and garbage collection."""
