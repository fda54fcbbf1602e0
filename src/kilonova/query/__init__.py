"""SQL parsed into one relational tree that several modules read: rendering, properties, delta rules.

Pure: nothing here depends on a Spark session, a database or the catalog.
"""
