"""How much memory there is, how short it runs, and what a model will take: readings, levels, footprints, GPU offload.

Knows readings, headers and arithmetic. Must not load a model or give anything up itself.
"""
