"""Copies of a context's cells: checkpoints and conversations in memory, and the prompt cache on disk.

Knows tokens and bytes; decodes nothing and does not decide what is worth its memory.
"""
