"""The metadata database: which channels, points, blocks, tasks, cursors and runs there are.

All state that must outlive a process is here or in the warehouse, and this is what decides what counts:
a file that no live block names does not exist for anybody. Transactions begin in `kilonova.catalog.database`
and nowhere else; the other modules are functions over an open transaction, named for what they do in the
domain's terms. (Nova, section 4: stateless modules around one metadata database.)
"""
