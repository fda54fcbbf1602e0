"""Three workflows with bounds, as models for the simulator (asynchronous scheduling, sections 1.1, 4 and 5.1).

Rows are in millions, costs in computer hours. The rates are those of a large web search engine: a wave of data every
half hour.
"""
