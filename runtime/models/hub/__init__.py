"""Model files of the hub: their names, the shared cache, fetching."""
