"""Opens a pair: plans by headers and arithmetic what fits into memory, opens models and contexts, measures costs and
exactness, wires the loop.

Knows every package below it by name; caches measurements between starts. Must not know replies or text.
"""
