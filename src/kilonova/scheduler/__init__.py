"""Scheduler: a loop that fires triggers and assigns runs to worker processes.

It executes decisions; `kilonova.schedule` makes them, as pure functions.
"""
