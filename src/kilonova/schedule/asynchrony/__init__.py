"""Bounded asynchrony: minimal-cost plans that keep bounds on staleness and inconsistency (asynchronous scheduling).

The seam to the catalog and to the engine:

- *Input* is a frozen `SchedulingState`: per channel its blocks (stored, with the points between which they lead), per
  output channel its head and the block types that its readers accept, the times of the source points, and the present
  time; beside it the bounds and a `WorkflowModel`: tasks with variants, each with a signature, a cost model and a size
  model. `kilonova.schedule.bound_planning` makes both from registered tasks and channels, `declared_workflow` the model
  of a simulation from a declared workflow. What is listed is what plans may read.
- *Output* is a frozen `ExecutionPlan`: invocations in an order in which they can run, each with the blocks that every
  port reads. A stored block has the points from and to which the port is read; a block without points is written by an
  earlier invocation of the same plan, or chained from such blocks. After the plan the bounds hold, if no new data has
  arrived meanwhile.

Nothing here knows the catalog, Spark or the clock.
"""
