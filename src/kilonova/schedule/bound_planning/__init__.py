"""Runs that keep bounds: the plans of `kilonova.schedule.asynchrony` for registered tasks, and the runs that follow.

    registered tasks, channels, bounds ──▶ WorkflowModel, SchedulingState ──▶ ExecutionPlan ──▶ runs to start now

A run starts as soon as its input is there; what a plan does afterwards is planned again then, from what there is.
Everything here is a pure function of a `BoundObservation`, which `kilonova.catalog.bound_observation` loads.
"""
