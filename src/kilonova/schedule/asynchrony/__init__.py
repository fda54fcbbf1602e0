"""Bounded asynchrony: minimal-cost plans that keep bounds on staleness and inconsistency (asynchronous scheduling).

The seam to the catalog and to the engine:

- *Input* is a frozen `SchedulingState`: per channel its blocks (stored, with the points between which they lead), per
  output channel its head and the block types that its readers accept, the times of the source points, the bounds and
  the present time; beside it a `WorkflowModel`: tasks with variants, each with a signature, a cost model and a size
  model. A channel of Kilonova is a chain of points, so that the catalog may list a base at any retained point and a
  delta between any two; what it lists is what plans may read. The provenance of a point is read off its version by
  `provenance_of`.
- *Output* is a frozen `ExecutionPlan`: invocations in an order in which they can run, each with the blocks that every
  port reads. A stored block has the points from and to which the port is read; a block without points is written by an
  earlier invocation of the same plan. Conversions of block types and chains of deltas are reads of the channel in
  Kilonova, and become part of the reading task. After the plan the bounds hold, if no new data has arrived meanwhile.

Nothing here knows the catalog, Spark or the clock.
"""
