"""Ollama's interface: chats, completions, embeddings and the served model.

A thin layer over the tasks of the other interfaces. It does not pull, create or unload models.
"""
