"""Memory of the machine and of models: readings, pressure levels, footprints.

Knows readings, headers and arithmetic. Must not load a model or give anything up itself.
"""
