"""Runs the models in a separate process, so that a crash there does not end the chat or the server.

Knows the engine interface and processes; must not know how the engine works.
"""
