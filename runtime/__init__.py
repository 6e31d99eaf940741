"""Slipstream's engine: token ids and models.

Importing this package loads neither a model library nor a user interface.
"""
