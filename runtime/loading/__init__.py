"""Opens a pair: plans what fits, opens models and contexts, measures costs and exactness, wires the loop.

Knows every room below it by name; remembers what was measured between starts. Must not know replies or text.
"""
