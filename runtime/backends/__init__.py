"""What runs a model: contexts and their KV caches, token trees, early exit, vocabularies, devices.

Knows llama.cpp, and is the only room that does; everybody else knows the contracts in core/backend.py. Must not know
drafters, replies or what a pass is for.
"""
