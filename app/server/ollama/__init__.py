"""Ollama's interface, as its clients use it: chats, texts, embeddings and what is served.

Thin over the tasks of the other interfaces. Nothing is pulled, made or unloaded through it.
"""
