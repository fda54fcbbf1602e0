"""SQL as one relational tree with several readers: rendering, properties, changes.

Pure: nothing here knows Spark, a database or the catalog.
"""
