"""Metadata database of channels, points, blocks, tasks, cursors and runs.

All state that must outlive a process is here or in the warehouse, and the catalog is authoritative: a file that no
live block references does not exist for any reader. Transactions begin only in `kilonova.catalog.database`; the other
modules are functions over an open transaction, named in domain terms. (Nova, section 4: stateless modules around one
metadata database.)
"""
