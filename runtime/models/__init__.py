"""Handles model files on disk: GGUF headers read without trust, facts from them, shards, the registry of pairs, the
hub.

Knows files, names and bytes. Must not load a model library or know how a model is run.
"""
