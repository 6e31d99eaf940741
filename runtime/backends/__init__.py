"""Runs models: contexts and their KV caches, token trees, early exit, vocabularies, devices.

The only package that knows llama.cpp; all others use the contracts in core/backend.py. Must not know drafters, replies
or the purpose of a pass.
"""
